from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from adapters.fake_psp.plugin import NAME as FAKE
from adapters.psp_suite.samples import GUEST_ID, NOW, a_uuid
from adapters.sql.repositories.guests import SqlGuests
from adapters.sqlite.storage import SqliteStorage
from domain.cards.discard import Discard
from domain.cards.source import Source
from domain.errors import (
    GuestNotFound,
    InvalidCenterId,
    PaymentConfigurationNotDone,
    PaymentMethodAlreadyExists,
    RedirectUriInvalid,
    Refusal,
    ServiceUnavailable,
)
from domain.guests.guest import Guest
from domain.identifiers import CardToken, TokenId
from domain.psps.hosted_page import (
    Evidence,
    EvidenceOrigin,
    NoCardCollected,
    Outcome,
    PageClosed,
    Pending,
    Prefill,
    PspGuest,
)
from domain.psps.payment_provider import ProviderUnavailable
from domain.sessions.end import Failure, SessionStatus
from domain.sessions.polling import ANSWERED_WITHIN, ASK_AGAIN_AFTER
from domain.sessions.session import CardSession
from tests.builders import CENTER_ID, OTHER_CENTER_ID, a_center, a_session, a_shipped_consent
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
    session = installation.opened_session(source=5)
    installation.type_card(session)
    typed_at = installation.clock.now()
    installation.clock.advance(timedelta(minutes=2))

    done = settled(installation, session)

    assert done.status is SessionStatus.COMPLETED
    account = installation.account(done.account_id)
    assert (account.guest_id, account.center_id) == (GUEST_ID, CENTER_ID)
    assert (account.provider, account.merchant_account) == (FAKE, MERCHANT)
    assert (account.card_logo, account.last_four, account.expiry_on) == ("visa", "4242", "09/31")
    assert account.source is Source.MOBILE
    assert account.token_id == session.token_id
    assert account.created_at == installation.clock.now()
    assert account.consent_version == a_shipped_consent().version
    assert account.consented_at == typed_at
    assert account.token in installation.tokens_at_psp()


# Shows I3.
def test_settling_again_changes_nothing(installation: Installation) -> None:
    session = installation.session_with_card()
    done = settled(installation, session)
    asked = len(installation.provider.calls)

    assert settled(installation, session) == done
    assert len(installation.accounts()) == 1
    assert len(installation.provider.calls) == asked


def test_a_session_may_fail_by_any_refusal() -> None:
    failed = a_session().failed(RedirectUriInvalid(), NOW)

    assert failed.failure == failure_of(RedirectUriInvalid())


def test_a_session_that_is_not_there_cannot_be_settled(installation: Installation) -> None:
    assert installation.settle(TokenId(a_uuid(999))) is None


# Shows F14.
def test_many_at_once_store_the_card_once(installation: Installation) -> None:
    session = installation.session_with_card()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(installation.settle, [session.token_id] * 16))

    assert len(installation.accounts()) == 1
    installation.reconcile()
    assert installation.tokens_at_psp() == {installation.accounts()[0].token}


# Shows F30.
@pytest.mark.parametrize("number", [DECLINED_CARD, CHALLENGED_CARD])
def test_a_refusal_or_a_challenge_on_the_page_leaves_the_session_open(
    installation: Installation, number: str
) -> None:
    session = installation.session_with_card(number)

    assert settled(installation, session).status is SessionStatus.OPEN
    installation.type_card(session, GOOD_CARD)
    assert settled(installation, session).status is SessionStatus.COMPLETED


# Shows I7, F36.
def test_the_same_card_twice_ends_the_second_session(installation: Installation) -> None:
    account = installation.stored_card()
    session = installation.session_with_card()

    done = settled(installation, session)

    assert done.status is SessionStatus.FAILED
    assert done.failure == failure_of(PaymentMethodAlreadyExists())
    assert done.account_id is None
    assert installation.accounts() == (replace(account, due_at=installation.clock.now()),)
    installation.reconcile()
    assert installation.tokens_at_psp() == {account.token}


def test_the_same_card_may_be_stored_at_another_center(installation: Installation) -> None:
    installation.has_center(a_center(id=OTHER_CENTER_ID))
    installation.configure(OTHER_CENTER_ID)
    installation.stored_card()
    installation.stored_card(center_id=OTHER_CENTER_ID)

    assert len(installation.accounts()) == 2


def test_the_same_card_with_a_new_expiry_renews_the_account(installation: Installation) -> None:
    account = installation.stored_card()
    with installation.storage.write() as unit:
        unit.accounts.update(replace(account, consent_version="an earlier one"))
        unit.commit()
    session = installation.opened_session()
    installation.clock.advance(timedelta(minutes=1))
    installation.type_card(session, expiry=(9, 2035))

    done = settled(installation, session)

    assert done.status is SessionStatus.COMPLETED
    assert done.account_id == account.account_id
    (renewed,) = installation.accounts()
    assert renewed.expiry_on == "09/35"
    assert renewed.consent_version == a_shipped_consent().version
    assert renewed.consented_at == installation.clock.now()
    assert renewed.created_at == account.created_at
    installation.reconcile()
    assert installation.tokens_at_psp() == {renewed.token}


def test_a_removed_card_can_be_stored_again(installation: Installation) -> None:
    account = installation.removed_card()

    again = installation.stored_card()

    assert again.account_id != account.account_id
    installation.reconcile()
    assert installation.tokens_at_psp() == {again.token}


def test_a_wrong_postal_code_can_be_corrected_on_the_page(installation: Installation) -> None:
    installation.configure(avs=True)
    session = installation.opened_session(billing_info=ADDRESS)
    installation.type_card(session, zipcode="00000")
    assert settled(installation, session).status is SessionStatus.OPEN

    installation.type_card(session, zipcode="98101")
    assert settled(installation, session).status is SessionStatus.COMPLETED


# Shows F39.
@pytest.mark.parametrize(
    ("gone", "refusal"),
    [
        (("guests",), GuestNotFound()),
        (("payment_configurations",), PaymentConfigurationNotDone()),
        (("payment_configurations", "centers"), InvalidCenterId()),
    ],
)
def test_what_is_gone_meanwhile_gets_no_card(
    installation: Installation, gone: tuple[str, ...], refusal: Refusal
) -> None:
    session = installation.session_with_card()
    for table in gone:
        installation.loses(table)

    assert settled(installation, session).failure == failure_of(refusal)
    installation.reconcile()
    assert installation.tokens_at_psp() == frozenset()


def test_a_session_past_its_end_expires_with_its_page(installation: Installation) -> None:
    session = installation.opened_session()
    installation.clock.advance(timedelta(minutes=30))

    done = settled(installation, session)

    assert done.status is SessionStatus.EXPIRED
    assert installation.psp.page(installation.page_reference(session)).is_over


def test_a_card_typed_to_the_last_second_is_stored(installation: Installation) -> None:
    session = installation.opened_session()
    installation.clock.advance(timedelta(minutes=29, seconds=59))
    installation.type_card(session)
    installation.clock.advance(timedelta(hours=3))

    assert settled(installation, session).status is SessionStatus.COMPLETED


# Shows I3.
def test_a_card_that_turns_up_after_expiry_is_stored_after_all(installation: Installation) -> None:
    session = installation.session_with_card()
    installation.clock.advance(timedelta(minutes=30))
    expired = installation.session(session.token_id).without_card(installation.clock.now())
    installation.put_session(expired)

    assert settled(installation, session).status is SessionStatus.COMPLETED


# Shows I3, F29.
def test_a_refused_card_that_turns_up_after_expiry_leaves_it_expired(
    installation: Installation,
) -> None:
    account = installation.stored_card()
    session = installation.session_with_card()
    installation.clock.advance(timedelta(minutes=30))
    expired = installation.session(session.token_id).without_card(installation.clock.now())
    installation.put_session(expired.due_now(installation.clock.now()))

    done = settled(installation, session)

    assert done.status is SessionStatus.EXPIRED
    assert done.failure is None
    assert done.due_at is None
    installation.reconcile()
    assert installation.tokens_at_psp() == {account.token}


def test_a_psp_that_does_not_answer_is_asked_ever_less_often(
    installation: Installation,
) -> None:
    session = installation.opened_session()
    installation.provider.have(Trouble.BEFORE_IT_ACTED)
    waits = []
    for _ in range(10):
        session = settled(installation, session)
        assert session.due_at is not None
        wait = session.due_at - installation.clock.now()
        waits.append(wait.total_seconds())
        installation.clock.advance(wait)

    assert waits == [30, 30, 60, 120, 240, 480, 960, 1920, 3600, 3600]
    assert session.status is SessionStatus.OPEN
    installation.provider.recover()
    assert settled(installation, session).status is SessionStatus.EXPIRED


def test_an_impatient_guest_does_not_put_the_next_question_off(installation: Installation) -> None:
    session = installation.opened_session()
    installation.provider.have(Trouble.BEFORE_IT_ACTED)
    for _ in range(20):
        installation.return_to_shop(session)

    due_at = installation.session(session.token_id).due_at
    assert due_at == installation.clock.now() + ASK_AGAIN_AFTER


class TestReturnsInQuickSuccession:
    def test_the_worker_settles_what_a_return_could_not(self, installation: Installation) -> None:
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
    @pytest.mark.parametrize("seconds", [0, 28, 29.5, 31, 100])
    def test_a_return_while_a_question_is_under_way_is_not_forgotten(
        self, installation: Installation, seconds: float
    ) -> None:
        # It may be due already, or before the question is over: the first poll is after 30 seconds.
        session = installation.opened_session()
        installation.clock.advance(timedelta(seconds=seconds))

        def type_card_and_return() -> None:
            installation.type_card(session)
            installation.return_to_shop(session)

        installation.provider.meanwhile["outcome"] = type_card_and_return
        installation.return_to_shop(session)
        assert installation.provider.calls == ["start", "outcome"]

        installation.clock.advance(ANSWERED_WITHIN)
        installation.reconcile()

        assert installation.session(session.token_id).status is SessionStatus.COMPLETED

    # Shows S26.
    def test_a_loop_has_the_psp_asked_every_2_seconds(self, installation: Installation) -> None:
        session = installation.opened_session()
        for _ in range(100):
            installation.return_to_shop(session)
            installation.open_page(session)
            installation.reconcile()
            installation.clock.advance(timedelta(seconds=0.1))

        assert installation.provider.calls == ["start", *["outcome"] * 5]

    def test_a_question_of_a_clock_that_was_ahead_keeps_none_from_asking(
        self, installation: Installation
    ) -> None:
        session = installation.opened_session()
        installation.clock.advance(timedelta(minutes=20))
        installation.return_to_shop(session)
        installation.clock.advance(-timedelta(minutes=20))
        installation.type_card(session)

        installation.return_to_shop(session)

        assert installation.session(session.token_id).status is SessionStatus.COMPLETED


def test_an_answer_ends_the_silence(installation: Installation) -> None:
    session = installation.opened_session()
    installation.provider.have(Trouble.BEFORE_IT_ACTED)
    assert settled(installation, session).unanswered_since == installation.clock.now()
    installation.provider.recover()

    assert settled(installation, session).unanswered_since is None


# Shows I4.
def test_an_attempt_without_an_answer_is_resolved_before_the_session_expires(
    installation: Installation,
) -> None:
    session = installation.add_card()
    installation.provider.have(Trouble.AFTER_IT_ACTED, "start")
    with pytest.raises(Exception, match="timed out"):
        installation.open_page(session)
    installation.clock.advance(timedelta(minutes=31))

    still = settled(installation, session)
    assert still.status is SessionStatus.OPEN
    installation.provider.recover()
    assert settled(installation, session).status is SessionStatus.EXPIRED
    assert installation.psp.page(installation.page_reference(session)).is_over


# Shows I7.
def test_a_token_that_is_kept_after_all_is_not_discarded(installation: Installation) -> None:
    session = installation.opened_session()
    token = token_to_discard(installation, session, begun=False)

    assert settled(installation, session).status is SessionStatus.COMPLETED
    with installation.storage.read() as unit:
        assert unit.discards.get(FAKE, MERCHANT, token) is None
    installation.reconcile()
    assert installation.tokens_at_psp() == {token}


def test_a_token_is_not_stored_while_the_psp_is_told_to_discard_it(
    installation: Installation,
) -> None:
    session = installation.opened_session()
    token_to_discard(installation, session, begun=False)
    goes_on_telling(installation, session)
    installation.provider.meanwhile["discard"] = lambda: installation.settle(session.token_id)

    installation.container.discard_token()(take_discard(installation))

    assert installation.accounts() == ()
    assert installation.session(session.token_id).status is SessionStatus.OPEN


def token_to_discard(installation: Installation, session: CardSession, *, begun: bool) -> CardToken:
    """Type a card whose token is to be discarded; return the token."""
    now = installation.clock.now()
    card = installation.type_card(session).card
    assert card is not None
    guest = PspGuest(FAKE, MERCHANT, GUEST_ID, CENTER_ID, Prefill.GUEST)
    with installation.storage.write() as unit:
        reference = unit.guest_references.get(guest)
        assert reference is not None
        unit.discards.add(
            Discard(
                provider=FAKE,
                merchant_account=MERCHANT,
                guest_reference=reference,
                token=card.token,
                due_at=now,
                begun_at=now if begun else None,
            )
        )
        unit.commit()
    return card.token


# Shows F13.
def test_news_that_come_while_the_psp_is_asked_are_not_forgotten(
    installation: Installation,
) -> None:
    session = installation.opened_session()
    installation.provider.meanwhile["outcome"] = lambda: mark_due(installation, session)

    assert settled(installation, session).due_at == installation.clock.now()


def mark_due(installation: Installation, session: CardSession) -> None:
    """Do what a webhook does."""
    with installation.storage.write() as unit:
        current = unit.sessions.get(session.token_id)
        assert current is not None
        unit.sessions.update(current.due_now(installation.clock.now()))
        unit.commit()


def test_news_that_come_while_a_session_expires_are_not_forgotten(
    installation: Installation,
) -> None:
    session = installation.opened_session()
    installation.clock.advance(timedelta(minutes=30))
    installation.provider.meanwhile["close"] = lambda: mark_due(installation, session)

    done = settled(installation, session)

    assert (done.status, done.due_at) == (SessionStatus.EXPIRED, installation.clock.now())
    installation.reconcile()
    assert installation.session(session.token_id).due_at is None


def test_a_card_typed_while_its_page_is_being_closed_is_stored(installation: Installation) -> None:
    session = installation.opened_session()
    installation.clock.advance(timedelta(minutes=29, seconds=59))
    past_its_end = replace(session, expires_at=installation.clock.now())
    installation.put_session(past_its_end)
    installation.provider.meanwhile["outcome"] = lambda: installation.type_card(session)

    assert settled(installation, session).status is SessionStatus.COMPLETED


# Shows I3.
def test_no_settlement_undoes_what_another_did_at_once(installation: Installation) -> None:
    session = installation.session_with_card()
    installation.provider.meanwhile["outcome"] = lambda: installation.settle(session.token_id)

    assert settled(installation, session).status is SessionStatus.COMPLETED
    assert len(installation.accounts()) == 1


# Shows F30.
def test_an_answer_about_an_earlier_page_does_not_touch_the_next(
    installation: Installation,
) -> None:
    session = installation.opened_session()
    installation.psp.close_page(installation.page_reference(session))
    installation.provider.meanwhile["outcome"] = lambda: installation.open_page(session)

    installation.settle(session.token_id)

    attempt = installation.session(session.token_id).current_attempt
    assert (attempt.request.attempt, attempt.over) == (2, False)


def give_another_page(installation: Installation, session: CardSession) -> None:
    """Have the page die, as somebody else was told, and the guest open the link again."""
    seen = installation.session(session.token_id)
    installation.put_session(seen.without_card(installation.clock.now()))
    installation.open_page(session)


def test_a_card_of_an_earlier_page_does_not_end_the_session(
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


def test_refused_cards_of_an_earlier_page_are_counted_beside_those_of_the_next(
    installation: Installation,
) -> None:
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


def test_a_card_of_an_earlier_page_is_discarded_also_when_the_next_has_ended_the_session(
    installation: Installation,
) -> None:
    session = installation.session_with_card()

    def complete_on_another_page() -> None:
        give_another_page(installation, session)
        installation.type_card(session, OTHER_GOOD_CARD)
        assert settled(installation, session).status is SessionStatus.COMPLETED

    installation.provider.meanwhile["outcome"] = complete_on_another_page

    settled(installation, session)
    installation.reconcile()

    (account,) = installation.accounts()
    assert installation.tokens_at_psp() == {account.token}


def test_a_page_that_died_is_asked_for_again_at_the_end_alone(installation: Installation) -> None:
    session = installation.opened_session()
    installation.psp.close_page(installation.page_reference(session))

    over = settled(installation, session)

    assert (over.status, over.due_at) == (SessionStatus.OPEN, session.expires_at)


@pytest.mark.parametrize(
    ("number", "minutes", "status"),
    [
        (OTHER_GOOD_CARD, 1, SessionStatus.COMPLETED),
        (GOOD_CARD, 1, SessionStatus.FAILED),
        (None, 30, SessionStatus.EXPIRED),
    ],
)
def test_an_ended_session_is_not_looked_at_again(
    installation: Installation, number: str | None, minutes: int, status: SessionStatus
) -> None:
    installation.stored_card(GOOD_CARD)
    session = installation.opened_session()
    if number is not None:
        installation.type_card(session, number)
    installation.clock.advance(timedelta(minutes=minutes))

    done = settled(installation, session)

    assert (done.status, done.ended_at) == (status, installation.clock.now())
    assert done.due_at is None


def test_a_page_that_was_closed_brings_no_card_whatever_the_psp_calls_it(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = installation.opened_session()
    installation.clock.advance(timedelta(minutes=30))
    monkeypatch.setattr(installation.provider, "outcome", lambda *_: Pending())

    assert settled(installation, session).status is SessionStatus.EXPIRED
    assert installation.provider.calls[-1] == "close"


# Shows I7.
def test_a_link_that_lives_on_gets_no_other_page_while_a_card_may_be_on_the_last(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    installation.configure(link_minutes=7 * 24 * 60)
    session = installation.opened_session(link_minutes=3 * 24 * 60)
    installation.type_card(session)
    installation.clock.advance(timedelta(hours=25))
    outcome = installation.provider.outcome
    monkeypatch.setattr(installation.provider, "outcome", lambda *_: Pending())

    assert settled(installation, session).status is SessionStatus.OPEN
    with pytest.raises(ProviderUnavailable):
        installation.use_cases.open_hosted_page(token_id=session.token_id, by_click=True)
    monkeypatch.setattr(installation.provider, "outcome", outcome)
    assert settled(installation, session).status is SessionStatus.COMPLETED
    assert len(installation.tokens_at_psp()) == 1


def test_evidence_that_comes_during_a_question_is_there_at_the_next(
    installation: Installation,
) -> None:
    session = installation.opened_session()
    installation.clock.advance(timedelta(minutes=30))
    installation.provider.meanwhile["close"] = lambda: keep_evidence(installation, session)

    installation.settle(session.token_id)

    assert installation.provider.evidence == [(), ("event",)]


def keep_evidence(installation: Installation, session: CardSession) -> None:
    """Do what a webhook does."""
    evidence = Evidence(
        origin=EvidenceOrigin.WEBHOOK, content="event", received_at=installation.clock.now()
    )
    with installation.storage.write() as unit:
        unit.evidence.add(session.token_id, evidence, at_most=50)
        unit.commit()


def collects_no_card(
    installation: Installation, session: CardSession, monkeypatch: pytest.MonkeyPatch
) -> CardToken:
    """Have the PSP hold something that is no card for this session; return its token."""
    page = installation.type_card(session)
    assert page.card is not None
    collected = NoCardCollected(
        guest_reference=page.card.guest_reference,
        token=page.card.token,
        collected_at=installation.clock.now(),
    )

    def once(*_: object) -> Outcome:
        held = page.card is not None and page.card.token in installation.tokens_at_psp()
        return collected if held else PageClosed()

    monkeypatch.setattr(installation.provider, "outcome", once)
    return collected.token


# Shows I7.
def test_what_is_no_card_is_discarded(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = installation.opened_session()
    token = collects_no_card(installation, session, monkeypatch)
    assert token in installation.tokens_at_psp()

    after = settled(installation, session)

    assert after.status is SessionStatus.OPEN
    assert after.current_attempt.over
    installation.reconcile()
    assert installation.tokens_at_psp() == frozenset()
    assert not installation.accounts()


def test_the_link_leads_to_another_page_after_what_is_no_card(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = installation.opened_session()
    collects_no_card(installation, session, monkeypatch)
    settled(installation, session)
    installation.reconcile()
    monkeypatch.undo()

    installation.open_page(session)
    installation.type_card(session)

    assert settled(installation, session).status is SessionStatus.COMPLETED


def test_what_is_no_card_is_discarded_past_the_end_too(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = installation.opened_session()
    collects_no_card(installation, session, monkeypatch)
    installation.clock.advance(timedelta(minutes=30))
    told, asked = [Pending()], installation.provider.outcome
    monkeypatch.setattr(
        installation.provider,
        "outcome",
        lambda *arguments: told.pop() if told else asked(*arguments),
    )

    assert settled(installation, session).status is SessionStatus.EXPIRED
    installation.reconcile()
    assert installation.tokens_at_psp() == frozenset()


def test_evidence_reaches_every_question(installation: Installation) -> None:
    session = installation.opened_session()
    installation.use_cases.return_from_hosted_page(
        token_id=session.token_id, parameters={"result": "abc", "number": "4242424242424242"}
    )
    installation.clock.advance(timedelta(minutes=30))
    installation.settle(session.token_id)

    assert installation.provider.evidence == [('{"result": "abc"}',)] * 3


def test_evidence_without_end_is_not_kept(installation: Installation) -> None:
    session = installation.opened_session()
    longest = "x" * (4_096 - len('{"result": ""}'))
    for result in (longest + "x", longest):
        installation.use_cases.return_from_hosted_page(
            token_id=session.token_id, parameters={"result": result}
        )
        installation.clock.advance(ASK_AGAIN_AFTER)

    assert installation.provider.evidence == [(), (f'{{"result": "{longest}"}}',)]


def test_a_return_without_parameters_is_no_evidence(installation: Installation) -> None:
    session = installation.opened_session()
    installation.return_to_shop(session)

    assert installation.provider.evidence == [()]


def test_the_same_return_is_evidence_once_whatever_the_order_of_its_parameters(
    installation: Installation,
) -> None:
    session = installation.opened_session()
    for names in (("result", "state"), ("state", "result")):
        installation.use_cases.return_from_hosted_page(
            token_id=session.token_id, parameters=dict.fromkeys(names, "abc")
        )
        installation.clock.advance(ASK_AGAIN_AFTER)

    assert installation.provider.evidence == [('{"result": "abc", "state": "abc"}',)] * 2


def test_a_refused_question_is_waited_out_like_silence(installation: Installation) -> None:
    session = installation.opened_session()
    installation.provider.have(Trouble.REFUSED)

    assert settled(installation, session).unanswered_since == installation.clock.now()


def test_a_token_that_is_dead_is_never_stored(installation: Installation) -> None:
    session = installation.opened_session()
    token_to_discard(installation, session, begun=False)
    goes_on_telling(installation, session)
    installation.container.discard_token()(take_discard(installation))

    assert settled(installation, session).status is SessionStatus.OPEN
    assert installation.accounts() == ()
    assert installation.tokens_at_psp() == frozenset()


def test_a_token_that_is_dead_is_not_stored_by_who_comes_next_either(
    installation: Installation,
) -> None:
    session = installation.opened_session()
    token_to_discard(installation, session, begun=False)
    goes_on_telling(installation, session)
    installation.container.discard_token()(take_discard(installation))

    # The token is to be discarded once more, and both come before that is done.
    settled(installation, session)
    died = installation.session(session.token_id)
    with installation.storage.write() as unit:
        attempt = replace(died.current_attempt, over=False)
        unit.sessions.update(replace(died, attempt=attempt))
        unit.commit()

    assert settled(installation, session).status is SessionStatus.OPEN
    assert installation.accounts() == ()


def test_a_token_that_came_to_life_as_it_was_discarded_is_discarded_again(
    installation: Installation,
) -> None:
    session = installation.opened_session()
    # A PSP that gives a card the same token again: by our clock it did so before the discard.
    token = token_to_discard(installation, session, begun=True)
    with installation.storage.write() as unit:
        discard = unit.discards.get(FAKE, MERCHANT, token)
        assert discard is not None
        unit.discards.update(discard.done(installation.clock.now()))
        unit.commit()

    assert settled(installation, session).status is SessionStatus.OPEN
    assert installation.accounts() == ()
    installation.reconcile()
    assert installation.tokens_at_psp() == frozenset()


def test_a_session_that_waits_for_a_discard_goes_on_once_it_is_done(
    installation: Installation,
) -> None:
    session = installation.opened_session()
    token_to_discard(installation, session, begun=True)
    goes_on_telling(installation, session)
    installation.provider.have(Trouble.BEFORE_IT_ACTED, "discard")
    for _ in range(24):
        installation.reconcile()
        installation.clock.advance(timedelta(hours=1))
    # It is not asked for every few seconds, but about as often as the discard is tried.
    assert installation.provider.calls.count("outcome") < 100

    installation.provider.recover()
    installation.clock.advance(timedelta(hours=1))
    installation.reconcile()
    installation.clock.advance(timedelta(hours=1))
    installation.reconcile()

    assert installation.session(session.token_id).status is SessionStatus.EXPIRED
    assert installation.tokens_at_psp() == frozenset()


def goes_on_telling(installation: Installation, session: CardSession) -> None:
    """Have the PSP tell of the session's card for ever, also once it is discarded."""
    provider, attempt = installation.provider, session.current_attempt
    assert attempt.page is not None
    told = provider.outcome(attempt.request, attempt.page, ())

    def tell(*_: object) -> Outcome:
        provider.calls.append("outcome")
        return told

    provider.outcome = tell  # type: ignore[method-assign, assignment]  # to go on telling


def take_discard(installation: Installation) -> Discard:
    taken = installation.container.discard_token().take()
    assert taken is not None
    return taken


def test_a_card_is_not_refused_because_the_storage_goes_away_while_it_is_judged(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = installation.session_with_card()

    def go_away(*_: object) -> Guest | None:
        raise ServiceUnavailable

    with monkeypatch.context() as while_it_is_away:
        while_it_is_away.setattr(SqlGuests, "get", go_away)
        with pytest.raises(ServiceUnavailable):
            installation.settle(session.token_id)

    assert settled(installation, session).status is SessionStatus.COMPLETED


# Shows I8.
def test_the_browser_coming_back_goes_on_without_a_psp(installation: Installation) -> None:
    session = installation.session_with_card()
    installation.provider.have(Trouble.BEFORE_IT_ACTED)

    assert installation.return_to_shop(session) == REDIRECT_URI
    assert installation.session(session.token_id).status is SessionStatus.OPEN
    installation.provider.recover()
    installation.clock.advance(timedelta(seconds=30))
    installation.reconcile()
    assert installation.session(session.token_id).status is SessionStatus.COMPLETED


def test_the_browser_coming_back_goes_on_when_its_psp_is_set_up_no_more(
    installation: Installation,
) -> None:
    session = installation.opened_session()
    installation.container.psps().clear()

    address = installation.use_cases.return_from_hosted_page(
        token_id=session.token_id, parameters={"result": "abc"}
    )

    assert address == REDIRECT_URI
    assert installation.session(session.token_id).unanswered_since == installation.clock.now()


# Shows F3.
def test_the_browser_coming_back_goes_on_while_nothing_can_be_written(tmp_path: Path) -> None:
    installation = Installation(tmp_path, busy_timeout_seconds=0.05)
    session = installation.session_with_card()
    somebody_else = SqliteStorage(installation.database)
    with somebody_else.write():
        address = installation.use_cases.return_from_hosted_page(
            token_id=session.token_id, parameters={"result": "abc"}
        )
        assert installation.session(session.token_id).status is SessionStatus.OPEN

    assert address == REDIRECT_URI
    somebody_else.close()
    installation.clock.advance(timedelta(seconds=30))
    installation.reconcile()
    assert installation.session(session.token_id).status is SessionStatus.COMPLETED
    installation.close()
