"""Refused cards. They are counted for 24 hours, to protect against card testing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from domain.centers.card_limit import CardLimit
from domain.identifiers import CallerName, CenterId, GuestId, TokenId
from domain.sessions.session import CardSession

WINDOW: Final = timedelta(hours=24)
"""How long a session or a refused card counts toward the limits."""
COUNTED_FOR: Final = WINDOW + timedelta(hours=1)
"""The length of the period in which entries are counted. The period begins WINDOW ago and ends an
hour from now, because the clock of another machine may be slightly ahead. An entry with a later
time comes from a wrong clock. It is not counted, so that it does not lock out a guest.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedCard:
    """A card that was refused in a session.

    The guest typed in the card on the page of `attempt`. `number` counts the refused cards of the
    page from 1. It is 0 if the page accepted the card, but a rule of cardonfile refused it. The
    attempt and the number identify the refusal within the session, so a repeated report is stored
    once.

    `refused_at` is when the service learned of the refusal. `code` is the PSP's reason, or None if
    the PSP did not give a reason. If the service learned of several refusals at once, only the last
    of these cards has a code.
    """

    token_id: TokenId
    attempt: int
    number: int
    guest_id: GuestId
    caller: CallerName
    center_id: CenterId
    refused_at: datetime
    code: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CardsAtCenter:
    """How many sessions and refused cards there were at a center in the last 24 hours."""

    center_id: CenterId
    sessions: int
    refused_cards: int


class RefusedCards(Protocol):
    """Repository of refused cards. It also counts sessions and refused cards for the limits."""

    def add(self, cards: Iterable[RefusedCard]) -> int:
        """Store refused cards, and return how many were new. Cards already stored do not change."""
        ...

    def of(self, token_id: TokenId) -> Sequence[RefusedCard]:
        """Return the refused cards of a session, ordered by attempt and number."""
        ...

    def of_guest(self, guest_id: GuestId) -> Sequence[RefusedCard]:
        """Return the refused cards of a guest, oldest first."""
        ...

    def reassign(self, merged: GuestId, remaining: GuestId) -> None:
        """Move the refused cards of the guest `merged` to the guest `remaining`.

        The cards of both guests are then counted together.
        """
        ...

    def reached(
        self, limits: Sequence[CardLimit], session: CardSession, *, since: datetime
    ) -> Mapping[CardLimit, datetime]:
        """Return the limits that are reached, each with the time of its n-th latest entry.

        Here, n is the limit's `at_most`. The entries of a limit are the sessions or refused cards
        of the session's guest, caller or center. Only entries in the period that begins at `since`
        and lasts for COUNTED_FOR are counted. The session itself need not be stored.

        A limit is reached if at least n entries are counted. It stays reached until its n-th latest
        entry is older than WINDOW.

        In a write unit, this call also locks the guest. Other write units that make this call for
        the guest wait until the first unit ends, and then see the entries that it has added.
        """
        ...

    def at_centers(self, *, since: datetime, at_least: int) -> Sequence[CardsAtCenter]:
        """Return the centers with at least `at_least` refused cards after `since`.

        Only the latest 10,000 refused cards of all centers are counted.
        """
        ...
