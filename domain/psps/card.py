"""Cards, card readings and card lists, as PSPs report them."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from domain.identifiers import CardToken, GuestReference

EXPIRY_NOTICES: Final = (30, 7)
"""How many days before a card's last day its expiry events are sent."""


class Funding(StrEnum):
    """The kind of a card: whether charges are paid from credit, from an account or in advance."""

    CREDIT = "credit"
    DEBIT = "debit"
    PREPAID = "prepaid"

    @classmethod
    def named(cls, name: object) -> Funding | None:
        """Return the funding with this name, or None for any other value."""
        return next((each for each in cls if each == name), None)


FACTS: Final = ("funding", "issuer_country", "wallet")
"""The fields of a card that are None if the PSP does not report them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A card as the PSP reports it, without its number and CVC.

    A payment charges `token`, which belongs to the guest `guest_reference` at the PSP. Within a
    merchant account, the same card number always has the same `fingerprint`. `expiry_month` is 1 to
    12, and `expiry_year` has four digits.

    `issuer_country` is the country of the bank that issued the card (ISO 3166-1 alpha-2). `wallet`
    is the wallet from which the guest chose the card, such as `apple_pay`. These two and `funding`
    are None if the PSP does not report them; they are never guessed.
    """

    guest_reference: GuestReference
    token: CardToken
    fingerprint: str
    card_logo: str
    last_four: str
    expiry_month: int
    expiry_year: int
    funding: Funding | None = None
    issuer_country: str | None = None
    wallet: str | None = None

    def with_facts_of(self, earlier: Card) -> Card:
        """Return a copy of this card, in which missing FACTS are filled in from `earlier`.

        `earlier` must be an earlier report about the same card.
        """
        known = {name: getattr(self, name) or getattr(earlier, name) for name in FACTS}
        return replace(self, **known)

    def has_expired(self, now: datetime) -> bool:
        """Return whether the expiry month is over in UTC."""
        return (now.year, now.month) > (self.expiry_year, self.expiry_month)

    def expires_with(self, other: Card) -> bool:
        """Return whether both cards have the same expiry date."""
        return (self.expiry_year, self.expiry_month) == (other.expiry_year, other.expiry_month)

    @property
    def last_day(self) -> datetime:
        """The start, in UTC, of the last day on which the card can be charged."""
        _, days = monthrange(self.expiry_year, self.expiry_month)
        return datetime(self.expiry_year, self.expiry_month, days, tzinfo=UTC)

    def next_expiry_notice(self, now: datetime) -> datetime | None:
        """Return the time of the next expiry event, or None if there is no further event."""
        times = [self.last_day - timedelta(days=days) for days in EXPIRY_NOTICES]
        return next((time for time in times if time > now), None)

    def days_of_expiry_notice(self, now: datetime) -> int | None:
        """Return which expiry event is due: 30 or 7, the number of days before the card's last day.

        Return None if the first event is not due yet, or if the card has expired.
        """
        if self.has_expired(now):
            return None
        begun = [days for days in EXPIRY_NOTICES if self.last_day - timedelta(days=days) <= now]
        return min(begun, default=None)

    @property
    def expiry_on(self) -> str:
        """The expiry date as printed on cards: MM/YY."""
        return f"{self.expiry_month:02}/{self.expiry_year % 100:02}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CardReading:
    """The present state of a stored card at the PSP.

    `card` is None if the card is gone. `read_at` is the time at which the PSP had this state. It is
    the time in the PSP's response, or the time of the request if the response contains no time.
    """

    card: Card | None
    read_at: datetime


class CardAtPsp(NamedTuple):
    """A card that a PSP has stored, and the PSP's reference for the guest who owns the card."""

    guest_reference: GuestReference
    token: CardToken


class CardList(NamedTuple):
    """A part of the list of a merchant account's cards.

    `place` is where the list continues, or None if this is the last part.
    """

    cards: Sequence[CardAtPsp]
    place: str | None
