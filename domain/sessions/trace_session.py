"""Trace a card-addition session for an operator: list everything that happened in it, with times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from domain.errors import InvalidField
from domain.identifiers import TOKEN_PREFIX_LENGTH, plain_uuid
from domain.sessions.session import CardSession
from domain.storage import UnitOfWork

_FIRST: Final = "00000000-0000-0000-0000-000000000000"
_LAST: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"


class TraceEntry(NamedTuple):
    """Something that happened in a session. Details without a value (None) are left out."""

    at: datetime
    step: str
    details: Mapping[str, object]


def session_named(unit: UnitOfWork, prefix: str) -> CardSession:
    """Return the session whose token begins with `prefix`.

    Raises InvalidField if there is no such session, or if there are several.
    """
    first, last = (plain_uuid(prefix + end[len(prefix) :]) for end in (_FIRST, _LAST))
    if first is None or last is None or len(prefix) < TOKEN_PREFIX_LENGTH:
        expected = f"the token of a session, or at least its first {TOKEN_PREFIX_LENGTH} characters"
        raise InvalidField("token", expected)
    found = unit.sessions.between(first, last, limit=2)
    if len(found) != 1:
        matches = "several sessions match" if found else "no session matches"
        raise InvalidField("token", f"the beginning of exactly one session's token; {matches}")
    return found[0]


def steps_of(unit: UnitOfWork, session: CardSession) -> Sequence[TraceEntry]:
    """Return everything that happened in a session, oldest first, with the events sent to clients."""
    deliveries = unit.event_deliveries.of_session(session.token_id, since=session.created_at)
    sent_events = [
        TraceEntry(
            delivery.event.occurred_at,
            delivery.event.type,
            _known(
                {
                    "event": delivery.event.event_id,
                    "endpoint": delivery.endpoint_id,
                    "delivery": delivery.status,
                    "attempts": delivery.attempts,
                    "attempted": delivery.attempted_at,
                    "response": delivery.last_result,
                }
            ),
        )
        for delivery in deliveries
    ]
    return sorted([*steps_without_events(unit, session), *sent_events], key=lambda step: step.at)


def steps_without_events(unit: UnitOfWork, session: CardSession) -> Sequence[TraceEntry]:
    """Return everything that happened in a session, oldest first, without events sent to clients."""
    request = session.attempt.request if session.attempt else None
    # An earlier release kept only the time of the latest attempt.
    opened_at = session.opened_at or (request.begun_at if request else None)
    end = {"reason": session.reason_of_end, "account": session.account_id}
    steps: Sequence[tuple[datetime | None, str, Mapping[str, object]]] = [
        (session.created_at, "created", {"caller": session.caller}),
        (opened_at, "opened", {"pages": request and request.attempt}),
        *(
            (
                card.refused_at,
                "card_declined" if card.number else "card_not_accepted",
                {"code": card.code, "page": card.attempt},
            )
            for card in unit.refused_cards.of(session.token_id)
            # Number 0 is the card that a rule refused. This card has no code if the session failed.
            if card.number or card.code
        ),
        *(
            (
                click.agreed_at,
                "agreed",
                {
                    "version": click.shown.version,
                    "page": click.attempt or None,
                    "card_on_file": click.card,
                },
            )
            for click in session.clicks or ()
        ),
        (session.returned_at, "returned", {}),
        (session.cancelled_at, "cancelled", {"by": session.cancelled_by}),
        (session.ended_at, session.status, end),
    ]
    happened = [
        TraceEntry(time, name, _known(details)) for time, name, details in steps if time is not None
    ]
    return sorted(happened, key=lambda step: step.at)


def _known(details: Mapping[str, object]) -> Mapping[str, object]:
    return {word: value for word, value in details.items() if value is not None}
