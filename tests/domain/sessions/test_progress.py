"""The progress of a session is recorded even if other steps fail. It undoes no other change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

import pytest

from domain.errors import ServiceUnavailable
from domain.sessions.end import SessionStatus
from domain.sessions.polling import Progress
from domain.sessions.session import CardSession
from tests.installation import DECLINED_CARD, REDIRECT_URI, Installation

MINUTE: Final = timedelta(minutes=1)


def progress(installation: Installation, session: CardSession) -> Progress:
    return installation.session(session.token_id).progress


def cancel_page(installation: Installation, session: CardSession) -> str:
    return installation.use_cases.cancel_hosted_page(token_id=session.token_id)


def test_the_progress_of_a_session_shows_each_step_of_the_guest(installation: Installation) -> None:
    session = installation.add_card()
    assert progress(installation, session) is Progress.CREATED
    assert cancel_page(installation, session) == REDIRECT_URI
    assert progress(installation, session) is Progress.CANCELLED
    installation.open_page(session)
    assert progress(installation, session) is Progress.OPENED
    cancel_page(installation, session)
    assert progress(installation, session) is Progress.CANCELLED
    installation.open_page(session)
    assert progress(installation, session) is Progress.OPENED
    installation.type_card_and_return(session, DECLINED_CARD)
    assert progress(installation, session) is Progress.RETURNED
    assert installation.session(session.token_id).status is SessionStatus.OPEN


def times(installation: Installation, session: CardSession) -> tuple[datetime | None, ...]:
    stored = installation.session(session.token_id)
    return stored.opened_at, stored.returned_at


@pytest.mark.parametrize("leave", [cancel_page, Installation.return_to_shop])
def test_a_session_keeps_the_time_of_its_first_opening_or_return(
    installation: Installation, leave: Callable[[Installation, CardSession], str]
) -> None:
    session = installation.add_card()
    installation.clock.advance(MINUTE)
    opened_at = installation.clock.now()
    installation.open_page(session)
    assert times(installation, session) == (opened_at, None)
    installation.clock.advance(MINUTE)
    returned_at = installation.clock.now()
    for _ in range(2):
        leave(installation, session)
        installation.clock.advance(MINUTE)
        installation.psp.close_page(installation.page_reference(session))
        # The link leads to another page.
        installation.open_page(session)
        assert times(installation, session) == (opened_at, returned_at)


def test_a_link_opened_under_an_older_release_keeps_the_time_when_it_was_opened(
    installation: Installation,
) -> None:
    opened = installation.opened_session()
    installation.put_session(replace(opened, opened_at=None))
    installation.clock.advance(MINUTE)
    installation.psp.close_page(installation.page_reference(opened))

    installation.open_page(opened)

    assert times(installation, opened) == (opened.opened_at, None)


def test_opening_a_link_is_recorded_even_without_a_page(installation: Installation) -> None:
    assert installation.session_without_answer().progress is Progress.OPENED


@pytest.mark.parametrize("leave", [cancel_page, Installation.return_to_shop])
def test_recording_progress_does_not_undo_a_concurrent_change_to_the_session(
    installation: Installation, leave: object
) -> None:
    session = installation.session_with_card()
    installation.before_next_write(lambda: installation.settle(session.token_id))

    assert callable(leave)
    leave(installation, session)

    ended = installation.session(session.token_id)
    assert (ended.status, ended.progress) == (SessionStatus.COMPLETED, Progress.OPENED)


def test_the_return_of_a_browser_is_not_recorded_if_the_session_has_no_page(
    installation: Installation,
) -> None:
    session = installation.add_card()

    installation.return_to_shop(session)

    assert progress(installation, session) is Progress.CREATED
    assert times(installation, session) == (None, None)


@pytest.mark.parametrize("known_first", [False, True])
def test_returning_from_an_ended_page_counts_as_cancelling_it(
    installation: Installation, *, known_first: bool
) -> None:
    session = installation.opened_session()
    installation.psp.close_page(installation.page_reference(session))
    if known_first:
        installation.settle(session.token_id)
        assert progress(installation, session) is Progress.OPENED

    installation.return_to_shop(session)

    assert progress(installation, session) is Progress.CANCELLED
    assert installation.session(session.token_id).status is SessionStatus.OPEN


def test_a_guest_who_cancels_is_redirected_even_if_the_database_is_unavailable(
    installation: Installation,
) -> None:
    session = installation.opened_session()

    def fail() -> None:
        raise ServiceUnavailable

    installation.before_next_write(fail)

    assert cancel_page(installation, session) == REDIRECT_URI
