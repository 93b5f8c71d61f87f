"""Clocks that jump, and nodes whose clocks differ: each step happens at a time of its own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from domain.card_sessions import CardSession, SessionStatus
from domain.open_hosted_page import LinkExpired
from tests.fuzzing import TIMES
from tests.installation import Installation

MINUTE = timedelta(minutes=1)
DAYS = 3


def type_card(installation: Installation, session: CardSession) -> None:
    """Type a card if a page is open to type on."""
    if installation.session(session.token_id).attempt is not None:
        installation.type_card(session)


@settings(max_examples=40 * TIMES)
@given(st.lists(st.integers(-90, 90).map(MINUTE.__mul__), min_size=6, max_size=6))
@example([timedelta(0)] * 6)
@example([-MINUTE * 90, MINUTE * 90] * 3)
def test_a_session_ends_and_no_token_is_lost_whatever_the_clocks_say(
    tmp_path_factory: pytest.TempPathFactory, jumps: list[timedelta]
) -> None:
    installation = Installation(tmp_path_factory.mktemp("clocks"))
    session = installation.add_card()
    steps: tuple[Callable[[], object], ...] = (
        lambda: installation.open_page(session),
        lambda: type_card(installation, session),
        lambda: installation.return_to_shop(session),
        installation.reconcile_until_idle,
        lambda: installation.open_page(session),
        installation.reconcile_until_idle,
    )
    for step, jump in zip(steps, jumps, strict=True):
        installation.clock.advance(jump)
        with suppress(LinkExpired):
            step()
    for _ in range(DAYS * 24):
        installation.clock.advance(timedelta(hours=1))
        installation.reconcile_until_idle()

    ended = installation.session(session.token_id)
    assert ended.status in (SessionStatus.COMPLETED, SessionStatus.EXPIRED)
    assert {each.token for each in installation.accounts()} == installation.tokens_at_psp()
    assert [each.account_id for each in installation.accounts()] == (
        [ended.account_id] if ended.account_id else []
    )
    installation.close()
