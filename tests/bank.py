"""Simulates a bank that gives a stored card of the fake PSP a new number and expiry date."""

from __future__ import annotations

from dataclasses import replace

from adapters.fake_psp.cards import TEST_CARDS, CardEntry
from adapters.fake_psp.database import rows
from adapters.fake_psp.psp import FakePsp, _decode, _encode
from domain.identifiers import CardToken
from domain.psps.card import Card


def update_card(psp: FakePsp, token: CardToken, entry: CardEntry) -> Card:
    """Update a card at the PSP without sending an event. Return the updated card."""
    with psp._database.write() as db:
        (found,) = rows(db, "SELECT page FROM pages WHERE page ->> '$.card.token' = ?", (token,))
        page = _decode(found["page"])
        card = replace(psp._card(page, entry, TEST_CARDS[entry.number]), token=token)
        updated = replace(page, card=card)
        db.execute(
            "UPDATE pages SET page = ? WHERE reference = ?", (_encode(updated), page.reference)
        )
    return card
