"""Agreements end when the shop ends them or when the booking is over."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from adapters.psp_suite.samples import OTHER_GUEST_ID, a_uuid
from domain.agreements.agreement import Agreement, EndOfAgreement
from domain.audit.entry import Action
from domain.cards import end_agreements
from domain.cards.account import Account
from domain.errors import AgreementNotFound, InvalidField, UserNotAuthorized
from domain.events.event import EventType
from domain.identifiers import AgreementId
from domain.permissions import Permission
from tests.builders import OTHER_CENTER_ID, an_agreement, terms_of_a_booking
from tests.databases import audit_trail, change_by_hand, committed
from tests.domain.agreements.bookings import DAY, end
from tests.installation import Installation


@pytest.fixture
def account(installation: Installation) -> Account:
    return installation.stored_card()


def agreed(
    installation: Installation, account: Account, number: int = 1, days: int = 10
) -> Agreement:
    """Store an agreement for a booking in `days` days. It keeps its card for a week longer."""
    starts_at = installation.clock.now() + days * DAY
    ends_at = starts_at + timedelta(hours=1)
    agreement = an_agreement(
        number,
        account_id=account.account_id,
        terms=terms_of_a_booking(reference=f"{number}", starts_at=starts_at, ends_at=ends_at),
        kept_until=ends_at + 7 * DAY,
        due_at=ends_at,
    )
    with committed(installation.storage) as unit:
        unit.agreements.add(agreement)
        of_account = unit.agreements.of_account(account.account_id)
        keep_until = max(each.keeps_card_until for each in of_account)
        unit.accounts.update(replace(account, keep_until=keep_until))
    return agreement


def stored(installation: Installation, agreement: Agreement) -> Agreement:
    with installation.storage.read() as unit:
        found = unit.agreements.get(agreement.agreement_id)
    assert found is not None
    return found


def test_a_card_is_kept_for_the_grace_period_after_the_shop_ended_its_agreement(
    installation: Installation, account: Account
) -> None:
    installation.has_endpoint(types=[EventType.AGREEMENT_ENDED])
    agreement = agreed(installation, account)
    now = installation.clock.now()
    end(installation, agreement, "cancelled", at="2026-11-20T09:00:00+01:00")

    ended = stored(installation, agreement)
    assert (ended.ended_at, ended.reason) == (now, EndOfAgreement.CANCELLED)
    assert ended.stated_at == datetime.fromisoformat("2026-11-20T09:00:00+01:00")
    assert installation.account(account.account_id).keep_until == now + 7 * DAY
    (told,) = installation.deliveries()
    assert (told.event.status, told.event.reason) == ("ended", "cancelled")
    (entry,) = audit_trail(installation.storage, about=agreement.agreement_id)
    assert (entry.action, entry.actor) == (Action.AGREEMENT_ENDED, "caller:web-shop")


def test_ending_an_agreement_does_not_end_the_general_consent_to_keep_the_card(
    installation: Installation, account: Account
) -> None:
    agreement = agreed(installation, account)
    installation.put_account(account)
    end(installation, agreement)
    assert installation.account(account.account_id).keep_until is None


def test_the_shop_may_report_a_charge_for_a_no_show_after_the_booking_has_ended(
    installation: Installation, account: Account
) -> None:
    installation.has_endpoint(types=[EventType.AGREEMENT_ENDED])
    agreement = agreed(installation, account)
    installation.clock.advance(11 * DAY)
    installation.container.end_agreements()()
    over = stored(installation, agreement)
    end(installation, agreement, "no_show_charged", at="2026-12-05T09:00:00+01:00")

    assert stored(installation, agreement) == replace(
        over,
        reason=EndOfAgreement.NO_SHOW_CHARGED,
        stated_at=datetime.fromisoformat("2026-12-05T09:00:00+01:00"),
    )
    assert installation.account(account.account_id).keep_until == agreement.kept_until
    assert len(installation.deliveries()) == 1


def test_ending_an_agreement_again_does_not_change_its_reason(
    installation: Installation, account: Account
) -> None:
    installation.has_endpoint(types=[EventType.AGREEMENT_ENDED])
    agreement = agreed(installation, account)
    end(installation, agreement, "moved")
    ended = stored(installation, agreement)
    installation.clock.advance(DAY)
    end(installation, agreement, "cancelled")
    assert stored(installation, agreement) == ended
    assert len(installation.deliveries()) == 1


def test_the_agreement_of_a_removed_card_can_be_ended(
    installation: Installation, account: Account
) -> None:
    agreement = agreed(installation, account)
    installation.remove_card(account)
    end(installation, agreement)
    assert stored(installation, agreement).ended_at == installation.clock.now()


@pytest.mark.parametrize(
    ("reasons", "at", "refusal"),
    [
        (["replaced"], None, "reason must be one of fulfilled, cancelled, moved, no_show_charged"),
        (["", "cancelled"], None, "reason must be one of"),
        (["late"], None, "reason must be one of"),
        (["moved"], "2026-11-20", "at must be a time with an offset"),
    ],
)
def test_ending_an_agreement_with_an_invalid_reason_or_time_is_refused(
    installation: Installation, account: Account, reasons: list[str], at: str | None, refusal: str
) -> None:
    agreement = agreed(installation, account)
    with pytest.raises(InvalidField, match=refusal):
        end(installation, agreement, *reasons, at=at)
    assert stored(installation, agreement) == agreement


def test_ending_an_agreement_with_another_guest_or_at_another_center_is_refused(
    installation: Installation, account: Account
) -> None:
    agreement = agreed(installation, account)
    with pytest.raises(AgreementNotFound):
        end(installation, agreement, guest_id=OTHER_GUEST_ID)
    with pytest.raises(AgreementNotFound):
        end(installation, replace(agreement, agreement_id=AgreementId(a_uuid(999))))
    installation.caller = installation.a_caller(centers=frozenset({OTHER_CENTER_ID}))
    with pytest.raises(AgreementNotFound):
        end(installation, agreement)
    installation.caller = installation.a_caller(Permission.GUESTS_VIEW)
    with pytest.raises(UserNotAuthorized):
        end(installation, agreement)


class TestWorker:
    def test_the_worker_ends_an_agreement_when_the_booking_is_over(
        self, installation: Installation, account: Account
    ) -> None:
        installation.has_endpoint(types=[EventType.AGREEMENT_ENDED])
        agreement = agreed(installation, account)
        worker = installation.container.end_agreements()
        worker()
        assert stored(installation, agreement) == agreement

        installation.clock.advance(agreement.terms.ends_at - installation.clock.now())
        for _ in range(2):
            assert not worker()

        ended = stored(installation, agreement)
        assert (ended.ended_at, ended.reason, ended.due_at) == (
            installation.clock.now(),
            None,
            None,
        )
        assert installation.account(account.account_id).keep_until == agreement.kept_until
        (told,) = installation.deliveries()
        assert (told.event.status, told.event.reason) == ("ended", None)

    def test_a_pause_of_the_worker_does_not_extend_how_long_a_card_is_kept(
        self, installation: Installation, account: Account
    ) -> None:
        agreement = agreed(installation, account)
        installation.clock.advance(30 * DAY)
        installation.container.end_agreements()()
        assert installation.account(account.account_id).keep_until == agreement.kept_until
        installation.container.remove_ended_cards()()
        assert installation.accounts() == ()

    def test_the_worker_ends_a_limited_number_of_agreements_per_call(
        self, installation: Installation, account: Account, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(end_agreements, "MAX_PER_CALL", 2)
        found = [agreed(installation, account, number) for number in range(3)]
        installation.clock.advance(11 * DAY)
        worker = installation.container.end_agreements()
        assert worker()
        assert not worker()
        assert all(stored(installation, each).ended_at for each in found)

    @pytest.mark.parametrize(
        ("damage", "mend"),
        [
            (
                "payment_accounts SET source = 77 WHERE center_id <> ",
                "payment_accounts SET source = 1",
            ),
            ("agreements SET reason = 'odd' WHERE center_id <> ", "agreements SET reason = NULL"),
        ],
    )
    def test_records_that_cannot_be_decoded_do_not_delay_agreements_of_other_guests(
        self,
        installation: Installation,
        account: Account,
        monkeypatch: pytest.MonkeyPatch,
        damage: str,
        mend: str,
    ) -> None:
        monkeypatch.setattr(end_agreements, "MAX_PER_CALL", 1)
        damaged = [agreed(installation, account, number) for number in (1, 2)]
        installation.has_other_center()
        elsewhere = installation.stored_card(center_id=OTHER_CENTER_ID)
        other = agreed(installation, elsewhere, 3, days=11)
        with committed(installation.storage) as unit:
            unit.agreements.update(replace(other, center_id=OTHER_CENTER_ID))
        change_by_hand(installation.storage, f"UPDATE {damage} '{OTHER_CENTER_ID}'")
        installation.clock.advance(12 * DAY)
        while installation.container.end_agreements()():
            pass
        assert stored(installation, other).ended_at is not None
        change_by_hand(installation.storage, f"UPDATE {mend}")
        assert [stored(installation, each).ended_at for each in damaged] == [None, None]
