"""Merchant accounts that are closed, have lost their keys, or whose PSP is no longer used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from adapters.fake_psp.plugin import NAME as FAKE
from adapters.psp_suite.samples import GUEST_ID, OTHER_GUEST_ID
from domain.audit.entry import Action
from domain.cards.discard import Discard
from domain.centers.configure_payments import Missing, PspNotReady
from domain.errors import InvalidField, PaymentConfigurationNotDone
from domain.events.event import EventType
from domain.identifiers import MerchantAccount, PspAccount
from domain.personal_data.erasure import Erasure
from domain.psps.merchant_standing import MerchantStanding
from domain.psps.payment_provider import ProviderUnavailable
from domain.sessions.end import SessionStatus
from domain.worker.close_account import Affected
from tests.builders import CENTER_ID, a_guest
from tests.databases import audit_trail, committed
from tests.installation import MERCHANT, OTHER_GOOD_CARD, Installation, Trouble

ACCOUNT = PspAccount(FAKE, MERCHANT)
HOUR = timedelta(hours=1)
NOTHING = Affected(0, 0, 0, 0)


@pytest.fixture(params=["revoked keys", "no PSP"])
def lose(request: pytest.FixtureRequest, installation: Installation) -> Callable[[], None]:
    """Return a function after which the PSP can no longer be called."""
    psps = [installation.container.worker_psps(), installation.container.psps()]

    def lose_it() -> None:
        if request.param == "revoked keys":
            installation.provider.have(Trouble.REFUSED)
        else:
            for each in psps:
                each.pop(FAKE)

    return lose_it


def close(installation: Installation) -> Affected:
    return installation.container.close_account()(ACCOUNT)


def erasure_of(installation: Installation) -> Erasure:
    with installation.storage.read() as unit:
        erasure = unit.erasures.get(GUEST_ID)
    assert erasure is not None
    return erasure


def discards(installation: Installation) -> list[Discard]:
    with installation.storage.read() as unit:
        left = unit.discards.pending_at_psp(ACCOUNT)
        found = [unit.discards.get(*ACCOUNT, token) for token in left]
    return [each for each in found if each is not None]


def finish_erasures(installation: Installation) -> None:
    for _ in range(2):
        installation.clock.advance(HOUR)
        installation.reconcile()
        installation.container.finish_erasures()()


def test_closing_a_merchant_account_ends_everything_that_is_stored_there(
    installation: Installation, lose: Callable[[], None]
) -> None:
    installation.has_endpoint()
    card = installation.stored_card()
    opened = installation.session_with_card(OTHER_GOOD_CARD)
    never_opened = installation.add_card()
    lose()

    assert installation.container.close_account().count(ACCOUNT) == Affected(2, 1, 0, 0)
    assert close(installation) == Affected(2, 1, 0, 0)

    for session in (opened, never_opened):
        ended = installation.session(session.token_id)
        assert (ended.status, ended.due_at) == (SessionStatus.EXPIRED, None)
        assert ended.reason_of_end == "cancelled"
        assert ended.cancelled_by == installation.container.note_act().operator
    assert installation.account(card.account_id).removed_at is not None
    told = [(each.event.type, each.event.reason) for each in installation.deliveries()]
    assert (EventType.ACCOUNT_REMOVED, "account_closed") in told
    assert told.count((EventType.SESSION_EXPIRED, "cancelled")) == 2
    entries = audit_trail(installation.storage, about=f"{FAKE}/{MERCHANT}")
    (entry,) = (each for each in entries if each.action is Action.ACCOUNT_CLOSED)
    assert entry.details == {"sessions": 2, "cards": 1, "discards": 0, "erasures": 0}
    with installation.storage.read() as unit:
        discard = unit.discards.get(*ACCOUNT, card.token)
    assert discard is not None
    assert (discard.out_of_reach, discard.due_at) == (True, None)
    assert installation.container.close_account().count(ACCOUNT) == NOTHING


def test_a_closed_merchant_account_does_not_cause_warnings_in_the_log(
    installation: Installation, lose: Callable[[], None]
) -> None:
    installation.removed_card()
    installation.stored_card()
    installation.opened_session()
    lose()
    installation.clock.advance(HOUR)
    installation.reconcile()
    assert installation.container.read_status()().unanswered
    close(installation)

    with capture_logs() as lines:
        installation.clock.advance(timedelta(days=40))
        installation.reconcile()

    assert not [line for line in lines if line["log_level"] in ("error", "warning")]
    status = installation.container.read_status()()
    assert not status.unanswered
    assert not status.due["discards"].items
    assert not status.due["cards"].items


def test_an_erasure_that_waits_for_a_closed_merchant_account_ends_with_a_log_line(
    installation: Installation, lose: Callable[[], None]
) -> None:
    installation.stored_card()
    installation.opened_session()
    lose()
    installation.erase_guest()
    finish_erasures(installation)
    assert erasure_of(installation).waits_for == (ACCOUNT,)
    assert installation.container.read_status()().erasures[ACCOUNT].items == 1
    assert installation.container.close_account().count(ACCOUNT).erasures == 1
    close(installation)

    with capture_logs() as lines:
        finish_erasures(installation)

    erasure = erasure_of(installation)
    assert erasure.done_at is not None
    assert (erasure.waits_for, erasure.out_of_reach) == ((), (ACCOUNT,))
    assert [line["accounts"] for line in lines if line["event"] == "erasure_out_of_reach"] == [
        [f"{FAKE}/{MERCHANT}"]
    ]
    with installation.storage.read() as unit:
        assert not unit.guest_references.of(GUEST_ID)
        sessions = unit.sessions.of_guest(GUEST_ID)
    assert not any(each.attempt.page for each in sessions if each.attempt)


def test_a_closed_merchant_account_does_not_take_cards_until_it_is_reopened(
    installation: Installation,
) -> None:
    close(installation)
    named = {"provider": FAKE, "merchant_account": MERCHANT}
    configure = installation.container.configure_payments()

    with pytest.raises(PaymentConfigurationNotDone):
        installation.add_card()
    with pytest.raises(PspNotReady) as refused:
        configure(CENTER_ID, named)
    assert refused.value.missing is Missing.CLOSED

    assert installation.container.close_account().reopen(ACCOUNT)
    assert not installation.container.close_account().reopen(ACCOUNT)
    configure(CENTER_ID, named)
    installation.stored_card()
    acts = [each.action for each in audit_trail(installation.storage, about=f"{FAKE}/{MERCHANT}")]
    assert acts == [Action.ACCOUNT_REOPENED, Action.ACCOUNT_CLOSED]


def test_reopening_a_merchant_account_does_not_restore_cards_or_sessions(
    installation: Installation,
) -> None:
    card = installation.stored_card()
    session = installation.session_with_card(OTHER_GOOD_CARD)
    close(installation)
    ended = installation.session(session.token_id)

    installation.container.close_account().reopen(ACCOUNT)
    installation.clock.advance(HOUR)
    installation.reconcile()

    assert installation.session(session.token_id) == ended
    assert installation.account(card.account_id).removed_at is not None
    assert discards(installation) == []


def test_a_webhook_for_a_closed_merchant_account_changes_nothing(
    installation: Installation, lose: Callable[[], None]
) -> None:
    session = installation.session_with_card()
    webhook = installation.webhook()
    lose()
    close(installation)
    ended = installation.session(session.token_id)

    installation.receive_webhook(webhook)

    assert installation.session(session.token_id) == ended
    assert not installation.evidence(session)


def test_a_webhook_from_a_psp_that_is_not_set_up_is_accepted_only_for_a_closed_account(
    installation: Installation,
) -> None:
    close(installation)
    webhook = installation.webhook(b"{}")
    installation.container.psps().pop(FAKE)

    installation.receive_webhook(webhook)
    installation.container.close_account().reopen(ACCOUNT)
    with pytest.raises(ProviderUnavailable):
        installation.receive_webhook(webhook)


def test_a_session_ends_if_it_was_started_while_its_merchant_account_was_closed(
    installation: Installation,
) -> None:
    session = installation.add_card()
    with committed(installation.storage) as unit:
        closed = replace(MerchantStanding.of(ACCOUNT), closed_at=installation.clock.now())
        unit.merchant_standings.put(closed)

    installation.clock.advance(timedelta(days=1))
    installation.reconcile()

    assert installation.session(session.token_id).status is SessionStatus.EXPIRED


def test_closing_a_merchant_account_does_not_change_other_merchant_accounts(
    installation: Installation,
) -> None:
    other = MerchantAccount("harbor")
    installation.configure(merchant_account=other)
    installation.has_guest(a_guest(id=OTHER_GUEST_ID))
    session = installation.opened_session()
    installation.configure()

    close(installation)

    assert installation.session(session.token_id) == session


def test_closing_an_unknown_merchant_account_is_refused(installation: Installation) -> None:
    with pytest.raises(InvalidField):
        installation.container.close_account()(PspAccount(FAKE, MerchantAccount("harbour")))
