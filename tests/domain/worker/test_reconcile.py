from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from adapters.psp.contract.clock import START
from adapters.psp.contract.samples import GUEST_ID
from adapters.sql.repositories.repository import MAX_FORGOTTEN
from adapters.sql.repositories.sessions import SqlIdempotencyKeys
from domain.cards.discard import Discard
from domain.errors import ServiceUnavailable
from domain.events.event import DeliveryStatus
from domain.sessions.session import SessionStatus, next_poll_at
from tests.builders import a_discard, an_event_delivery
from tests.databases import change_by_hand
from tests.installation import GOOD_CARD, OTHER_GOOD_CARD, Installation, Trouble


# Shows F28, F31.
def test_a_card_is_stored_when_neither_browser_nor_webhook_comes(
    installation: Installation,
) -> None:
    session = installation.session_with_card()
    installation.clock.advance(timedelta(seconds=30))

    assert installation.reconcile().jobs["sessions"] == 1
    assert installation.session(session.token_id).status is SessionStatus.COMPLETED


# Shows F37.
def test_an_unopened_link_expires_without_a_call_to_the_psp(installation: Installation) -> None:
    session = installation.add_card()
    installation.clock.advance(timedelta(minutes=30))
    installation.reconcile_until_idle()

    assert installation.session(session.token_id).status is SessionStatus.EXPIRED
    assert installation.provider.calls == []


def test_a_round_with_a_session_or_a_discard_alone_was_not_idle(
    installation: Installation,
) -> None:
    account = installation.stored_card()
    installation.opened_session()
    installation.clock.advance(timedelta(seconds=30))
    one_session = installation.reconcile()
    installation.use_cases.remove_account(
        installation.caller, guest_id=GUEST_ID, account_id=account.account_id
    )
    one_discard = installation.reconcile()

    assert (one_session.jobs, one_session.is_idle) == (Counter(sessions=1), False)
    assert (one_discard.jobs, one_discard.is_idle) == (Counter(discards=1), False)


def test_nothing_is_asked_before_it_is_due(installation: Installation) -> None:
    installation.opened_session()
    installation.clock.advance(timedelta(seconds=29))

    assert installation.reconcile().is_idle


@pytest.mark.parametrize(
    ("passed_seconds", "next_seconds"),
    [
        *[(0, 30), (29, 30), (30, 120), (119, 120), (120, 600), (600, 1200), (1199, 1200)],
        (1200, 1800),
        # The clock was a day ahead when the page was opened.
        (-86_400, 600 - 86_400),
    ],
)
def test_questions_follow_the_schedule(passed_seconds: int, next_seconds: int) -> None:
    now = START + timedelta(seconds=passed_seconds)

    assert next_poll_at(START, now) == START + timedelta(seconds=next_seconds)


# Shows I4, F37.
def test_an_abandoned_page_is_asked_for_on_schedule(installation: Installation) -> None:
    session = installation.opened_session()
    asked_at = []
    for _ in range(190):  # of ten seconds each: the session's half an hour, and a little
        before = len(installation.provider.calls)
        installation.reconcile_until_idle()
        if len(installation.provider.calls) > before:
            asked_at.append(int((installation.clock.now() - START).total_seconds()))
        installation.clock.advance(timedelta(seconds=10))

    assert asked_at == [30, 120, 600, 1200, 1800]
    assert installation.session(session.token_id).status is SessionStatus.EXPIRED
    assert installation.provider.calls[-3:] == ["outcome", "close", "outcome"]


# Shows F23.
def test_one_session_that_stumbles_stops_no_other(installation: Installation) -> None:
    poison, good = installation.opened_session(), installation.opened_session()
    installation.type_card(good)
    with installation.storage.write() as unit:
        unit.sessions.update(poison.due_now(installation.clock.now() - timedelta(days=1)))
        unit.sessions.update(good.due_now(installation.clock.now()))
        unit.commit()
    asked = installation.provider.outcome

    def stumble(*arguments: object) -> object:
        if arguments[1] == poison.current_attempt.page:
            raise ZeroDivisionError
        return asked(*arguments)  # type: ignore[arg-type]  # passed on as they came

    installation.provider.outcome = stumble  # type: ignore[method-assign, assignment]  # to stumble

    done = installation.reconcile()

    assert [type(fault) for fault in done.faults] == [ZeroDivisionError]
    assert installation.session(good.token_id).status is SessionStatus.COMPLETED


# Shows F6.
def test_work_that_a_dead_process_took_is_given_back(installation: Installation) -> None:
    installation.session_with_card()
    installation.clock.advance(timedelta(seconds=30))
    now = installation.clock.now()
    with installation.storage.write() as unit:
        assert unit.sessions.take_due(now, until=now + timedelta(minutes=1)) is not None
        unit.commit()

    assert installation.reconcile().is_idle
    installation.clock.advance(timedelta(minutes=1))
    assert installation.reconcile().jobs["sessions"] == 1


# Shows F5.
def test_a_discard_is_tried_until_the_psp_answers(installation: Installation) -> None:
    installation.removed_card()
    installation.provider.have(Trouble.AFTER_IT_ACTED)
    installation.reconcile_until_idle()
    installation.clock.advance(timedelta(seconds=29))
    assert installation.reconcile().is_idle

    installation.provider.recover()
    installation.clock.advance(timedelta(seconds=1))
    assert installation.reconcile().jobs["discards"] == 1
    assert installation.tokens_at_psp() == frozenset()
    assert installation.reconcile().is_idle


def test_a_psp_that_is_silent_for_a_day_is_told_of(installation: Installation) -> None:
    installation.opened_session()
    installation.provider.have(Trouble.BEFORE_IT_ACTED)
    silent = []
    for _ in range(26):
        installation.clock.advance(timedelta(hours=1))
        silent.append(installation.reconcile().silent)

    assert silent[0] == 0
    assert silent[-1] == 1


def test_all_work_of_a_round_is_counted(installation: Installation) -> None:
    for number in (GOOD_CARD, OTHER_GOOD_CARD):
        installation.removed_card(number)
        installation.opened_session()
    installation.provider.have(Trouble.BEFORE_IT_ACTED)
    rounds = []
    for _ in range(26):
        installation.clock.advance(timedelta(hours=1))
        rounds.append(installation.reconcile())

    last = rounds[-1]
    assert (last.jobs["sessions"], last.jobs["discards"], last.silent) == (2, 2, 4)


def test_a_psp_that_is_no_longer_set_up_is_waited_for(installation: Installation) -> None:
    session = installation.opened_session()
    installation.container.worker_psps().clear()
    installation.clock.advance(timedelta(seconds=30))

    assert installation.reconcile().faults == []
    assert installation.session(session.token_id).unanswered_since is not None


def test_a_discard_that_the_psp_refuses_is_told_of_after_a_day(installation: Installation) -> None:
    installation.removed_card()
    installation.provider.have(Trouble.REFUSED)
    silent = []
    for _ in range(26):
        silent.append(installation.reconcile().silent)
        installation.clock.advance(timedelta(hours=1))

    assert (silent[0], silent[-1]) == (0, 1)


# Shows F32.
def test_a_row_that_cannot_be_read_stops_nothing_else(installation: Installation) -> None:
    broken, good = installation.opened_session(), installation.opened_session()
    installation.type_card(good)
    change_by_hand(
        installation.storage,
        "UPDATE card_sessions SET configuration = '{}' WHERE token_id = :token_id",
        token_id=broken.token_id,
    )
    installation.clock.advance(timedelta(seconds=30))

    done = installation.reconcile()

    assert len(done.faults) == 1
    assert installation.session(good.token_id).status is SessionStatus.COMPLETED


# Shows F46.
def test_a_discard_that_cannot_be_read_stops_no_other(installation: Installation) -> None:
    broken = installation.removed_card()
    installation.clock.advance(timedelta(seconds=1))
    installation.removed_card(OTHER_GOOD_CARD)
    change_by_hand(
        installation.storage,
        "UPDATE discards SET unanswered_since = 'soon' WHERE token = :token",
        token=broken.token,
    )

    installation.reconcile_until_idle()

    assert installation.tokens_at_psp() == {broken.token}


def test_a_discard_that_stumbles_stops_nothing_else(installation: Installation) -> None:
    installation.removed_card()
    session = installation.session_with_card()
    installation.clock.advance(timedelta(seconds=30))
    installation.provider.meanwhile["discard"] = lambda: 1 // 0

    done = installation.reconcile()

    assert [type(fault) for fault in done.faults] == [ZeroDivisionError]
    assert installation.session(session.token_id).status is SessionStatus.COMPLETED


def test_a_round_takes_up_a_hundred_sessions_at_most(
    installation: Installation,
) -> None:
    for _ in range(101):
        installation.add_card()
    installation.clock.advance(timedelta(minutes=30))

    assert [installation.reconcile().jobs["sessions"] for _ in range(3)] == [100, 1, 0]


# Shows I7.
def test_a_token_that_an_active_account_holds_is_not_discarded(installation: Installation) -> None:
    account = installation.stored_card()
    with installation.storage.write() as unit:
        unit.discards.add(
            Discard(
                provider=account.provider,
                merchant_account=account.merchant_account,
                guest_reference=account.guest_reference,
                token=account.token,
                due_at=installation.clock.now(),
            )
        )
        unit.commit()

    installation.reconcile()

    assert installation.tokens_at_psp() == {account.token}


def test_a_discard_that_somebody_else_took_over_is_left_to_them(
    installation: Installation,
) -> None:
    installation.removed_card()
    mine = installation.reconcile.discard_token.take()
    installation.clock.advance(timedelta(minutes=2))
    theirs = installation.reconcile.discard_token.take()
    assert mine is not None
    assert theirs is not None
    assert theirs.begun_at == mine.begun_at

    installation.reconcile.discard_token(mine)

    assert installation.provider.calls.count("discard") == 0
    installation.reconcile.discard_token(theirs)
    assert installation.tokens_at_psp() == frozenset()


def test_idempotency_keys_are_forgotten_after_a_day(installation: Installation) -> None:
    first = installation.add_card(idempotency_key="key")
    installation.clock.advance(timedelta(hours=24, seconds=1))
    installation.container.forget_old_records()()

    with installation.storage.read() as unit:
        earlier = first.created_at - timedelta(days=1)
        assert unit.idempotency_keys.get(installation.caller.name, "key", since=earlier) is None


def test_many_idempotency_keys_are_forgotten_a_few_at_a_time(installation: Installation) -> None:
    now = installation.clock.now()
    token_id = installation.add_card().token_id
    with installation.storage.write() as unit:
        for number in range(MAX_FORGOTTEN + 1):
            unit.idempotency_keys.claim(
                installation.caller.name, f"key-{number}", token_id, now=now, since=now
            )
        unit.commit()
    installation.clock.advance(timedelta(hours=25))

    forget = installation.container.forget_old_records()
    assert [forget(), forget(), forget()] == [True, True, False]
    with installation.storage.write() as unit:
        assert unit.idempotency_keys.forget(before=installation.clock.now()) == 0


def test_deliveries_are_forgotten_also_while_keys_cannot_be(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise ServiceUnavailable

    with installation.storage.write() as unit:
        unit.event_deliveries.add(an_event_delivery(status=DeliveryStatus.DELIVERED, due_at=None))
        unit.commit()
    installation.clock.advance(timedelta(days=31))
    monkeypatch.setattr(SqlIdempotencyKeys, "forget", refuse)

    with pytest.raises(ServiceUnavailable):
        installation.container.forget_old_records()()

    with installation.storage.read() as left:
        assert left.event_deliveries.latest(limit=1, only_failed=False) == ()


def test_removed_cards_do_not_wait_for_all_sessions(installation: Installation) -> None:
    for _ in range(3):
        installation.opened_session()
    installation.clock.advance(timedelta(seconds=30))
    with installation.storage.write() as unit:
        unit.discards.add(a_discard(due_at=installation.clock.now()))
        unit.commit()
    installation.provider.calls.clear()

    installation.reconcile()

    assert installation.provider.calls.index("discard") <= 1


def test_idempotency_keys_are_known_until_then(installation: Installation) -> None:
    first = installation.add_card(idempotency_key="key")
    installation.clock.advance(timedelta(hours=24))
    installation.container.forget_old_records()()

    with installation.storage.read() as unit:
        earlier = first.created_at - timedelta(days=1)
        known = unit.idempotency_keys.get(installation.caller.name, "key", since=earlier)
    assert known == first.token_id


def test_work_that_the_storage_keeps_from_being_done_ends_its_kind_only(
    installation: Installation,
) -> None:
    installation.removed_card()
    for _ in range(2):
        installation.opened_session()
    installation.clock.advance(timedelta(seconds=30))

    def go_away() -> None:
        raise ServiceUnavailable

    installation.provider.meanwhile["outcome"] = go_away

    done = installation.reconcile()
    assert (done.jobs["sessions"], done.jobs["discards"]) == (0, 1)
    assert isinstance(done.unavailable, ServiceUnavailable)

    # The other session is done in the next round, the first one after its lease.
    assert installation.reconcile().jobs["sessions"] == 1
    assert installation.reconcile().is_idle
    installation.clock.advance(timedelta(minutes=1))
    assert installation.reconcile().jobs["sessions"] == 1


def test_the_last_question_comes_at_the_end_of_the_session(installation: Installation) -> None:
    installation.configure(session_minutes=125)
    session = installation.opened_session()
    installation.clock.advance(timedelta(minutes=121))
    installation.reconcile_until_idle()

    assert installation.session(session.token_id).due_at == session.expires_at


# Shows F40.
def test_an_expired_session_stays_past_its_end_when_the_clock_is_set_back(
    installation: Installation,
) -> None:
    session = installation.opened_session()
    installation.clock.advance(timedelta(minutes=30))
    installation.reconcile_until_idle()
    expired = installation.session(session.token_id)
    installation.clock.advance(timedelta(minutes=-20))

    assert expired.is_past_end(installation.clock.now())
