"""Cards on file that a bank changes or a PSP no longer finds."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from adapters.fake_psp.psp import BANK_ACTS_AFTER
from adapters.psp_suite.samples import NOW, a_uuid
from domain.cards.account import READ_FIRST_AFTER, READ_LEASE, READINGS_PER_MINUTE, Account
from domain.cards.refresh_account import judge_reading
from domain.cards.refresh_verdict import ReadingVerdict
from domain.cards.unknown_card import MAX_UNKNOWN
from domain.errors import InvalidField
from domain.identifiers import AccountId, CardToken, GuestReference, MerchantAccount, TokenId
from domain.psps.card import Card, CardReading, Funding
from domain.psps.payment_provider import ProviderRefused
from domain.retries import MIN_BACKOFF
from tests.builders import an_account, an_agreement
from tests.databases import committed
from tests.installation import GOOD_CARD, OTHER_GOOD_CARD, Installation, Trouble

MONTH = timedelta(days=30)


@pytest.fixture
def account(installation: Installation) -> Account:
    installation.has_endpoint()
    return installation.stored_card()


def read_after(installation: Installation, wait: timedelta = READ_FIRST_AFTER) -> int:
    installation.clock.advance(wait)
    return installation.read_cards()


def told(installation: Installation) -> list[tuple[str, str | None]]:
    """Return the types and reasons of all events except those about stored cards."""
    events = [each.event for each in reversed(installation.deliveries())]
    return [(each.type, each.reason) for each in events if each.type != "account.stored"]


class TestReissuedCard:
    # Shows I13.
    def test_a_reissued_card_shows_its_new_details_with_the_same_token(
        self, installation: Installation, account: Account
    ) -> None:
        installation.bank_updates(account, OTHER_GOOD_CARD, expiry=(3, 2036))

        assert read_after(installation) == 1

        now = installation.account(account.account_id)
        assert (now.card_logo, now.last_four, now.expiry_on) == ("mastercard", "4444", "03/36")
        assert now.fingerprint != account.fingerprint
        assert (now.token, now.consented_at) == (account.token, account.consented_at)
        assert now.expiry_notice_at == datetime(2036, 3, 1, tzinfo=UTC)
        assert installation.tokens_at_psp() == {account.token}
        read_after(installation, MONTH)
        assert told(installation) == [("account.updated", None)]


class TestUnchangedCard:
    def test_an_unchanged_card_is_refreshed_after_one_day_then_every_30_days(
        self, installation: Installation, account: Account
    ) -> None:
        assert read_after(installation, READ_FIRST_AFTER - MIN_BACKOFF) == 0
        assert read_after(installation, MIN_BACKOFF) == 1
        assert read_after(installation, timedelta(days=26)) == 0
        assert read_after(installation, timedelta(days=4)) == 1
        assert told(installation) == []

    def test_the_psp_is_not_asked_about_a_card_if_the_psp_cannot_report_stored_cards(
        self, installation: Installation, account: Account
    ) -> None:
        refresh = installation.container.refresh_account()
        installation.clock.advance(READ_FIRST_AFTER)
        taken = refresh.take()
        assert taken is not None

        kept = replace(refresh, psps={})(taken)

        assert kept is not None
        assert kept.due_at is not None
        assert kept.due_at > installation.clock.now() + timedelta(days=26)
        assert "read_card" not in installation.provider.calls


class TestCardUnknownToThePsp:
    @pytest.fixture(autouse=True)
    def _identified(self, installation: Installation, account: Account) -> None:
        with committed(installation.storage) as unit:
            unit.merchant_identities.claim(*account.psp_account, "acct_1 test")

    def read_for_days(self, installation: Installation, days: float, *refused: Account) -> None:
        """Refresh the cards every half day while the PSP does not find the `refused` cards."""
        unknown = {account.token for account in refused}
        read_card = installation.psp.read_card

        def read(merchant: MerchantAccount, guest: GuestReference, token: CardToken) -> CardReading:
            if token in unknown:
                raise ProviderRefused
            return read_card(merchant, guest, token)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(installation.psp, "read_card", read)
            self.read_each(installation, days)

    def read_each(self, installation: Installation, days: float) -> None:
        for _ in range(int(days * 2)):
            installation.clock.advance(timedelta(hours=12))
            accounts = installation.accounts()
            with committed(installation.storage) as unit:
                for each in accounts:
                    unit.accounts.update(replace(each, due_at=installation.clock.now()))
            installation.read_cards()

    # Shows I9.
    def test_a_card_is_removed_after_its_psp_has_not_found_it_for_more_than_a_week(
        self, installation: Installation, account: Account
    ) -> None:
        other = installation.stored_card(OTHER_GOOD_CARD)
        assert account.is_default

        self.read_for_days(installation, 7, account)
        assert len(installation.accounts()) == 2
        self.read_for_days(installation, 1, account)

        (left,) = installation.accounts()
        assert (left.account_id, left.is_default) == (other.account_id, True)
        assert told(installation) == [("account.removed", "gone_at_psp")]

    def test_a_card_is_not_removed_if_its_psp_finds_the_card_again_within_a_week(
        self, installation: Installation, account: Account
    ) -> None:
        installation.stored_card(OTHER_GOOD_CARD)

        self.read_for_days(installation, 6, account)
        self.read_for_days(installation, 1)
        self.read_for_days(installation, 6, account)

        assert len(installation.accounts()) == 2

    @pytest.mark.parametrize("is_owner_known", [True, False])
    def test_a_card_that_the_psp_does_not_find_is_kept_while_the_keys_may_be_wrong(
        self, installation: Installation, account: Account, is_owner_known: bool
    ) -> None:
        other = installation.stored_card(OTHER_GOOD_CARD)
        if is_owner_known:
            # Reading the other card fails as well.
            self.read_for_days(installation, 9, account, other)
        else:
            installation.loses("merchant_identities")
            self.read_for_days(installation, 9, account)

        assert len(installation.accounts()) == 2

    def test_many_cards_unknown_to_the_psp_are_kept_until_an_operator_confirms_the_keys(
        self, installation: Installation, account: Account
    ) -> None:
        other = installation.stored_card(OTHER_GOOD_CARD)
        copies = [
            replace(
                account,
                account_id=AccountId(a_uuid(7000 + number)),
                token_id=TokenId(a_uuid(8000 + number)),
                token=CardToken(f"unknown-{number}"),
                fingerprint=f"unknown-{number}",
                is_default=False,
            )
            for number in range(MAX_UNKNOWN + 5)
        ]
        installation.add_accounts(*copies)

        with capture_logs() as lines:
            self.read_for_days(installation, 9, *copies)
        left = len(installation.accounts())
        assert left == 2 + 5
        stopped = [line for line in lines if line["event"] == "unknown_cards_kept"]
        assert [line["account"] for line in stopped] == [account.merchant_account]

        confirm = installation.container.confirm_keys()
        confirm(account.psp_account)
        self.read_for_days(installation, 1, *copies)

        assert {each.account_id for each in installation.accounts()} == {
            account.account_id,
            other.account_id,
        }
        with pytest.raises(InvalidField):
            confirm(account.psp_account)


# Shows I9.
def test_a_card_that_its_psp_has_deleted_is_removed(
    installation: Installation, account: Account
) -> None:
    other = installation.stored_card(OTHER_GOOD_CARD)
    installation.psp.discard(account.merchant_account, account.guest_reference, account.token)

    with capture_logs() as lines:
        read_after(installation)

    assert [(line["reason"], line["account_id"]) for line in lines] == [
        ("gone_at_psp", account.account_id)
    ]
    (left,) = installation.accounts()
    assert (left.account_id, left.is_default) == (other.account_id, True)
    assert told(installation) == [("account.removed", "gone_at_psp")]
    assert read_after(installation, MONTH) == 1


# Shows I2, I7, I9.
@pytest.mark.parametrize("is_later", [False, True])
def test_if_two_accounts_come_to_hold_the_same_card_the_account_with_the_later_consent_remains(
    installation: Installation, account: Account, is_later: bool
) -> None:
    installation.clock.advance(timedelta(minutes=1))
    later = installation.stored_card(OTHER_GOOD_CARD)
    if is_later:
        installation.bank_updates(later, GOOD_CARD)
    else:
        installation.bank_updates(account, OTHER_GOOD_CARD)

    read_after(installation)

    (left,) = installation.accounts()
    assert (left.account_id, left.is_default) == (later.account_id, True)
    removed, updated = ("account.removed", "replaced"), ("account.updated", None)
    assert sorted(told(installation)) == [removed, updated][: 1 + is_later]
    discard = installation.container.discard_token().take()
    assert discard is not None
    installation.container.discard_token()(discard)
    assert installation.tokens_at_psp() == {later.token}


@pytest.mark.parametrize("withdraws_later", [False, True])
def test_an_account_inherits_the_withdrawn_consent_of_an_account_with_the_same_card(
    installation: Installation, account: Account, withdraws_later: bool
) -> None:
    installation.clock.advance(timedelta(minutes=1))
    later = installation.stored_card(OTHER_GOOD_CARD)
    until = installation.clock.now() + timedelta(days=5)
    withdrawn_at = account.consented_at + timedelta(minutes=2 if withdraws_later else 0)
    installation.put_account(replace(account, keep_until=until, withdrawn_at=withdrawn_at))
    with committed(installation.storage) as unit:
        agreement = an_agreement(account_id=account.account_id, kept_until=until)
        unit.agreements.add(agreement)
    installation.bank_updates(later, GOOD_CARD)

    read_after(installation)

    (left,) = installation.accounts()
    assert (left.account_id, left.withdrawn_at) == (later.account_id, withdrawn_at)
    assert left.keep_until == (until if withdraws_later else None)
    with installation.storage.read() as reading:
        assert len(reading.agreements.of_account(later.account_id)) == 1


class TestUnavailablePsp:
    @pytest.mark.parametrize("trouble", [Trouble.BEFORE_IT_ACTED, Trouble.REFUSED])
    def test_the_refresh_of_a_card_is_retried_at_growing_intervals_if_the_psp_fails(
        self, installation: Installation, account: Account, trouble: Trouble
    ) -> None:
        installation.provider.have(trouble, "read_card")

        assert read_after(installation) == 1

        kept = installation.account(account.account_id)
        assert kept.unanswered_since == installation.clock.now()
        assert kept.due_at == installation.clock.now() + MIN_BACKOFF
        installation.provider.recover()
        assert read_after(installation, timedelta(hours=1)) == 1
        assert installation.account(account.account_id).unanswered_since is None

    def test_a_psp_outage_delays_an_expiry_notice_by_at_most_three_days(
        self, installation: Installation, account: Account
    ) -> None:
        def reasons(day: int) -> list[str | None]:
            now = datetime(2031, 9, day, tzinfo=UTC)
            installation.clock.advance(now - installation.clock.now())
            installation.read_cards()
            installation.container.notice_expiry()()
            return [reason for _, reason in told(installation)]

        installation.provider.have(Trouble.BEFORE_IT_ACTED, "read_card")

        assert reasons(1) == []
        assert reasons(2) == []
        assert reasons(3) == ["expires_in_30_days"]


def test_a_process_whose_refresh_was_taken_over_does_not_call_the_psp(
    installation: Installation, account: Account
) -> None:
    refresh = installation.container.refresh_account()
    installation.clock.advance(READ_FIRST_AFTER)
    taken = refresh.take()
    installation.clock.advance(READ_LEASE + timedelta(seconds=1))
    taken_over = refresh.take()
    assert taken is not None
    assert taken_over is not None

    assert refresh(taken) == taken_over
    assert "read_card" not in installation.provider.calls


class TestConcurrentChanges:
    """Changes that happen during the call to the PSP."""

    # Shows I12.
    @pytest.mark.parametrize("is_erased", [True, False])
    def test_a_card_removed_during_its_refresh_stays_removed(
        self, installation: Installation, account: Account, is_erased: bool
    ) -> None:
        def remove() -> None:
            if is_erased:
                installation.erase_guest()
            else:
                installation.remove_card(account)

        installation.bank_updates(account, expiry=(3, 2036))
        installation.provider.meanwhile["read_card"] = remove

        read_after(installation)

        removed = installation.account(account.account_id)
        assert (removed.expiry_on, removed.due_at) == ("09/31", None)
        assert told(installation) == [("account.removed", None)]
        assert read_after(installation, MONTH) == 0

    def test_a_card_renewed_during_its_refresh_keeps_the_details_that_the_guest_typed(
        self, installation: Installation, account: Account
    ) -> None:
        session = installation.session_with_card(expiry=(3, 2036))
        installation.provider.meanwhile["read_card"] = lambda: installation.settle(session.token_id)

        read_after(installation, READ_FIRST_AFTER)

        renewed = installation.account(account.account_id)
        assert (renewed.expiry_on, renewed.token != account.token) == ("03/36", True)
        assert renewed.due_at == installation.clock.now() + READ_FIRST_AFTER

    # Shows I13.
    @pytest.mark.parametrize("ahead", [timedelta(0), timedelta(hours=2)])
    def test_a_slow_refresh_does_not_undo_the_refresh_by_another_process(
        self,
        installation: Installation,
        account: Account,
        monkeypatch: pytest.MonkeyPatch,
        ahead: timedelta,
    ) -> None:
        psps_clock = SimpleNamespace(now=lambda: installation.clock.now() + ahead)
        monkeypatch.setattr(installation.psp, "clock", psps_clock)
        refresh = installation.container.refresh_account()

        def take_over() -> None:
            installation.clock.advance(READ_LEASE + timedelta(seconds=1))
            installation.bank_updates(account, expiry=(3, 2036))
            taken = refresh.take()
            assert taken is not None
            refresh(taken)

        installation.clock.advance(READ_FIRST_AFTER)
        taken = refresh.take()
        assert taken is not None
        installation.provider.meanwhile["read_card"] = take_over
        refresh(taken)

        assert installation.account(account.account_id).expiry_on == "03/36"
        assert told(installation) == [("account.updated", None)]


def test_a_card_that_an_earlier_release_removed_is_not_refreshed(
    installation: Installation, account: Account
) -> None:
    installation.put_account(replace(account, removed_at=NOW, is_default=False))

    assert read_after(installation) == 1

    removed = installation.account(account.account_id)
    assert (removed.due_at, removed.removed_at) == (None, NOW)
    assert "read_card" not in installation.provider.calls


@pytest.mark.parametrize(
    ("lag", "wait"),
    [
        (timedelta(seconds=0), MIN_BACKOFF),
        (timedelta(seconds=1), MIN_BACKOFF),
        (timedelta(hours=2), timedelta(hours=2)),
    ],
)
def test_a_response_that_is_older_than_the_last_refresh_causes_another_refresh(
    lag: timedelta, wait: timedelta
) -> None:
    account = an_account(read_at=NOW)

    verdict = judge_reading(account, [], CardReading(card=None, read_at=NOW - lag), NOW)

    assert verdict == ReadingVerdict(kept=replace(account, due_at=NOW + wait))


def card_of(account: Account, **changes: Any) -> Card:
    card = Card(**{each.name: getattr(account, each.name) for each in fields(Card)})
    return replace(card, **changes)


def test_a_card_collected_while_the_clock_was_ahead_can_still_be_refreshed() -> None:
    account = an_account(consented_at=NOW + MONTH)

    verdict = judge_reading(account, [], CardReading(card=None, read_at=NOW), NOW)

    assert verdict.removed is not None


@pytest.mark.parametrize(("last_four", "is_other"), [("4242", False), ("4444", True)])
def test_a_fingerprint_that_the_psp_omits_is_kept_if_the_last_four_digits_are_equal(
    last_four: str, is_other: bool
) -> None:
    account = an_account(consented_at=NOW - MONTH)
    card = card_of(account, fingerprint=account.token, last_four=last_four)

    verdict = judge_reading(account, [], CardReading(card=card, read_at=NOW), NOW)

    assert verdict.kept is not None
    assert verdict.kept.fingerprint == (account.token if is_other else account.fingerprint)
    assert verdict.is_updated is is_other


def test_a_refresh_that_only_adds_missing_card_details_does_not_send_an_event() -> None:
    account = an_account(consented_at=NOW - MONTH, wallet="apple_pay")
    card = card_of(account, funding=Funding.PREPAID, issuer_country="DE", wallet=None)
    # The PSP's clock is ahead, which must not hide later changes to the card.
    ahead = CardReading(card=card, read_at=NOW + 10 * MONTH)

    verdict = judge_reading(account, [], ahead, NOW)

    kept = verdict.kept
    assert kept is not None
    assert kept.read_at == NOW
    assert (kept.funding, kept.issuer_country, kept.wallet) == (Funding.PREPAID, "DE", "apple_pay")
    assert not verdict.is_updated


@pytest.mark.parametrize(
    ("card_logo", "expected"),
    [("visa", (True, "tr_1", "0123")), ("mastercard", (None, None, None))],
)
def test_a_change_of_brand_clears_what_the_former_bank_confirmed_about_a_card(
    card_logo: str, expected: tuple[bool | None, str | None, str | None]
) -> None:
    account = an_account(
        consented_at=NOW - MONTH,
        card_logo="visa",
        authenticated=True,
        charge_reference="tr_1",
        network_transaction_id="0123",
        funding=Funding.DEBIT,
    )
    card = card_of(account, card_logo=card_logo, last_four="1234", funding=None)

    kept = judge_reading(account, [], CardReading(card=card, read_at=NOW), NOW).kept

    assert kept is not None
    told = (kept.authenticated, kept.charge_reference, kept.network_transaction_id)
    assert told == expected
    # The card has another number, so the facts about the old number may be wrong.
    assert kept.funding is None


def test_the_number_of_card_refreshes_per_minute_is_limited(installation: Installation) -> None:
    now = installation.clock.now()
    installation.add_accounts(
        *(an_account(number, due_at=now) for number in range(READINGS_PER_MINUTE + 5))
    )

    assert read_after(installation, timedelta(0)) == READINGS_PER_MINUTE


class TestWebhook:
    """Some test cards of the fake PSP change 10 seconds after they were stored."""

    @pytest.mark.parametrize(
        ("number", "event"),
        [
            ("4000000000000077", ("account.updated", None)),
            ("4000000000000069", ("account.removed", "gone_at_psp")),
        ],
    )
    def test_a_webhook_about_a_changed_card_schedules_a_refresh(
        self, installation: Installation, number: str, event: tuple[str, str | None]
    ) -> None:
        installation.has_endpoint()
        installation.stored_card(number)
        installation.clock.advance(BANK_ACTS_AFTER)
        for _ in range(2):  # of the page, and of the card
            installation.receive_webhook()

        assert installation.read_cards() == 1
        assert told(installation) == [event]

    def test_a_webhook_about_a_guest_schedules_a_refresh_of_all_cards_of_the_guest(
        self, installation: Installation, account: Account
    ) -> None:
        installation.stored_card(OTHER_GOOD_CARD)
        make_due(installation, account, guest_reference=account.guest_reference)

        assert installation.read_cards() == 2

    def test_a_webhook_that_arrives_during_a_refresh_causes_another_refresh(
        self, installation: Installation, account: Account
    ) -> None:
        installation.provider.meanwhile["read_card"] = lambda: make_due(
            installation, account, token=account.token
        )

        assert read_after(installation) == 2

    def test_a_webhook_about_a_removed_card_does_not_schedule_a_refresh(
        self, installation: Installation, account: Account
    ) -> None:
        installation.remove_card(account)
        make_due(installation, account, token=account.token)

        assert installation.read_cards() == 0


def make_due(
    installation: Installation,
    account: Account,
    *,
    token: CardToken | None = None,
    guest_reference: GuestReference | None = None,
) -> None:
    with committed(installation.storage) as unit:
        unit.accounts.make_due(
            account.psp_account,
            installation.clock.now(),
            token=token,
            guest_reference=guest_reference,
        )
