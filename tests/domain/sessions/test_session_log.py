"""The log lines about the steps of a session, written by the real adapter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from adapters.fake_psp.plugin import NAME as FAKE
from adapters.sqlite.connection import connect
from domain.errors import ServiceUnavailable
from tests.installation import (
    DECLINED_CARD,
    MISMATCHING_CARD,
    NO_PREPAID,
    PREPAID_CARD,
    Installation,
)

LIFE = ["session_created", "session_opened", "page_made"]
STORED = ["card_collected", "card_stored"]


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    with capture_logs() as lines:
        yield lines


def told(lines: Sequence[Any]) -> list[str]:
    """Return the steps of all log lines so far, each with its reason."""
    return [
        f"{line['event']} {line['reason']}" if "reason" in line else line["event"]
        for line in lines
        if "session" in line
    ]


def test_storing_a_card_is_logged(installation: Installation, lines: list[Any]) -> None:
    account = installation.stored_card()

    assert told(lines) == [*LIFE, *STORED]
    assert account.token_id is not None
    who = {"session": account.token_id[:8], "guest_id": account.guest_id}
    where = {"center_id": account.center_id, "provider": FAKE, "log_level": "info"}
    for line in lines:
        assert line.items() == {**who, **where, "event": line["event"]}.items()


def test_renewing_a_card_is_logged(installation: Installation, lines: list[Any]) -> None:
    installation.stored_card()
    installation.stored_card(expiry=(10, 2032))

    # The token that the account had before is discarded.
    renewed = ["card_collected", "card_renewed", "discard_scheduled"]
    assert told(lines) == [*LIFE, *STORED, *LIFE, *renewed]


def test_a_card_that_breaks_a_rule_of_this_service_is_logged(
    installation: Installation, lines: list[Any]
) -> None:
    installation.configure(avs=True)
    address = {"address": "1 Main St", "country_code": "US", "zipcode": "98101"}
    installation.returned_session(MISMATCHING_CARD, billing_info=address)

    refused = ["card_collected", "card_refused incorrect_billing_address", "discard_scheduled"]
    assert told(lines) == [*LIFE, *refused]


def test_a_card_that_the_center_does_not_accept_has_its_own_log_line(
    installation: Installation, lines: list[Any]
) -> None:
    installation.configure(**NO_PREPAID)
    installation.returned_session(PREPAID_CARD)
    not_accepted = ["card_collected", "card_not_accepted funding_not_accepted", "discard_scheduled"]
    assert told(lines) == [*LIFE, *not_accepted]

    installation.clock.advance(timedelta(days=1))
    installation.reconcile()
    assert told(lines) == [*LIFE, *not_accepted, "card_refused payment_method_not_accepted"]


def test_cards_declined_by_the_bank_are_logged(
    installation: Installation, lines: list[Any]
) -> None:
    session = installation.opened_session()
    for _ in range(2):
        installation.type_card(session, DECLINED_CARD)
    installation.return_to_shop(session)
    (code,) = {line["reason"] for line in lines if "reason" in line}
    # The PSP reports only the code of the last card.
    declined = ["card_declined", f"card_declined {code}"]
    assert told(lines) == [*LIFE, *declined]

    installation.type_card(session)
    installation.clock.advance(timedelta(minutes=5))
    installation.reconcile()
    assert told(lines) == [*LIFE, *declined, *STORED]


def test_discarding_a_card_that_was_typed_after_the_cancellation_is_logged(
    installation: Installation, lines: list[Any]
) -> None:
    session = installation.opened_session()

    def type_it_later() -> None:
        installation.clock.advance(timedelta(seconds=1))
        installation.type_card(session)

    installation.provider.meanwhile["outcome"] = type_it_later
    installation.cancel_session(session)
    installation.reconcile()

    ended = ["card_collected", "session_expired cancelled", "discard_scheduled"]
    assert told(lines) == [*LIFE, *ended]


def test_a_session_that_ends_without_a_card_is_logged(
    installation: Installation, lines: list[Any]
) -> None:
    never_opened, opened = installation.add_card(), installation.opened_session()
    assert told(lines) == [LIFE[0], *LIFE]
    installation.clock.advance(timedelta(hours=2))
    installation.reconcile()
    for session in (never_opened, opened):
        installation.settle(session.token_id)

    ended = [line for line in lines[4:] if "session" in line]
    assert told(ended) == ["session_expired not_finished"] * 2
    assert {line["session"] for line in ended} == {
        each.token_id[:8] for each in (never_opened, opened)
    }


def test_repeating_a_step_of_a_session_does_not_log_it_again(
    installation: Installation, lines: list[Any]
) -> None:
    installation.before_next_write(lambda: installation.add_card(idempotency_key="key"))
    session = installation.add_card(idempotency_key="key")
    for _ in range(2):
        installation.open_page(session)
    installation.type_card(session)
    for _ in range(2):
        # The PSP may be asked about the session again.
        installation.clock.advance(timedelta(seconds=3))
        installation.return_to_shop(session)
        installation.open_page(session)
        installation.reconcile()

    assert told(lines) == [*LIFE, *STORED]


@pytest.mark.installed(busy_timeout_seconds=0)
def test_a_step_of_a_session_that_could_not_be_committed_is_not_logged(
    installation: Installation, lines: list[Any]
) -> None:
    with closing(connect(installation.database, busy_timeout_seconds=0)) as other:
        other.execute("PRAGMA query_only=OFF")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ServiceUnavailable):
            installation.add_card()

    assert "session_created" not in told(lines)


def test_a_card_is_stored_even_if_writing_the_log_fails(installation: Installation) -> None:
    def fail(*_: object) -> str:
        raise OSError

    with capture_logs([fail]):
        account = installation.stored_card()

    assert installation.accounts() == (account,)
