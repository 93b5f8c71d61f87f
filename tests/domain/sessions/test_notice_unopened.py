"""A link that nobody opens is reported once, after half of its lifetime."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from domain.events.event import Event, EventType
from tests.databases import change_by_hand
from tests.installation import Installation

MINUTE = timedelta(minutes=1)


def notice(installation: Installation) -> Sequence[Event]:
    """Look for unopened links, and return the events about them."""
    installation.container.notice_unopened()()
    return [each for each in installation.events() if each.type is EventType.SESSION_UNOPENED]


def test_an_unopened_link_is_reported_once_after_half_its_life(installation: Installation) -> None:
    session = installation.add_card(reference="order-7", link_minutes=30)
    installation.clock.advance(15 * MINUTE - timedelta.resolution)
    assert notice(installation) == []
    installation.clock.advance(timedelta.resolution)
    (told,) = notice(installation)
    assert (told.token_id, told.status, told.reason) == (session.token_id, "open", None)
    assert told.reference == "order-7"
    installation.clock.advance(MINUTE)
    assert notice(installation) == [told]


def test_an_opened_link_is_not_reported_as_unopened(installation: Installation) -> None:
    session = installation.opened_session()
    cancelled = installation.add_card()
    installation.cancel_session(cancelled)
    installation.clock.advance(20 * MINUTE)
    assert notice(installation) == []
    assert installation.session(session.token_id).unopened_at is None


def test_an_expired_link_is_not_reported_as_unopened(installation: Installation) -> None:
    installation.add_card()
    installation.clock.advance(timedelta(days=2))
    assert notice(installation) == []


def test_an_unopened_link_of_an_older_release_is_reported(installation: Installation) -> None:
    session = installation.add_card(link_minutes=30)
    change_by_hand(
        installation.storage,
        "UPDATE card_sessions SET unopened_at = '2000-01-01T00:00:00.000000+00:00'",
    )
    assert notice(installation) == []
    installation.clock.advance(15 * MINUTE)
    (told,) = notice(installation)
    assert told.token_id == session.token_id


def test_a_clock_jump_does_not_cause_a_link_to_be_reported_as_unopened(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    installation.add_card(link_minutes=30)
    installation.clock.advance(20 * MINUTE)
    monkeypatch.setattr(installation.clock, "is_steady", lambda: False)
    assert notice(installation) == []
