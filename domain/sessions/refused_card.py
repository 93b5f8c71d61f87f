"""Cards that were refused, which are counted for 24 hours against card testing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from domain.centers.card_limit import CardLimit
from domain.identifiers import CallerName, CenterId, GuestId, TokenId
from domain.sessions.session import CardSession

WINDOW: Final = timedelta(hours=24)
"""How long a session or a refused card counts."""
COUNTED_FOR: Final = WINDOW + timedelta(hours=1)
"""The same, with what a clock that is a little ahead has dated in the future. The rest is no more
than a wrong clock has left, and must not lock out a guest for as long as it was wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedCard:
    """A card that was refused in a session.

    `attempt` is the attempt whose page it was tried on. `number` counts the cards that the page
    refused, from 1; it is 0 for the card that the page collected and our rules refused. So the same
    refusal, reported again, is the same record. `refused_at` is when we learned of it. `code` is the
    PSP's word for why; None if it did not tell, or if we learned of several cards at once and this
    was not the last.
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
    """How many sessions and refused cards a center had in the last 24 hours."""

    center_id: CenterId
    sessions: int
    refused_cards: int


class RefusedCards(Protocol):
    """Cards that were refused, and the limits on them and on sessions."""

    def add(self, cards: Iterable[RefusedCard]) -> int:
        """Store refused cards, and return how many were new. The others stay as they are."""
        ...

    def of(self, token_id: TokenId) -> Sequence[RefusedCard]:
        """Return the cards that were refused in a session, by attempt and number."""
        ...

    def of_guest(self, guest_id: GuestId) -> Sequence[RefusedCard]:
        """Return the refused cards of a guest, oldest first."""
        ...

    def reached(
        self, limits: Sequence[CardLimit], session: CardSession, *, since: datetime
    ) -> Mapping[CardLimit, datetime]:
        """Return the limits that are reached, each with the time from which on it is full.

        A limit of n is reached when the session's guest, caller or center has n sessions or refused
        cards within COUNTED_FOR after `since`, whether the session itself is stored or not; it is
        full from the n-th latest on. Costs as much as reading n entries of an index for each limit,
        and for a guest at a center all entries of the guest. A write unit locks the guest: other
        units wait here until it ends, so that none misses what another adds for the same guest.
        """
        ...

    def at_centers(self, *, since: datetime, at_least: int) -> Sequence[CardsAtCenter]:
        """Return the centers with at least that many refused cards after `since`.

        Counts the latest 10,000 refused cards only.
        """
        ...
