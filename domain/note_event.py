"""Note what has happened to a card or a session, for the endpoints that take such events.

The deliveries are stored in the commit that decides, so no event is lost, and none is sent of what
was not committed. Where no endpoint takes the event, nothing is stored.
"""

from __future__ import annotations

from datetime import datetime

from domain.card_sessions import CardSession, SessionStatus
from domain.events import CardSummary, Event, EventDelivery, EventType
from domain.identifiers import EventId, TokenId
from domain.payment_accounts import PaymentAccount
from domain.ports import Ids, WriteUnit


def note_account_event(
    unit: WriteUnit,
    ids: Ids,
    event_type: EventType,
    account: PaymentAccount,
    *,
    token_id: TokenId | None = None,
    reason: str | None = None,
    now: datetime,
) -> None:
    """Note an event of a card on file. The caller commits.

    `token_id` is the session that caused it; by default the one that stored the card.
    """
    note_event(
        unit,
        Event(
            event_id=new_event_id(ids),
            type=event_type,
            occurred_at=now,
            guest_id=account.guest_id,
            center_id=account.center_id,
            token_id=token_id or account.token_id,
            account_id=account.account_id,
            status="active" if account.removed_at is None else "removed",
            reason=reason,
            card=CardSummary(
                card_logo=account.card_logo,
                last_four=account.last_four,
                expiry_on=account.expiry_on,
            ),
        ),
    )


def note_end_of_session(
    unit: WriteUnit, ids: Ids, before: CardSession, after: CardSession, *, now: datetime
) -> None:
    """Note that a session has ended without a card, if it has just done so. The caller commits."""
    if after.status is before.status:
        return
    if after.failure is not None:
        event_type, reason = EventType.SESSION_FAILED, after.failure.type
    elif after.status is SessionStatus.EXPIRED:
        event_type = EventType.SESSION_EXPIRED
        reason = "cancelled" if after.cancelled_at else "not_finished"
    else:
        return
    note_event(
        unit,
        Event(
            event_id=new_event_id(ids),
            type=event_type,
            occurred_at=now,
            guest_id=after.guest_id,
            center_id=after.center_id,
            token_id=after.token_id,
            status=after.status.value,
            reason=reason,
        ),
    )


def new_event_id(ids: Ids) -> EventId:
    """Return the id of a new event."""
    return EventId(f"evt_{ids.uuid()}")


def note_event(unit: WriteUnit, event: Event) -> None:
    """Note an event for each endpoint that takes it. The caller commits."""
    for endpoint in unit.event_endpoints.all():
        if endpoint.takes(event):
            unit.event_deliveries.add(
                EventDelivery(
                    event=event, endpoint_id=endpoint.endpoint_id, due_at=event.occurred_at
                )
            )
