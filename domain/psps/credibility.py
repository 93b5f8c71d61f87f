"""Checks of a PSP's responses, before they are stored and used."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import chain
from typing import Final

from domain.card_numbers import holds_card_number
from domain.fields import is_clean
from domain.identifiers import CardToken, GuestReference
from domain.psps.card import Card, CardList, CardReading, Funding
from domain.psps.hosted_page import CardCollected, HostedPage, NoCardCollected, Outcome

_WORD: Final = re.compile(r"[!-~]{1,255}")
# @ is not allowed, because e-mail addresses contain it.
_REFUSAL_CODE: Final = re.compile(r"[A-Za-z0-9._:/|+-]{1,100}")
_COUNTRY: Final = re.compile(r"[A-Z]{2}")
_WALLET: Final = re.compile(r"[a-z0-9_]{1,32}")
_LAST_FOUR: Final = re.compile(r"[0-9]{4}")
_YEARS: Final = range(2000, 2100)
MAX_FIELDS_LENGTH: Final = 16 * 1024
"""The maximum total length of the fields of a form that opens a page, in characters."""


def is_credible_page(page: HostedPage) -> bool:
    """Return whether every field of a page that a PSP reports can be stored and used.

    Times are not compared with the service's clock, because that clock may be wrong.
    """
    return (
        _are_words(page.reference, page.guest_reference)
        and page.address.startswith(("https://", "http://"))
        and page.address.isprintable()
        and page.ends_at.year in _YEARS
        and len(repr(dict(page.fields))) <= MAX_FIELDS_LENGTH
        and all(map(_is_clean_text, chain.from_iterable(page.fields.items())))
    )


def is_credible(outcome: Outcome, page: HostedPage) -> bool:
    """Return whether every field of an outcome that a PSP reports can be stored and used.

    A collected card must belong to the guest of the page.
    """
    if not isinstance(outcome, CardCollected | NoCardCollected):
        return True
    is_of_guest = outcome.guest_reference == page.guest_reference and _are_words(outcome.token)
    if not is_of_guest or outcome.collected_at.year not in _YEARS:
        return False
    if isinstance(outcome, NoCardCollected):
        return True
    references = (outcome.charge_reference, outcome.network_transaction_id)
    return _is_credible_card(outcome.card) and all(
        each is None or _are_words(each) for each in references
    )


def is_credible_reading(
    reading: CardReading, guest_reference: GuestReference, token: CardToken
) -> bool:
    """Return whether a reading can be about the guest's card with this token."""
    card = reading.card
    return reading.read_at.year in _YEARS and (
        card is None
        or (
            (card.guest_reference, card.token) == (guest_reference, token)
            and _is_credible_card(card)
        )
    )


def is_credible_list(found: CardList, after: str | None) -> bool:
    """Return whether every field of a part of a list of cards can be used.

    The part was requested with `after`, the place where it begins. Return False if the list would
    continue at the same place, because reading the list would then never end.
    """
    return found.place != (after or "") and all(_are_words(*card) for card in found.cards)


def _is_credible_card(card: Card) -> bool:
    return (
        _are_words(card.fingerprint, card.card_logo)
        and _LAST_FOUR.fullmatch(card.last_four) is not None
        and card.expiry_month in range(1, 13)
        and card.expiry_year in _YEARS
    )


def without_false_details(outcome: Outcome) -> Outcome:
    """Return the outcome without facts that cannot be true, and without an invalid refusal code.

    A refusal code is invalid if it is malformed or contains a card number. The rest of the outcome
    can still be used.
    """
    if isinstance(outcome, CardCollected):
        outcome = replace(outcome, card=without_false_facts(outcome.card))
    code = outcome.refusal_code
    # An adapter of another distribution may return a value that is not text.
    if isinstance(code, str) and _REFUSAL_CODE.fullmatch(code) and not holds_card_number(code):
        return outcome
    return replace(outcome, refusal_code=None)


def without_false_facts(card: Card) -> Card:
    """Return a copy of the card that can be stored.

    In the copy, each fact that cannot be true is None, which means unknown.
    """
    country, wallet = card.issuer_country, card.wallet
    return replace(
        card,
        funding=Funding.named(card.funding),
        # An adapter of another distribution may return a value that is not text.
        issuer_country=country if _COUNTRY.fullmatch(f"{country}") else None,
        wallet=wallet if wallet and _WALLET.fullmatch(f"{wallet}") else None,
    )


def _is_clean_text(value: object) -> bool:
    # An adapter of another distribution may return a number.
    return isinstance(value, str) and is_clean(value)


def _are_words(*texts: str) -> bool:
    return all(map(_WORD.fullmatch, texts))
