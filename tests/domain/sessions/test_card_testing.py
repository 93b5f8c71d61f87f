"""Limits against card testing: what they count and refuse, and which centers are reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from adapters.psp_suite.samples import GUEST_ID, OTHER_GUEST_ID, a_uuid
from domain.centers.card_limit import CountedPer
from domain.errors import CardLimitReached, GuestNotFound
from domain.hosted_payments.link import ClickNeeded, LinkPaused
from domain.identifiers import CallerName, GuestId
from domain.permissions import Caller, Permission
from domain.sessions.end import SessionStatus
from domain.sessions.refused_card import CardsAtCenter
from domain.sessions.session import CardSession
from tests.builders import CENTER_ID, OTHER_CENTER_ID, a_guest
from tests.installation import (
    CHALLENGED_CARD,
    DECLINED_CARD,
    MISMATCHING_CARD,
    Installation,
    Trouble,
)

DAY = timedelta(hours=24)
MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
KIOSK = Caller(name=CallerName("kiosk"), permissions=frozenset(Permission))


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Callable[[str], Installation]]:
    """Return a function that creates an installation with two guests, two centers and limits."""
    made: list[Installation] = []

    def make(limits: str) -> Installation:
        installed = Installation(tmp_path, CARDONFILE_CARD_TESTING_LIMITS=limits)
        made.append(installed)
        installed.has_guest(a_guest(id=OTHER_GUEST_ID))
        installed.has_other_center()
        return installed

    yield make
    for each in made:
        each.close()


Limited = Callable[[str], Installation]


def only(limit: str) -> str:
    """Return a setting in which this limit is on and all others are off."""
    name = limit.partition("=")[0]
    return ",".join([limit, *(f"{each}=off/off" for each in CountedPer if each != name)])


@contextmanager
def refused(counted: str, of: str, wait: timedelta) -> Iterator[None]:
    with pytest.raises(CardLimitReached) as reached:
        yield
    assert (reached.value.counted, reached.value.of) == (counted, of)
    assert reached.value.retry_after_seconds == wait.total_seconds()


def refusal_codes(installation: Installation, session: CardSession) -> list[str | None]:
    """Return the codes of a session's refused cards. A refusal by our rules comes first."""
    with installation.storage.read() as unit:
        return [card.code for card in unit.refused_cards.of(session.token_id)]


def sessions_and_refused_cards(installation: Installation) -> tuple[int, int]:
    """Count the sessions and refused cards of the center in the last 24 hours.

    Both counts are 0 if the center has no refused cards, because it is then not listed.
    """
    with installation.storage.read() as unit:
        found = unit.refused_cards.at_centers(since=installation.clock.now() - DAY, at_least=1)
    return (found[0].sessions, found[0].refused_cards) if found else (0, 0)


# Shows S23.
def test_the_eleventh_session_of_a_guest_in_a_day_is_refused(limited: Limited) -> None:
    installation = limited("")
    for _ in range(10):
        installation.add_card()
        installation.clock.advance(MINUTE)

    with refused("sessions per guest", GUEST_ID, DAY - 10 * MINUTE):
        installation.add_card(KIOSK)
    installation.add_card(guest_id=OTHER_GUEST_ID)

    # At the time that the response stated, the first session no longer counts. The refused request
    # never counted.
    installation.clock.advance(DAY - 10 * MINUTE - SECOND)
    with refused("sessions per guest", GUEST_ID, SECOND):
        installation.add_card()
    installation.clock.advance(SECOND)
    installation.add_card()
    with refused("sessions per guest", GUEST_ID, MINUTE):
        installation.add_card()


# Shows S23, S27.
@pytest.mark.parametrize(
    ("limit", "counted", "free"),
    [
        ("guest=2/off", "sessions per guest", {"guest", "center"}),
        ("guest=off/2", "refused cards per guest", {"guest", "center"}),
        ("guest-everywhere=2/off", "sessions per guest-everywhere", {"guest"}),
        ("guest-everywhere=off/2", "refused cards per guest-everywhere", {"guest"}),
        ("caller=2/off", "sessions per caller", {"caller"}),
        ("caller=off/2", "refused cards per caller", {"caller"}),
        ("center=2/off", "sessions per center", {"guest", "center"}),
        ("center=off/2", "refused cards per center", {"guest", "center"}),
    ],
)
def test_reaching_a_limit_stops_only_sessions_of_that_guest_caller_or_center(
    limited: Limited, limit: str, counted: str, free: set[str]
) -> None:
    installation = limited(only(limit))
    add = installation.add_card
    others: dict[str, Callable[[], CardSession]] = {
        "guest": lambda: add(guest_id=OTHER_GUEST_ID),
        "caller": lambda: add(KIOSK),
        "center": lambda: add(center_id=OTHER_CENTER_ID),
    }
    for _ in range(2):
        installation.returned_session(DECLINED_CARD)
    whose = {"caller": installation.caller.name, "center": CENTER_ID}
    of = whose.get(limit.partition("=")[0], GUEST_ID)

    with refused(counted, of, DAY):
        add()
    for name, add_of_another in others.items():
        if name in free:
            add_of_another()
        else:
            with refused(counted, of, DAY):
                add_of_another()

    installation.clock.advance(DAY)
    add()


def test_repeating_an_add_card_request_does_not_count_towards_a_limit(limited: Limited) -> None:
    installation = limited("guest=2/off")
    first = installation.add_card(idempotency_key="key")
    assert installation.add_card(idempotency_key="key") == first
    installation.add_card()

    assert installation.add_card(idempotency_key="key") == first
    with refused("sessions per guest", GUEST_ID, DAY):
        installation.add_card(idempotency_key="another")


def test_an_invalid_request_is_invalid_even_if_a_limit_is_reached(limited: Limited) -> None:
    installation = limited("caller=1/off")
    installation.add_card()
    with pytest.raises(GuestNotFound):
        installation.add_card(guest_id=GuestId(a_uuid(999)))


def test_a_refusal_states_how_long_to_wait_until_no_limit_is_reached(limited: Limited) -> None:
    installation = limited("guest=1/off,center=2/off")
    installation.add_card(guest_id=OTHER_GUEST_ID)
    installation.clock.advance(MINUTE)
    installation.add_card()

    with refused("sessions per guest", GUEST_ID, DAY):
        installation.add_card()


# Shows S23.
def test_each_card_that_was_refused_on_a_page_is_counted_once(installation: Installation) -> None:
    session = installation.opened_session()
    for number, counted in ((DECLINED_CARD, 1), (DECLINED_CARD, 2), ("4242424242424241", 3)):
        installation.type_card(session, number)
        for _ in range(2):
            installation.settle(session.token_id)
            assert sessions_and_refused_cards(installation) == (1, counted)

    installation.type_card(session, CHALLENGED_CARD)
    installation.settle(session.token_id)
    assert sessions_and_refused_cards(installation) == (1, 3)
    assert refusal_codes(installation, session) == ["declined", "declined", "unpublished"]


def test_cards_refused_before_a_card_was_accepted_are_counted(installation: Installation) -> None:
    session = installation.session_with_card(DECLINED_CARD)
    installation.type_card(session, CHALLENGED_CARD)
    installation.psp.answer_challenge(installation.page_reference(session), confirmed=False)
    installation.type_card_and_return(session)

    assert installation.session(session.token_id).status is SessionStatus.COMPLETED
    assert sessions_and_refused_cards(installation) == (1, 2)
    # The PSP reports only the code of the last card.
    assert refusal_codes(installation, session) == [None, "challenge_failed"]


def test_cards_refused_on_a_page_that_then_expires_are_counted(installation: Installation) -> None:
    session = installation.session_with_card(DECLINED_CARD)
    installation.clock.advance(MINUTE * 30)
    installation.reconcile()

    assert installation.session(session.token_id).status is SessionStatus.EXPIRED
    assert sessions_and_refused_cards(installation) == (1, 1)


def test_a_card_that_our_rules_refuse_is_counted_once(installation: Installation) -> None:
    installation.configure(avs=True)
    address = {"address": "1 Main St", "country_code": "US", "zipcode": "98101"}
    session = installation.session_with_card(DECLINED_CARD, billing_info=address)
    installation.type_card(session, MISMATCHING_CARD)
    for _ in range(2):
        installation.settle(session.token_id)

    assert installation.session(session.token_id).status is SessionStatus.FAILED
    assert sessions_and_refused_cards(installation) == (1, 2)
    assert refusal_codes(installation, session) == [None, "declined"]


# Shows S23.
def test_concurrent_requests_do_not_exceed_the_limit_on_sessions(limited: Limited) -> None:
    installation = limited("guest=1/off")
    # Neither request finds a session. The other request is the first to store its session.
    installation.before_next_write(lambda: installation.add_card(idempotency_key="other"))
    with refused("sessions per guest", GUEST_ID, DAY):
        installation.add_card(idempotency_key="key")

    installation.clock.advance(DAY)
    installation.add_card(idempotency_key="key")


def has_refused(installation: Installation, session: CardSession, cards: int) -> None:
    """Let the bank refuse cards on the session's page, and settle the session."""
    for _ in range(cards):
        installation.type_card(session, DECLINED_CARD)
    installation.settle(session.token_id)


def is_page_open(installation: Installation, session: CardSession) -> bool:
    return not installation.psp.page(installation.page_reference(session)).is_over


@pytest.mark.parametrize(
    ("limit", "of_another"),
    [
        ("guest=off/3", {"guest_id": OTHER_GUEST_ID}),
        ("guest=off/3", {"center_id": OTHER_CENTER_ID}),
        ("guest-everywhere=off/3", {"guest_id": OTHER_GUEST_ID}),
        ("caller=off/3", {"caller": KIOSK}),
        ("center=off/3", {"center_id": OTHER_CENTER_ID}),
    ],
)
def test_existing_links_stop_working_when_the_limit_on_refused_cards_is_reached(
    limited: Limited, limit: str, of_another: dict[str, Any]
) -> None:
    installation = limited(only(limit))
    installation.configure(link_minutes=3 * 24 * 60)
    in_advance = installation.add_card(link_minutes=3 * 24 * 60)
    for_another = installation.add_card(**of_another)
    has_refused(installation, installation.opened_session(), 3)

    with pytest.raises(LinkPaused) as paused:
        installation.open_page(in_advance)
    assert paused.value.reached.retry_after_seconds == DAY.total_seconds()
    assert installation.session(in_advance.token_id) == in_advance
    assert "/fake-psp/pages/" in installation.open_page(for_another)

    installation.clock.advance(DAY)
    assert "/fake-psp/pages/" in installation.open_page(in_advance)


@pytest.mark.parametrize("trouble", [Trouble.BEFORE_IT_ACTED, Trouble.AFTER_IT_ACTED])
def test_a_page_that_the_psp_did_not_confirm_cannot_be_opened_after_the_limit_is_reached(
    limited: Limited, trouble: Trouble
) -> None:
    installation = limited("guest=off/3")
    unanswered = installation.session_without_answer(trouble)
    has_refused(installation, installation.opened_session(), 3)
    installation.clock.advance(MINUTE)

    with pytest.raises(LinkPaused):
        installation.open_page(unanswered)


def test_open_pages_of_a_guest_with_too_many_refused_cards_are_closed(limited: Limited) -> None:
    installation = limited("guest=off/10")
    installation.configure(link_minutes=3 * 24 * 60)
    first, last, idle = (installation.opened_session(link_minutes=4_320) for _ in range(3))
    elsewhere = installation.opened_session(center_id=OTHER_CENTER_ID)
    of_another = installation.opened_session(guest_id=OTHER_GUEST_ID)
    has_refused(installation, first, 4)
    has_refused(installation, first, 1)
    has_refused(installation, last, 4)
    assert is_page_open(installation, last)
    assert is_page_open(installation, idle)

    has_refused(installation, idle, 1)
    installation.reconcile()

    assert not is_page_open(installation, last)
    assert not is_page_open(installation, idle)
    assert is_page_open(installation, elsewhere)
    assert is_page_open(installation, of_another)
    for session in (first, last, idle):
        assert installation.session(session.token_id).status is SessionStatus.OPEN
        with pytest.raises(LinkPaused):
            installation.open_page(session)
    # No call to the PSP is due, and the links work again a day later.
    assert installation.reconcile().is_idle
    installation.clock.advance(DAY)
    assert "/fake-psp/pages/" in installation.open_page(idle)


# Shows S23.
def test_the_limits_of_a_center_may_differ_from_the_default(limited: Limited) -> None:
    installation = limited("guest=1/1,guest-everywhere=off/off,caller=off/off,center=off/off")
    installation.configure(card_testing_limits="guest=2/2")
    first, second = (installation.opened_session() for _ in range(2))

    with refused("sessions per guest", GUEST_ID, DAY):
        installation.add_card()
    has_refused(installation, first, 1)
    assert is_page_open(installation, second)
    has_refused(installation, second, 1)
    installation.reconcile()
    assert not is_page_open(installation, second)
    installation.add_card(center_id=OTHER_CENTER_ID)
    with refused("sessions per guest", GUEST_ID, DAY):
        installation.add_card(center_id=OTHER_CENTER_ID)

    # At five times the limit of a center, all its guests are refused.
    installation.configure(card_testing_limits="guest=off/off,center=1/off")
    for _ in range(3):
        installation.add_card(guest_id=OTHER_GUEST_ID)
    with refused("sessions per center", CENTER_ID, DAY):
        installation.add_card(guest_id=OTHER_GUEST_ID)


# Shows S23.
def test_cards_refused_on_all_open_pages_of_a_guest_are_counted_together(limited: Limited) -> None:
    installation = limited("guest=off/10,guest-everywhere=off/30")
    sessions = [installation.opened_session() for _ in range(10)]
    for session in sessions:
        installation.type_card(session, DECLINED_CARD)

    # So far, the PSP has reported only one of the cards.
    installation.receive_webhook()
    installation.reconcile()

    assert sessions_and_refused_cards(installation) == (10, 10)
    assert not any(is_page_open(installation, session) for session in sessions)


@pytest.mark.parametrize(
    ("limits", "pages"),
    [("guest=off/10", 1), ("off", 3), (only("guest=10/off"), 3), (only("center=off/1"), 3)],
)
def test_the_psp_is_asked_about_a_guests_other_pages_only_if_reaching_a_limit_would_close_them(
    limited: Limited, limits: str, pages: int
) -> None:
    installation = limited(limits)
    sessions = [installation.opened_session() for _ in range(pages)]
    installation.type_card(sessions[0], DECLINED_CARD)
    installation.receive_webhook()
    installation.reconcile()

    assert installation.provider.calls.count("outcome") == 1


@pytest.mark.parametrize("limit", ["caller=off/1", "center=off/1"])
def test_reaching_the_limit_for_a_caller_or_center_does_not_close_other_guests_pages(
    limited: Limited, limit: str
) -> None:
    installation = limited(only(limit))
    typing = installation.opened_session(guest_id=OTHER_GUEST_ID)
    has_refused(installation, installation.opened_session(), 1)
    installation.reconcile()

    assert is_page_open(installation, typing)
    assert "/fake-psp/pages/" in installation.open_page(typing)


# Shows S23, S27.
@pytest.mark.parametrize("limit", ["center=off/2", "center=5/2"])
def test_refused_cards_of_a_few_guests_do_not_block_other_guests_at_the_center(
    limited: Limited, limit: str
) -> None:
    installation = limited(only(limit))
    in_advance = installation.add_card(guest_id=OTHER_GUEST_ID)
    opened = installation.opened_session(guest_id=OTHER_GUEST_ID)
    tried = [installation.opened_session() for _ in range(2)]
    has_refused(installation, tried[0], 5)
    has_refused(installation, tried[1], 4)
    later = installation.add_card(guest_id=OTHER_GUEST_ID)
    click = partial(installation.use_cases.open_hosted_page, by_click=True)

    for session in (in_advance, later):
        with pytest.raises(ClickNeeded):
            installation.open_page(session)
        assert installation.session(session.token_id) == session
        page = click(key=session.link_key)
        assert "/fake-psp/pages/" in page
        assert installation.open_page(session) == page
    assert "/fake-psp/pages/" in installation.open_page(opened)
    with pytest.raises(CardLimitReached):
        installation.add_card()

    has_refused(installation, later, 1)
    with pytest.raises(CardLimitReached):
        installation.add_card(guest_id=OTHER_GUEST_ID)


def test_a_center_refuses_every_guest_after_five_times_its_limit_of_refused_cards(
    limited: Limited,
) -> None:
    installation = limited(only("center=off/2"))
    in_advance = installation.add_card(guest_id=OTHER_GUEST_ID)
    typing, other = installation.opened_session(), installation.opened_session()
    has_refused(installation, typing, 5)
    has_refused(installation, other, 4)
    installation.add_card(guest_id=OTHER_GUEST_ID)
    has_refused(installation, other, 1)

    with refused("refused cards per center", CENTER_ID, DAY):
        installation.add_card(guest_id=OTHER_GUEST_ID)
    for by_click in (False, True):
        with pytest.raises(LinkPaused):
            installation.use_cases.open_hosted_page(key=in_advance.link_key, by_click=by_click)


# Shows S27.
def test_a_card_typed_before_the_limit_was_reached_is_stored(limited: Limited) -> None:
    installation = limited("guest=off/3")
    collected = installation.opened_session()
    installation.type_card(collected)
    has_refused(installation, installation.opened_session(), 3)
    installation.reconcile()

    assert installation.session(collected.token_id).status is SessionStatus.COMPLETED
    assert len(installation.accounts()) == 1


def test_a_page_created_as_the_limit_is_reached_is_closed(limited: Limited) -> None:
    installation = limited("guest=off/3")
    late = installation.session_without_answer(Trouble.AFTER_IT_ACTED)
    has_refused(installation, installation.opened_session(), 3)

    installation.settle(late.token_id)
    assert not is_page_open(installation, late)


@pytest.mark.parametrize(("refused_cards", "sessions"), [(19, 4), (20, 80)])
def test_a_center_with_few_refused_cards_is_not_reported_for_card_testing(
    installation: Installation, refused_cards: int, sessions: int
) -> None:
    has_tried(installation, refused_cards, sessions)
    assert installation.container.find_card_testing()() == []


def test_a_center_with_many_refused_cards_is_reported_for_a_day(installation: Installation) -> None:
    has_tried(installation, refused_cards=20, sessions=79)
    find = installation.container.find_card_testing()
    assert find() == [CardsAtCenter(center_id=CENTER_ID, sessions=79, refused_cards=20)]
    installation.clock.advance(DAY)
    assert find() == []


def has_tried(installation: Installation, refused_cards: int, sessions: int) -> None:
    """Let guests type cards at the center, five on each page."""
    for number in range(sessions):
        session = installation.add_card()
        tries = min(5, max(0, refused_cards - 5 * number))
        if tries:
            installation.open_page(session)
            for _ in range(tries):
                installation.type_card(session, DECLINED_CARD)
            installation.settle(session.token_id)
