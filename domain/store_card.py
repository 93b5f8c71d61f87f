"""Store the card that a PSP has collected for a session, or refuse it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Final

from domain.billing import AvsResult
from domain.card_sessions import POLL_EVERY, CardSession
from domain.discard_tokens import note_discard_of_account, note_discard_of_collected
from domain.errors import (
    GuestNotFound,
    IncorrectBillingAddress,
    InvalidCenterId,
    PaymentConfigurationNotDone,
    PaymentMethodAlreadyExists,
    Refusal,
)
from domain.events import EventType
from domain.hosted_pages import CardCollected
from domain.identifiers import AccountId
from domain.note_event import note_account_event
from domain.payment_accounts import PaymentAccount, has_default
from domain.payment_configuration import CardsPerGuest
from domain.ports import Ids, WriteUnit

WAIT_FOR_DISCARD: Final = timedelta(seconds=5)


def store_card(
    unit: WriteUnit,
    session: CardSession,
    collected: CardCollected,
    *,
    ids: Ids,
    now: datetime,
) -> CardSession:
    """Store a collected card as a new account, or renew the account of the same card.

    Return the updated session: completed, or failed if a rule refuses the card. The token of a
    refused card is scheduled for discard. A card whose token was discarded already is not stored,
    and its page is over; so is one that was collected after the client had cancelled. While its
    token is being discarded, the session waits. The caller commits.
    """
    configuration, card = session.configuration, collected.card
    # Before the token is locked, as in every unit that locks both: none waits for another in turn.
    stored = unit.accounts.active_at(session.guest_id, session.center_id)
    if session.cancelled_at is not None and collected.collected_at > session.cancelled_at:
        note_discard_of_collected(unit, session, collected, now=now)
        return session.without_card(now)
    discard = unit.discards.get(
        configuration.provider, configuration.merchant_account, collected.token
    )
    if discard is not None and discard.in_progress_until is not None:
        soon, later = now + WAIT_FOR_DISCARD, now + POLL_EVERY
        return session.postponed(min(max(discard.in_progress_until, soon), later))
    if discard is not None and discard.was_done_after(collected.collected_at):
        note_discard_of_collected(unit, session, collected, now=now)
        return session.without_card(now)
    same = next((each for each in stored if each.is_same_card(card, configuration)), None)
    refusal = _refusal(unit, session, collected, stored, same)
    if refusal is not None:
        note_discard_of_collected(unit, session, collected, now=now)
        return session.failed(refusal, now)
    consent_version = session.current_attempt.request.consent.version
    if same is not None:
        account = same.renewed(
            card,
            consent_version=consent_version,
            consented_at=collected.collected_at,
            now=now,
        )
        unit.accounts.update(account)
        note_discard_of_account(unit, same, now=now)
        event_type = EventType.ACCOUNT_RENEWED
    else:
        account = PaymentAccount(
            **asdict(card),
            account_id=AccountId(ids.uuid()),
            token_id=session.token_id,
            guest_id=session.guest_id,
            center_id=session.center_id,
            provider=configuration.provider,
            merchant_account=configuration.merchant_account,
            source=session.source,
            consent_version=consent_version,
            consented_at=collected.collected_at,
            created_at=now,
            expiry_notice_at=card.next_expiry_notice(now),
            is_default=not has_default(stored),
        )
        unit.accounts.add(account)
        event_type = EventType.ACCOUNT_STORED
    note_account_event(unit, ids, event_type, account, token_id=session.token_id, now=now)
    if discard is not None:
        unit.discards.remove(discard)
    return session.completed(account.account_id, now)


def _refusal(
    unit: WriteUnit,
    session: CardSession,
    collected: CardCollected,
    stored: Sequence[PaymentAccount],
    same: PaymentAccount | None,
) -> Refusal | None:
    """Return why the card may not be stored, or None (interface, sections 4.1 and 7.1)."""
    configuration = session.configuration
    if unit.guests.get(session.guest_id) is None:
        return GuestNotFound()
    if unit.centers.get(session.center_id) is None:
        return InvalidCenterId()
    if unit.configurations.get(session.center_id) is None:
        return PaymentConfigurationNotDone()
    if configuration.avs and collected.avs is AvsResult.MISMATCH:
        return IncorrectBillingAddress()
    if same is not None:
        # A stale result does not undo a renewal.
        is_stale = collected.collected_at < same.consented_at
        already_stored = is_stale or same.expires_with(collected.card)
    else:
        already_stored = bool(stored) and configuration.cards_per_guest is CardsPerGuest.ONE
    return PaymentMethodAlreadyExists() if already_stored else None
