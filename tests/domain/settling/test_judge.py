from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any, Final

import pytest

from adapters.psp_suite.samples import GUEST_ID, NOW, a_page_request, a_uuid
from domain.billing import AvsResult
from domain.cards.account import READ_FIRST_AFTER, Account
from domain.cards.discard import UnkeptToken
from domain.centers.payment_configuration import CardsPerGuest
from domain.consents.given_consent import GivenConsent
from domain.errors import (
    CenterKeepsOneCard,
    IncorrectBillingAddress,
    PaymentMethodAlreadyExists,
    Refusal,
)
from domain.events.event import CardSummary, EventType
from domain.identifiers import AccountId, AgreementId, CardToken, GuestReference, MerchantAccount
from domain.psps.card import Card
from domain.psps.hosted_page import CardCollected, NoCardCollected, Outcome, PageClosed, Pending
from domain.psps.payment_provider import UNKNOWN_FOR
from domain.sessions.end import Failure, SessionStatus
from domain.sessions.polling import POLL_EVERY
from domain.settling.judge import WAIT_FOR_DISCARD, OnFile, Verdict, judge, judge_card, judge_token
from tests.builders import a_configuration, a_discard, a_session, an_account, an_attempt

NEW_ID: Final = AccountId(a_uuid(900))
NEW_AGREEMENT: Final = AgreementId(a_uuid(901))
LATER: Final = NOW + timedelta(minutes=1)

OPENED: Final = a_session(attempt=an_attempt())
ON_NEXT_PAGE: Final = replace(OPENED, attempt=an_attempt(request=a_page_request(attempt=2)))
SETTLED: Final = OPENED.completed(NEW_ID, NOW)
EXPIRED: Final = replace(OPENED, status=SessionStatus.EXPIRED)

CARD: Final = Card(
    guest_reference=GuestReference("guest-at-psp"),
    token=CardToken("new-token"),
    fingerprint="fingerprint-1",
    card_logo="visa",
    last_four="4242",
    expiry_month=9,
    expiry_year=2035,
)
SUMMARY: Final = CardSummary.of(CARD, authenticated=True)
COLLECTED: Final = CardCollected(
    card=CARD,
    avs=AvsResult.MATCH,
    collected_at=LATER,
    charge_reference="first-payment",
    network_transaction_id="0123",
    authenticated=True,
)
TOKEN: Final = UnkeptToken(
    OPENED.configuration.psp_account, CARD.guest_reference, CARD.token, COLLECTED.collected_at
)
NO_CARD: Final = NoCardCollected(
    guest_reference=CARD.guest_reference, token=CARD.token, collected_at=LATER
)
SAME_CARD: Final = an_account(1)
CONSENT: Final = GivenConsent(
    account_id=SAME_CARD.account_id,
    token_id=OPENED.token_id,
    version="2026-11",
    language="en",
    text=OPENED.current_attempt.request.consent.text,
    agreed_at=COLLECTED.collected_at,
)
OTHER_CARD: Final = an_account(2)

# `changes` is Any: fields of any type, whose names replace() checks.


def on_file(**changes: Any) -> OnFile:
    """Return what is stored for a guest without a card."""
    stored = OnFile(
        accounts=(),
        open_agreements={},
        discard=None,
        has_guest=True,
        has_center=True,
        has_configuration=True,
    )
    return replace(stored, **changes)


def judged(session: Any = OPENED, collected: CardCollected = COLLECTED, **stored: Any) -> Verdict:
    stored_then = on_file(**stored)
    return judge_token(session, collected, stored_then.discard, LATER) or judge_card(
        session, collected, stored_then, account_id=NEW_ID, agreement_ids=[NEW_AGREEMENT], now=LATER
    )


def is_refused(verdict: Verdict, refusal: Refusal, *, existing: Account | None = None) -> bool:
    """Return whether the session failed, its token is discarded, and nothing else happens.

    An existing account is refreshed.
    """
    failure = Failure(code=refusal.code, message=refusal.message, type=refusal.type)
    session = replace(
        OPENED,
        status=SessionStatus.FAILED,
        failure=failure,
        existing_account_id=existing.account_id if existing else None,
        ended_at=LATER,
        due_at=None,
        configuration=verdict.session.configuration,
    )
    doubted = replace(existing, due_at=LATER) if existing else None
    return verdict == Verdict(session=session, doubted=doubted, unkept=TOKEN)


class TestStoringACard:
    def test_a_card_that_is_not_on_file_is_stored_as_a_new_account(self) -> None:
        verdict = judged()

        account = verdict.added
        assert account is not None
        assert asdict(account).items() >= asdict(CARD).items()
        assert (account.account_id, account.token_id) == (NEW_ID, OPENED.token_id)
        assert (account.guest_id, account.center_id) == (GUEST_ID, OPENED.center_id)
        assert (account.consented_at, account.created_at) == (LATER, LATER)
        assert account.psp_account == OPENED.configuration.psp_account
        assert (account.source, account.consent_version) == (OPENED.source, CONSENT.version)
        assert (account.charge_reference, account.authenticated) == ("first-payment", True)
        assert account.network_transaction_id == "0123"
        assert verdict.session == replace(OPENED.completed(NEW_ID, LATER), card=SUMMARY)
        assert (verdict.renewed, verdict.unkept, verdict.withdrawn) == (None, None, None)
        assert list(verdict.account_events) == [(EventType.ACCOUNT_STORED, account)]
        assert verdict.consent == replace(CONSENT, account_id=NEW_ID)

    @pytest.mark.parametrize("has_default", [False, True])
    def test_a_new_card_becomes_the_default_only_if_the_guest_has_no_default_card(
        self, has_default: bool
    ) -> None:
        account = judged(accounts=[replace(OTHER_CARD, is_default=has_default)]).added

        assert account is not None
        assert account.is_default is not has_default

    def test_the_same_card_at_another_merchant_account_is_stored_as_a_new_account(self) -> None:
        elsewhere = replace(SAME_CARD, merchant_account=MerchantAccount("second"))

        assert judged(accounts=[elsewhere]).added is not None


class TestRenewingAnAccount:
    def test_the_same_card_with_a_new_expiry_date_renews_the_account(self) -> None:
        stored = replace(
            SAME_CARD, consent_version="an earlier one", read_at=NOW, unanswered_since=NOW
        )

        verdict = judged(accounts=[OTHER_CARD, stored])

        renewed = replace(
            stored,
            **asdict(CARD),
            consent_version="2026-11",
            consented_at=LATER,
            charge_reference="first-payment",
            network_transaction_id="0123",
            authenticated=True,
            expiry_notice_at=CARD.next_expiry_notice(LATER),
            due_at=LATER + READ_FIRST_AFTER,
            read_at=None,
            unanswered_since=None,
        )
        assert verdict == Verdict(
            session=replace(OPENED.completed(stored.account_id, LATER), card=SUMMARY),
            renewed=renewed,
            consent=CONSENT,
            unkept=UnkeptToken.of(stored),
        )
        assert list(verdict.account_events) == [(EventType.ACCOUNT_RENEWED, renewed)]

    def test_a_guest_limited_to_one_card_can_renew_the_card(self) -> None:
        one = replace(OPENED, configuration=a_configuration(cards_per_guest=CardsPerGuest.ONE))

        assert judged(one, accounts=[SAME_CARD]).renewed is not None

    def test_a_card_is_refused_only_if_its_account_was_renewed_after_the_card_was_typed(
        self,
    ) -> None:
        renewed_since = replace(SAME_CARD, consented_at=LATER + timedelta(seconds=1))

        verdict = judged(accounts=[renewed_since])
        assert is_refused(verdict, PaymentMethodAlreadyExists(), existing=renewed_since)
        # PSPs report the time in seconds, and a guest may correct an expiry date at once.
        assert judged(accounts=[replace(SAME_CARD, consented_at=LATER)]).renewed is not None


class TestRefusingACard:
    def test_a_second_card_is_refused_if_the_center_allows_one_card_per_guest(self) -> None:
        one = replace(OPENED, configuration=a_configuration(cards_per_guest=CardsPerGuest.ONE))

        assert is_refused(judged(one, accounts=[OTHER_CARD]), CenterKeepsOneCard())
        assert judged(OPENED, accounts=[OTHER_CARD]).added is not None

    @pytest.mark.parametrize("avs", [True, False])
    def test_a_wrong_billing_address_is_refused_if_avs_is_on(self, avs: bool) -> None:
        session = replace(OPENED, configuration=a_configuration(avs=avs))
        wrong = replace(COLLECTED, avs=AvsResult.MISMATCH)
        verdict = judged(session, wrong)

        assert is_refused(verdict, IncorrectBillingAddress()) is avs
        assert (verdict.added is None) is avs
        assert judged(session, wrong, accounts=[SAME_CARD]).session.existing_account_id is None

    def test_refusing_a_card_leaves_an_expired_session_expired(self) -> None:
        verdict = judged(EXPIRED, has_guest=False)

        assert verdict == Verdict(session=EXPIRED.postponed(None), unkept=TOKEN)

    @pytest.mark.parametrize(("seconds", "is_stored"), [(-1, False), (0, True)])
    def test_a_card_is_stored_only_if_it_was_typed_before_the_cancellation(
        self, seconds: int, is_stored: bool
    ) -> None:
        cancelled = OPENED.cancelled(LATER + timedelta(seconds=seconds))

        verdict = judged(cancelled)

        assert (verdict.added is not None) is is_stored
        assert verdict.unkept == (None if is_stored else TOKEN)
        expected = SessionStatus.COMPLETED if is_stored else SessionStatus.EXPIRED
        assert verdict.session.status is expected


class TestDiscardedTokens:
    @pytest.mark.parametrize("accounts", [(), (SAME_CARD,)])
    def test_storing_a_card_cancels_a_discard_of_its_token_that_has_not_begun(
        self, accounts: Sequence[Account]
    ) -> None:
        waiting = a_discard(token=CARD.token)

        verdict = judged(discard=waiting, accounts=accounts)

        assert verdict.session.status is SessionStatus.COMPLETED
        assert verdict.withdrawn == waiting

    @pytest.mark.parametrize(
        ("next_try", "waits"),
        [
            (timedelta(0), WAIT_FOR_DISCARD),
            (timedelta(minutes=1), timedelta(minutes=1)),
            (timedelta(hours=1), POLL_EVERY),
        ],
    )
    def test_a_session_waits_until_a_discard_of_its_card_token_is_done(
        self, next_try: timedelta, waits: timedelta
    ) -> None:
        begun = a_discard(token=CARD.token, begun_at=NOW, due_at=LATER + next_try)

        assert judged(discard=begun) == Verdict(session=OPENED.postponed(LATER + waits))

    @pytest.mark.parametrize(("seconds", "is_dead"), [(-1, False), (0, True)])
    def test_a_card_collected_before_a_discard_of_its_token_was_done_is_not_stored(
        self, seconds: int, is_dead: bool
    ) -> None:
        done = a_discard(token=CARD.token).done(LATER + timedelta(seconds=seconds))

        verdict = judged(discard=done)

        if is_dead:
            assert verdict == Verdict(session=OPENED.without_card(LATER), unkept=TOKEN)
        else:
            assert verdict.added is not None
            assert verdict.withdrawn == done


class TestOutcomesWithoutANewCard:
    @pytest.mark.parametrize("outcome", [COLLECTED, NO_CARD])
    @pytest.mark.parametrize(
        "current", [ON_NEXT_PAGE, replace(SETTLED, attempt=ON_NEXT_PAGE.attempt)]
    )
    def test_a_card_from_an_earlier_page_is_discarded(self, outcome: Outcome, current: Any) -> None:
        assert judge(OPENED, current, outcome, LATER) == Verdict(session=current, unkept=TOKEN)

    @pytest.mark.parametrize(
        ("current", "outcome"),
        [
            *((SETTLED, each) for each in (COLLECTED, NO_CARD, PageClosed(), Pending(), None)),
            *((ON_NEXT_PAGE, each) for each in (PageClosed(), Pending(), None)),
        ],
    )
    def test_an_outcome_changes_neither_a_settled_session_nor_the_next_page(
        self, current: Any, outcome: Outcome | None
    ) -> None:
        assert judge(OPENED, current, outcome, LATER) is None

    @pytest.mark.parametrize("outcome", [PageClosed(), Pending(), None])
    def test_an_outcome_is_applied_even_if_the_guest_agrees_in_another_browser_meanwhile(
        self, outcome: Outcome | None
    ) -> None:
        agreed = OPENED.agreed("the secret of another browser", LATER)

        assert judge(OPENED, agreed, outcome, LATER) == judge(agreed, agreed, outcome, LATER)

    # Shows I7.
    def test_a_payment_method_other_than_a_card_ends_the_page_and_is_discarded(self) -> None:
        expected = Verdict(session=OPENED.without_card(LATER), unkept=TOKEN)

        assert judge(OPENED, OPENED, NO_CARD, LATER) == expected

    def test_an_incomplete_card_of_an_expired_session_is_discarded(self) -> None:
        waiting = EXPIRED.page_unknown(LATER)
        incomplete = replace(NO_CARD, missing="expiry")

        verdict = judge(waiting, waiting, incomplete, LATER + UNKNOWN_FOR)

        assert verdict is not None
        assert (verdict.session.status, verdict.unkept) == (SessionStatus.EXPIRED, TOKEN)

    def test_a_page_that_collected_no_card_leaves_no_token_to_discard(self) -> None:
        for outcome, session in (
            (PageClosed(), OPENED.without_card(LATER)),
            (Pending(), OPENED.still_pending(LATER)),
            (None, OPENED.psp_unavailable(LATER)),
        ):
            assert judge(OPENED, OPENED, outcome, LATER) == Verdict(session=session)
