from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest

from adapters.fake_psp.plugin import NAME as FAKE
from adapters.psp_suite.samples import GUEST_ID, a_uuid
from adapters.sqlite.storage import SqliteStorage
from domain.errors import (
    GuestNotFound,
    InvalidCenterId,
    PaymentConfigurationNotDone,
    PaymentMethodAlreadyExists,
    Refusal,
)
from domain.identifiers import CardToken, TokenId
from domain.psps.evidence import Evidence, EvidenceOrigin
from domain.psps.hosted_page import Pending, Prefill, PspGuest
from domain.psps.payment_provider import ProviderUnavailable
from domain.sessions.end import Failure, SessionStatus
from domain.sessions.polling import ANSWERED_WITHIN, ASK_AGAIN_AFTER, Progress
from domain.sessions.session import CardSession
from domain.source import Source
from tests.builders import CENTER_ID, a_discard
from tests.databases import committed
from tests.installation import (
    CHALLENGED_CARD,
    DECLINED_CARD,
    GOOD_CARD,
    MERCHANT,
    OTHER_GOOD_CARD,
    REDIRECT_URI,
    Installation,
    Trouble,
)

ADDRESS = {"address": "1 Main St", "country_code": "US", "zipcode": "98101"}


def failure_of(refusal: Refusal) -> Failure:
    return Failure(code=refusal.code, message=refusal.message, type=refusal.type)


def settled(installation: Installation, session: CardSession) -> CardSession:
    installation.settle(session.token_id)
    return installation.session(session.token_id)


# Shows I5.
def test_a_collected_card_is_stored_for_its_guest(installation: Installation) -> None:
    session = installation.session_with_card(source=5)

    done = settled(installation, session)

    assert done.status is SessionStatus.COMPLETED
    account = installation.account(done.account_id)
    assert (account.guest_id, account.center_id) == (GUEST_ID, CENTER_ID)
    assert (account.last_four, account.source) == ("4242", Source.MOBILE)
    assert installation.tokens_at_psp() == {account.token}


# Shows I3.
def test_settling_a_settled_session_changes_nothing(installation: Installation) -> None:
    session = installation.session_with_card()
    done = settled(installation, session)
    asked = len(installation.provider.calls)

    assert settled(installation, session) == done
    assert len(installation.accounts()) == 1
    assert len(installation.provider.calls) == asked


def test_settling_an_unknown_session_has_no_effect(installation: Installation) -> None:
    assert installation.settle(TokenId(a_uuid(999))) is None


# Shows F14.
def test_settling_a_session_concurrently_stores_the_card_once(installation: Installation) -> None:
    session = installation.session_with_card()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(installation.settle, [session.token_id] * 16))

    assert len(installation.accounts()) == 1
    installation.reconcile()
    assert installation.tokens_at_psp() == {installation.accounts()[0].token}


# Shows F30.
@pytest.mark.parametrize("number", [DECLINED_CARD, CHALLENGED_CARD])
def test_a_session_stays_open_after_a_declined_or_challenged_card(
    installation: Installation, number: str
) -> None:
    session = installation.session_with_card(number)

    assert settled(installation, session).status is SessionStatus.OPEN
    installation.type_card(session, GOOD_CARD)
    assert settled(installation, session).status is SessionStatus.COMPLETED


# Shows I7, F36.
def test_a_session_fails_if_its_card_is_already_on_file(installation: Installation) -> None:
    account = installation.stored_card()
    session = installation.session_with_card()

    done = settled(installation, session)

    assert done.status is SessionStatus.FAILED
    assert done.failure == failure_of(PaymentMethodAlreadyExists())
    assert done.account_id is None
    assert installation.accounts() == (replace(account, due_at=installation.clock.now()),)
    installation.reconcile()
    assert installation.tokens_at_psp() == {account.token}


# Shows F39.
@pytest.mark.parametrize(
    ("gone", "refusal"),
    [
        (("guests",), GuestNotFound()),
        (("payment_configurations",), PaymentConfigurationNotDone()),
        (("payment_configurations", "centers"), InvalidCenterId()),
    ],
)
def test_a_card_is_not_stored_if_its_guest_or_center_was_deleted_meanwhile(
    installation: Installation, gone: tuple[str, ...], refusal: Refusal
) -> None:
    session = installation.session_with_card()
    for table in gone:
        installation.loses(table)

    assert settled(installation, session).failure == failure_of(refusal)
    installation.reconcile()
    assert installation.tokens_at_psp() == frozenset()


class TestReturnsInQuickSuccession:
    def test_the_worker_calls_the_psp_if_a_browser_returned_too_soon(
        self, installation: Installation
    ) -> None:
        session = installation.opened_session()
        installation.return_to_shop(session)
        installation.type_card(session)

        installation.clock.advance(timedelta(seconds=1.9))
        assert installation.return_to_shop(session) == REDIRECT_URI
        installation.reconcile()
        assert installation.accounts() == ()
        installation.clock.advance(timedelta(seconds=0.1))
        installation.reconcile()

        assert installation.session(session.token_id).status is SessionStatus.COMPLETED
        assert installation.provider.calls.count("outcome") == 2

    # Shows S26.
    @pytest.mark.parametrize("seconds", [0, 29.5, 31])
    def test_a_browser_that_returns_during_a_call_to_the_psp_causes_another_call(
        self, installation: Installation, seconds: float
    ) -> None:
        # The first poll is due after 30 seconds: long after this call, during it, or before it.
        session = installation.opened_session()
        installation.clock.advance(timedelta(seconds=seconds))

        installation.provider.meanwhile["outcome"] = partial(
            installation.type_card_and_return, session
        )
        installation.return_to_shop(session)
        assert installation.provider.calls == ["start", "outcome"]

        installation.clock.advance(ANSWERED_WITHIN)
        installation.reconcile()

        assert installation.session(session.token_id).status is SessionStatus.COMPLETED

    # Shows S26.
    def test_a_browser_in_a_loop_causes_few_calls(self, installation: Installation) -> None:
        session = installation.opened_session()
        for _ in range(50):
            installation.return_to_shop(session)
            installation.open_page(session)
            installation.reconcile()
            installation.clock.advance(timedelta(seconds=0.1))

        assert installation.provider.calls == ["start", *["outcome"] * 3]

    def test_a_clock_that_was_ahead_does_not_block_later_calls(
        self, installation: Installation
    ) -> None:
        session = installation.opened_session()
        installation.clock.advance(timedelta(minutes=20))
        installation.return_to_shop(session)
        installation.clock.advance(-timedelta(minutes=20))
        installation.type_card(session)

        installation.return_to_shop(session)

        assert installation.session(session.token_id).status is SessionStatus.COMPLETED


@pytest.mark.parametrize("trouble", [Trouble.BEFORE_IT_ACTED, Trouble.REFUSED])
def test_a_response_from_the_psp_clears_the_start_time_of_its_outage(
    installation: Installation, trouble: Trouble
) -> None:
    session = installation.opened_session()
    installation.provider.have(trouble)
    assert settled(installation, session).unanswered_since == installation.clock.now()
    installation.provider.recover()

    assert settled(installation, session).unanswered_since is None


# Shows I4.
def test_a_session_expires_only_after_the_psp_responded(installation: Installation) -> None:
    session = installation.session_without_answer(Trouble.AFTER_IT_ACTED)
    installation.clock.advance(timedelta(minutes=31))
    installation.provider.have(Trouble.BEFORE_IT_ACTED)
    assert settled(installation, session).status is SessionStatus.OPEN
    installation.provider.recover()
    assert settled(installation, session).status is SessionStatus.EXPIRED
    assert installation.psp.page(installation.page_reference(session)).is_over


# Shows I7.
def test_the_token_of_a_stored_card_is_not_discarded(installation: Installation) -> None:
    session = installation.opened_session()
    token = token_to_discard(installation, session)

    assert settled(installation, session).status is SessionStatus.COMPLETED
    with installation.storage.read() as unit:
        assert unit.discards.get(FAKE, MERCHANT, token) is None
    installation.reconcile()
    assert installation.tokens_at_psp() == {token}


def token_to_discard(installation: Installation, session: CardSession) -> CardToken:
    """Type a card whose token is to be discarded. Return the token."""
    now = installation.clock.now()
    card = installation.type_card(session).card
    assert card is not None
    guest = PspGuest(FAKE, MERCHANT, GUEST_ID, CENTER_ID, Prefill.GUEST)
    with committed(installation.storage) as unit:
        reference = unit.guest_references.get(guest)
        assert reference is not None
        unit.discards.add(
            a_discard(
                merchant_account=MERCHANT, guest_reference=reference, token=card.token, due_at=now
            )
        )
    return card.token


# Shows F13.
@pytest.mark.parametrize(
    ("minutes", "call", "status"),
    [(0, "outcome", SessionStatus.OPEN), (30, "close", SessionStatus.EXPIRED)],
)
def test_a_webhook_that_arrives_during_a_call_to_the_psp_causes_another_call(
    installation: Installation, minutes: int, call: str, status: SessionStatus
) -> None:
    session = installation.opened_session()
    installation.clock.advance(timedelta(minutes=minutes))
    installation.provider.meanwhile[call] = lambda: mark_due(installation, session)

    done = settled(installation, session)

    assert (done.status, done.due_at) == (status, installation.clock.now())


def mark_due(installation: Installation, session: CardSession) -> None:
    """Make the session due, as a webhook does."""
    current = installation.session(session.token_id)
    installation.put_session(current.due_now(installation.clock.now()))


def test_a_card_typed_while_its_page_is_being_closed_is_stored(installation: Installation) -> None:
    session = installation.opened_session()
    installation.clock.advance(timedelta(minutes=29, seconds=59))
    past_its_end = replace(session, expires_at=installation.clock.now())
    installation.put_session(past_its_end)
    installation.provider.meanwhile["outcome"] = lambda: installation.type_card(session)

    assert settled(installation, session).status is SessionStatus.COMPLETED


# Shows I3.
def test_two_processes_that_settle_a_session_store_one_card(installation: Installation) -> None:
    session = installation.session_with_card()
    installation.provider.meanwhile["outcome"] = lambda: installation.settle(session.token_id)

    assert settled(installation, session).status is SessionStatus.COMPLETED
    assert len(installation.accounts()) == 1


def give_another_page(installation: Installation, session: CardSession) -> None:
    """Let another process learn that the page is over, and let the guest open the link again."""
    seen = installation.session(session.token_id)
    installation.put_session(seen.without_card(installation.clock.now()))
    installation.open_page(session)


def test_a_card_from_an_earlier_page_does_not_complete_the_session(
    installation: Installation,
) -> None:
    session = installation.session_with_card()

    installation.provider.meanwhile["outcome"] = lambda: give_another_page(installation, session)

    seen = settled(installation, session)
    installation.reconcile()

    assert (seen.status, seen.current_attempt.request.attempt) == (SessionStatus.OPEN, 2)
    assert not installation.accounts()
    assert installation.tokens_at_psp() == frozenset()
    installation.type_card(session, OTHER_GOOD_CARD)
    assert settled(installation, session).status is SessionStatus.COMPLETED


def test_cards_refused_on_two_pages_of_a_session_are_added(installation: Installation) -> None:
    session = installation.session_with_card(DECLINED_CARD)
    installation.type_card(session)

    def have_a_card_refused_on_the_next_page() -> None:
        give_another_page(installation, session)
        installation.type_card(session, DECLINED_CARD)
        installation.settle(session.token_id)

    installation.provider.meanwhile["outcome"] = have_a_card_refused_on_the_next_page
    installation.settle(session.token_id)

    with installation.storage.read() as unit:
        (center,) = unit.refused_cards.at_centers(
            since=session.created_at - timedelta(days=1), at_least=1
        )
    assert center.refused_cards == 2


def test_a_session_expires_even_if_its_closed_page_is_pending(installation: Installation) -> None:
    session = installation.opened_session()
    installation.clock.advance(timedelta(minutes=30))
    installation.provider.outcome = lambda *_: Pending()

    assert settled(installation, session).status is SessionStatus.EXPIRED
    assert installation.provider.calls[-1] == "close"


# Shows I7.
def test_a_link_does_not_open_a_new_page_while_the_last_page_may_have_a_card(
    installation: Installation,
) -> None:
    installation.configure(link_minutes=7 * 24 * 60)
    session = installation.opened_session(link_minutes=3 * 24 * 60)
    installation.type_card(session)
    installation.clock.advance(timedelta(hours=25))
    outcome = installation.provider.outcome
    installation.provider.outcome = lambda *_: Pending()

    assert settled(installation, session).status is SessionStatus.OPEN
    with pytest.raises(ProviderUnavailable):
        installation.use_cases.open_hosted_page(key=session.link_key, by_click=True)
    installation.provider.outcome = outcome
    assert settled(installation, session).status is SessionStatus.COMPLETED
    assert len(installation.tokens_at_psp()) == 1


def test_evidence_that_arrives_during_a_call_is_passed_to_the_next_call(
    installation: Installation,
) -> None:
    session = installation.opened_session()
    installation.clock.advance(timedelta(minutes=30))
    installation.provider.meanwhile["close"] = lambda: keep_evidence(installation, session)

    installation.settle(session.token_id)

    assert installation.provider.evidence == [(), ("event",)]


def keep_evidence(installation: Installation, session: CardSession) -> None:
    """Store evidence of the session, as a webhook does."""
    evidence = Evidence(
        origin=EvidenceOrigin.WEBHOOK, content="event", received_at=installation.clock.now()
    )
    with committed(installation.storage) as unit:
        unit.evidence.add(session.token_id, evidence, at_most=50)


LONGEST = "x" * (4_096 - len('{"result": ""}'))


@pytest.mark.parametrize(
    ("returns", "passed"),
    [
        ([{}, {"result": "abc", "number": GOOD_CARD}], [(), ('{"result": "abc"}',)]),
        ([{"result": LONGEST + "x"}, {"result": LONGEST}], [(), (f'{{"result": "{LONGEST}"}}',)]),
        (
            [{"result": "abc", "state": "x"}, {"state": "x", "result": "abc"}],
            [('{"result": "abc", "state": "x"}',)] * 2,
        ),
    ],
    ids=["an unknown parameter", "too long", "in another order"],
)
def test_each_call_about_an_outcome_passes_the_stored_evidence(
    installation: Installation, returns: list[dict[str, str]], passed: list[tuple[str, ...]]
) -> None:
    session = installation.opened_session()
    for parameters in returns:
        installation.return_to_shop(session, **parameters)
        installation.clock.advance(ASK_AGAIN_AFTER)
    installation.clock.advance(timedelta(minutes=30))
    installation.settle(session.token_id)

    assert installation.provider.evidence == [*passed, passed[-1], passed[-1]]


def test_a_discarded_token_is_never_stored(installation: Installation) -> None:
    session = installation.opened_session()
    token_to_discard(installation, session)
    attempt = session.current_attempt
    assert attempt.page is not None
    collected = installation.provider.outcome(attempt.request, attempt.page, ())
    # This PSP reports a card even after it was discarded.
    installation.provider.outcome = lambda *_: collected
    discard = installation.container.discard_token().take()
    assert discard is not None
    installation.container.discard_token()(discard)

    assert settled(installation, session).status is SessionStatus.OPEN
    assert installation.accounts() == ()
    assert installation.tokens_at_psp() == frozenset()


# Shows I8.
def test_a_returning_browser_is_redirected_during_a_psp_outage(installation: Installation) -> None:
    session = installation.session_with_card()
    installation.provider.have(Trouble.BEFORE_IT_ACTED)

    assert installation.return_to_shop(session) == REDIRECT_URI
    waiting = installation.session(session.token_id)
    assert (waiting.status, waiting.progress) == (SessionStatus.OPEN, Progress.RETURNED)
    installation.provider.recover()
    installation.clock.advance(timedelta(seconds=30))
    installation.reconcile()
    assert installation.session(session.token_id).status is SessionStatus.COMPLETED


# Shows F3.
@pytest.mark.installed(busy_timeout_seconds=0.05)
def test_a_returning_browser_is_redirected_even_if_the_database_is_unavailable(
    installation: Installation,
) -> None:
    session = installation.session_with_card()
    somebody_else = SqliteStorage(installation.database)
    with somebody_else.write():
        address = installation.return_to_shop(session, result="abc")
        assert installation.session(session.token_id).status is SessionStatus.OPEN

    assert address == REDIRECT_URI
    somebody_else.close()
    installation.clock.advance(timedelta(seconds=30))
    installation.reconcile()
    assert installation.session(session.token_id).status is SessionStatus.COMPLETED
