"""Store an event about a card on file, and its deliveries to the endpoints that subscribe to it."""

from __future__ import annotations

from datetime import datetime

from domain.cards.account import Account
from domain.centers.configure_payments import is_live
from domain.events.event import CardSummary, Event, EventType
from domain.events.note_event import NoteEvent, new_event_id
from domain.identifiers import TokenId
from domain.storage import WriteUnit


def note_account_event(
    unit: WriteUnit,
    note_event: NoteEvent,
    event_type: EventType,
    account: Account,
    *,
    token_id: TokenId | None = None,
    reason: str | None = None,
    language: str | None = None,
    reference: str | None = None,
    by: str | None = None,
    now: datetime,
) -> None:
    """Note an event about a card on file. The caller commits the unit.

    `token_id` is the session that caused the event; by default, it is the session that stored the
    card. `language` is the language of the consent in the session, and `reference` is the client's
    own reference for the session. `by` is `guest` if the guest caused the event on the guest's own
    page.
    """
    note_event(
        unit,
        Event(
            event_id=new_event_id(note_event.ids),
            type=event_type,
            occurred_at=now,
            guest_id=account.guest_id,
            center_id=account.center_id,
            token_id=token_id or account.token_id,
            account_id=account.account_id,
            status="active" if account.removed_at is None else "removed",
            reason=reason,
            card=CardSummary.of(account, authenticated=account.authenticated),
            language=language,
            reference=reference,
            by=by,
            live=is_live(note_event.psps, account.psp_account),
        ),
    )
