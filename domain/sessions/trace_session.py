"""Trace a card-addition session for an operator: what happened when, and what it waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from domain.errors import InvalidField
from domain.events.event import EventDelivery
from domain.identifiers import SHOWN_OF_TOKENS, plain_uuid
from domain.outside import Clock
from domain.sessions.limit import RefusedCard
from domain.sessions.result import OVERDUE_AFTER, Result, result_of
from domain.sessions.session import CardSession, SessionFacts, SessionStatus
from domain.storage import Storage

_FIRST: Final = "00000000-0000-0000-0000-000000000000"
_LAST: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"


class NoSuchSession(LookupError):
    """No session's token begins like this."""

    def __init__(self) -> None:
        super().__init__("no session's token begins like this")


class SeveralSuchSessions(LookupError):
    """The tokens of several sessions begin like this."""

    def __init__(self) -> None:
        super().__init__("the tokens of several sessions begin like this; give the whole token")


class WaitsFor(StrEnum):
    """What a session waits for that is not settled."""

    OPENING = "the guest, to open the link"
    CARD = "the guest, to enter a card"
    PSP = "the PSP, to respond"


class Step(NamedTuple):
    """Something that happened in the life of a session. `details` say more; None is left out."""

    happened_at: datetime
    name: str
    details: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A session, what became of it so far, its steps in the order of time, and what it waits for."""

    session: CardSession
    result: Result
    steps: Sequence[Step]
    waits_for: WaitsFor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSession:
    """Use case: return the trace of the session whose token begins like this.

    Give at least 8 characters. Raises InvalidField, NoSuchSession or SeveralSuchSessions.
    """

    storage: Storage
    clock: Clock

    def __call__(self, token: str) -> Trace:
        first = plain_uuid(token + _FIRST[len(token) :])
        last = plain_uuid(token + _LAST[len(token) :])
        if first is None or last is None or len(token) < SHOWN_OF_TOKENS:
            expected = f"the token of a session, or at least its first {SHOWN_OF_TOKENS} characters"
            raise InvalidField("token", expected)
        with self.storage.read() as unit:
            found = unit.sessions.between(first, last, limit=2)
            if not found:
                raise NoSuchSession
            if len(found) > 1:
                raise SeveralSuchSessions
            (session,) = found
            refused = [
                card for card in unit.refused_cards.of(session.token_id) if card.is_refused_by_psp
            ]
            account = unit.accounts.get(session.account_id) if session.account_id else None
            deliveries = unit.event_deliveries.of_session(
                session.token_id, since=session.created_at
            )
        overdue_before = self.clock.now() - OVERDUE_AFTER
        result = result_of(
            SessionFacts(
                status=session.status,
                failure=session.failure.type if session.failure else None,
                is_opened=session.attempt is not None,
                has_refused_card=bool(refused),
                is_unanswered=session.unanswered_since is not None,
                is_renewal=account is not None and account.token_id != session.token_id,
                is_overdue=session.due_at is not None and session.due_at < overdue_before,
            )
        )
        steps = _steps(session, result, refused, deliveries)
        return Trace(session=session, result=result, steps=steps, waits_for=_waits_for(session))


def _steps(
    session: CardSession,
    result: Result,
    refused: Sequence[RefusedCard],
    deliveries: Sequence[EventDelivery],
) -> Sequence[Step]:
    request = session.attempt.request if session.attempt else None
    # An earlier release has kept no time but that of the latest attempt.
    opened_at = session.opened_at or (request.begun_at if request else None)
    reason = session.failure.type if session.failure else None
    end = {"result": result, "reason": reason, "account": session.account_id}
    steps: Sequence[tuple[datetime | None, str, Mapping[str, object]]] = [
        (session.created_at, "created", {"caller": session.caller}),
        (opened_at, "opened", {"pages": request and request.attempt}),
        *(
            (card.refused_at, "card_refused", {"code": card.code, "page": card.attempt})
            for card in refused
        ),
        (session.returned_at, "returned", {}),
        (session.cancelled_at, "cancelled", {}),
        (session.ended_at, session.status, end),
        *(
            (
                each.event.occurred_at,
                each.event.type,
                {
                    "event": each.event.event_id,
                    "endpoint": each.endpoint_id,
                    "delivery": each.status,
                    "attempts": each.attempts,
                    "response": each.last_result,
                },
            )
            for each in deliveries
        ),
    ]
    happened = [
        Step(time, name, {word: value for word, value in details.items() if value is not None})
        for time, name, details in steps
        if time is not None
    ]
    return sorted(happened, key=lambda step: step.happened_at)


def _waits_for(session: CardSession) -> WaitsFor | None:
    attempt = session.attempt
    is_over = session.status is not SessionStatus.OPEN
    if session.is_settled or (is_over and session.due_at is None):
        return None
    if is_over or session.cancelled_at or session.unanswered_since:
        return WaitsFor.PSP
    if attempt is None or attempt.over:
        return WaitsFor.OPENING
    return WaitsFor.PSP if attempt.is_unanswered else WaitsFor.CARD
