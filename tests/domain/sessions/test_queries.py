from __future__ import annotations

from datetime import timedelta

import pytest

from adapters.psp_suite.samples import GUEST_ID, OTHER_GUEST_ID, a_uuid
from domain.errors import (
    GuestIdNotUsable,
    GuestNotFound,
    InvalidField,
    SessionNotFound,
    UserNotAuthorized,
)
from domain.pagination import Page, PageRequest
from domain.permissions import Caller, Permission
from domain.sessions.session import CardSession
from tests.builders import CENTER_ID, OTHER_CENTER_ID, a_guest
from tests.installation import Installation


# Shows S2.
@pytest.mark.parametrize("use_case", ["read_session", "cancel_session"])
def test_reading_a_session_of_another_guest_or_center_is_refused(
    installation: Installation, use_case: str
) -> None:
    session = installation.add_card()
    installation.has_guest(a_guest(id=OTHER_GUEST_ID))
    elsewhere = installation.a_caller(centers=frozenset())

    for caller, guest_id, token_id in (
        (elsewhere, GUEST_ID, session.token_id),
        (installation.caller, OTHER_GUEST_ID, session.token_id),
        (installation.caller, GUEST_ID, a_uuid(9)),
        (installation.caller, GUEST_ID, "x"),
    ):
        with pytest.raises(SessionNotFound):
            getattr(installation.use_cases, use_case)(caller, guest_id=guest_id, token_id=token_id)
    assert installation.session(session.token_id) == session
    here = installation.a_caller(centers=frozenset({CENTER_ID}))
    getattr(installation.use_cases, use_case)(here, guest_id=GUEST_ID, token_id=session.token_id)


def test_a_link_is_shown_only_to_callers_that_may_add_cards(installation: Installation) -> None:
    waiting, opened = installation.add_card(), installation.opened_session()
    completed = installation.session(installation.stored_card().token_id)
    cancelled = installation.add_card()
    installation.cancel_session(cancelled)

    def shows_link(session: CardSession, permission: Permission = Permission.GUESTS_ADD) -> bool:
        return installation.use_cases.read_session(
            installation.a_caller(permission), guest_id=GUEST_ID, token_id=session.token_id
        ).shows_link

    for session in (waiting, opened):
        assert shows_link(session)
        assert shows_link(session, Permission.GUESTS_EDIT)
        assert not shows_link(session, Permission.GUESTS_VIEW)
    for session in (completed, cancelled):
        assert not shows_link(session)
    installation.clock.advance(timedelta(minutes=30))
    assert not shows_link(waiting)


def test_sessions_of_a_guest_are_listed_newest_first(installation: Installation) -> None:
    installation.has_other_center()
    installation.has_guest(a_guest(id=OTHER_GUEST_ID))
    sessions = []
    for center_id in (CENTER_ID, OTHER_CENTER_ID, CENTER_ID):
        sessions.append(installation.add_card(center_id=center_id))
        installation.clock.advance(timedelta(seconds=1))
    installation.add_card(guest_id=OTHER_GUEST_ID)
    limited = installation.a_caller(centers=frozenset({CENTER_ID}))

    def listed(caller: Caller, page: int, size: int) -> Page[CardSession]:
        return installation.use_cases.list_sessions(
            caller, guest_id=GUEST_ID, page=PageRequest(page=page, size=size)
        )

    assert listed(installation.caller, 1, 10).items == tuple(reversed(sessions))
    second = listed(installation.caller, 2, 2)
    assert (second.items, second.total) == ((sessions[0],), 3)
    own = listed(limited, 1, 10)
    assert (own.items, own.total) == ((sessions[2], sessions[0]), 2)


def test_sessions_can_be_listed_by_status(installation: Installation) -> None:
    installation.stored_card()
    opened = installation.add_card()

    def listed(*statuses: str) -> Page[CardSession]:
        return installation.use_cases.list_sessions(
            installation.caller, guest_id=GUEST_ID, statuses=statuses, page=PageRequest()
        )

    assert (listed("open").items, listed("open").total) == ((opened,), 1)
    assert (listed("failed").items, listed("failed").total) == ((), 0)
    assert listed().total == 2
    for wrong in (("pending",), ("",), ("open", "failed"), ("open' OR '1",)):
        with pytest.raises(InvalidField):
            listed(*wrong)


def test_sessions_can_be_listed_by_the_clients_reference(installation: Installation) -> None:
    first = installation.add_card(reference="order-1")
    installation.clock.advance(timedelta(seconds=1))
    second = installation.add_card(reference="order-1")
    installation.add_card(reference="order-2")

    def found(*references: str, statuses: tuple[str, ...] = ()) -> Page[CardSession]:
        return installation.use_cases.list_sessions(
            installation.caller,
            guest_id=GUEST_ID,
            statuses=statuses,
            references=references,
            page=PageRequest(),
        )

    assert found("order-1").items == (second, first)
    assert found("order-1", statuses=("expired",)).total == 0
    assert (found("order-3").total, found().total) == (0, 3)
    expected = "reference must be 1 to 100 characters in one line, without a card number"
    for wrong, why in ((("order-1", "order-2"), "reference must be given once"), (("",), expected)):
        with pytest.raises(InvalidField, match=f"^{why}$"):
            found(*wrong)


def test_listing_sessions_of_an_unknown_guest_is_refused(installation: Installation) -> None:
    for guest_id, refusal in (("x", GuestIdNotUsable), (a_uuid(999), GuestNotFound)):
        with pytest.raises(refusal):
            installation.use_cases.list_sessions(
                installation.caller, guest_id=guest_id, page=PageRequest()
            )
    # The token of an open session leads to its page.
    with pytest.raises(UserNotAuthorized):
        installation.use_cases.list_sessions(
            installation.a_caller(Permission.GUESTS_VIEW), guest_id=GUEST_ID, page=PageRequest()
        )
