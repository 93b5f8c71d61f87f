"""A card as the PSP reports it."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from domain.identifiers import CardToken, GuestReference

EXPIRY_NOTICES: Final = (30, 7)
"""How many days before a card's last day its client is told, once each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A card as the PSP reports it, without its number and CVC.

    A payment operation charges `token`, which belongs to `guest_reference` at the PSP. The same
    card number has the same `fingerprint` within a merchant account. `expiry_month` is 1 to 12,
    `expiry_year` has four digits.
    """

    guest_reference: GuestReference
    token: CardToken
    fingerprint: str
    card_logo: str
    last_four: str
    expiry_month: int
    expiry_year: int

    def has_expired(self, now: datetime) -> bool:
        """Return whether the last day of the expiry month is over; `now` is in UTC."""
        return (now.year, now.month) > (self.expiry_year, self.expiry_month)

    def expires_with(self, other: Card) -> bool:
        """Return whether both have the same expiry date."""
        return (self.expiry_year, self.expiry_month) == (other.expiry_year, other.expiry_month)

    @property
    def last_day(self) -> datetime:
        """The start, in UTC, of the last day on which it can be charged."""
        _, days = monthrange(self.expiry_year, self.expiry_month)
        return datetime(self.expiry_year, self.expiry_month, days, tzinfo=UTC)

    def next_expiry_notice(self, now: datetime) -> datetime | None:
        """Return when its client is told next that it expires soon, or None if it is not."""
        times = [self.last_day - timedelta(days=days) for days in EXPIRY_NOTICES]
        return next((time for time in times if time > now), None)

    def days_of_expiry_notice(self, now: datetime) -> int | None:
        """Return which notice is due: 30 or 7, for that many days before the card's last day.

        None before the first is due, and once the card has expired.
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
    """A stored card as it is at the PSP, or None if it is gone there.

    `read_at` is when the PSP says so, by the PSP's clock if its response tells the time.
    """

    card: Card | None
    read_at: datetime


class CardAtPsp(NamedTuple):
    """A card that a PSP has stored, and the guest whom it belongs to there."""

    guest_reference: GuestReference
    token: CardToken


class CardList(NamedTuple):
    """Some of the cards of a merchant account, and the place after them; None at the end."""

    cards: Sequence[CardAtPsp]
    place: str | None
