"""Export all data that is stored about a guest."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final

from domain.audit.entry import Action
from domain.audit.note_act import NoteOperatorsAct
from domain.cards.account import Account, AccountFilter
from domain.desk_links.desk_link import DeskLink
from domain.errors import GuestNotFound
from domain.fields import parse_uuid
from domain.identifiers import TOKEN_PREFIX_LENGTH, GuestId, TokenId
from domain.pagination import ALL, PageRequest
from domain.portal.portal_session import PortalSession, PortalVisit
from domain.psps.evidence import Evidence
from domain.psps.hosted_page import HostedPage
from domain.sessions.earlier_page import EarlierPage
from domain.sessions.session import CardSession
from domain.storage import Storage, UnitOfWork

# At some PSPs, a page's reference opens the page, and the evidence contains the card's token.
_HIDDEN: Final = {
    Account: ["token", "charge_reference", "network_transaction_id"],
    EarlierPage: ["page_reference"],
    HostedPage: ["address", "fields", "reference"],
    Evidence: ["content"],
    CardSession: ["link_key"],
    DeskLink: ["secret_hash", "access_token_hash"],
    PortalSession: ["portal_id", "secret_hash", "access_token_hash"],
    PortalVisit: ["secret_hash"],
}
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportGuest:
    """Use case: return all data that is stored about a guest, as nested mappings.

    The export contains personal data, but nothing that gives access: sessions' tokens are shortened
    to a prefix, and the fields in _HIDDEN are left out. Each export is noted in the audit trail
    before it is returned. Raises InvalidField, or GuestNotFound if nothing is stored about the
    guest.
    """

    storage: Storage
    note: NoteOperatorsAct

    def __call__(self, guest_id: str) -> Mapping[str, object]:
        known_id = GuestId(parse_uuid("guest_id", guest_id))
        with self.storage.read() as unit:
            found = _on_file(unit, known_id)
        if not any(found.values()):
            raise GuestNotFound
        self.note(Action.GUEST_EXPORTED, known_id)
        return found


def _on_file(unit: UnitOfWork, guest_id: GuestId) -> dict[str, object]:
    guest = unit.guests.get(guest_id)
    accounts = unit.accounts.search(AccountFilter(guest_id=guest_id), limit=ALL)
    consents = [consent for account in accounts for consent in unit.consents.of(account)]
    agreements = unit.agreements.of_guest(guest_id)
    sessions = unit.sessions.page(guest_id, None, PageRequest(size=ALL)).items
    refused_cards = unit.refused_cards.of_guest(guest_id)
    merged = unit.erasures.merged_into(guest_id)
    deliveries = [
        delivery
        for each in (guest_id, *merged)
        for delivery in unit.event_deliveries.about_guest(each)
    ]
    events = [event for each in (guest_id, *merged) for event in unit.events.about_guest(each)]
    tokens = {
        *(account.token_id for account in accounts),
        *(consent.token_id for consent in consents),
        *(agreement.token_id for agreement in agreements),
        *(session.token_id for session in sessions),
        *(card.token_id for card in refused_cards),
        *(delivery.event.token_id for delivery in deliveries),
        *(event.token_id for event in events),
    }
    noted_about = {
        guest_id,
        *merged,
        *(account.account_id for account in accounts),
        *(token[:TOKEN_PREFIX_LENGTH] for token in tokens),
    }
    found: dict[str, object] = {
        "guest": guest,
        "merged_guests": merged,
        "accounts": accounts,
        "consents": consents,
        "agreements": agreements,
        "sessions": [
            {
                **_shown(session, tokens),
                "earlier_pages": unit.earlier_pages.of(session.token_id),
                "evidence": unit.evidence.of(session.token_id),
                "desk_links": unit.desk_links.of(session.token_id),
            }
            for session in sessions
        ],
        "refused_cards": refused_cards,
        "psp_references": [
            {**account._asdict(), "guest_reference": reference}
            for account, reference in unit.guest_references.of(guest_id)
        ],
        "events": events,
        "portal_sessions": unit.portal_sessions.of(guest_id),
        "event_deliveries": deliveries,
        "audit_entries": [
            entry for about in sorted(noted_about) for entry in unit.audit_trail.latest(about=about)
        ],
    }
    return {name: _shown(value, tokens) for name, value in found.items()}


def _shown(value: Any, tokens: Collection[TokenId]) -> Any:  # a value of any type
    """Return a value with its records converted to mappings, without anything that gives access.

    The fields in _HIDDEN are left out, and `tokens` are shortened to a prefix in all texts.
    """
    if is_dataclass(value):
        hidden = _HIDDEN.get(type(value), ())
        names = [field.name for field in fields(value) if field.name not in hidden]
        return {name: _shown(getattr(value, name), tokens) for name in names}
    if isinstance(value, dict):
        return {name: _shown(part, tokens) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(part, tokens) for part in value]
    if isinstance(value, str):
        return _UUID.sub(
            lambda it: it[0][: TOKEN_PREFIX_LENGTH if it[0] in tokens else None], value
        )
    return value
