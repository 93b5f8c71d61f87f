"""Refused cards, which are counted for 24 hours against card testing."""

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
"""WINDOW, plus a margin for clocks that are slightly ahead. A later entry comes from a wrong clock.
It is not counted, so that it does not lock out a guest.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedCard:
    """A card that was refused in a session.

    The guest typed the card on the page of `attempt`. `number` counts the refused cards of the page
    from 1. It is 0 if the page accepted the card, but cardonfile's rules refused it. Attempt and
    number identify the refusal within the session, so a repeated report is stored once.

    `refused_at` is when the service learned of the refusal. `code` is the PSP's reason. It is None
    if the PSP gave no reason. If the service learned of several refusals at once, only the last
    card has a code.
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
    """The number of sessions and refused cards at a center in the last 24 hours."""

    center_id: CenterId
    sessions: int
    refused_cards: int


class RefusedCards(Protocol):
    """The refused cards, and the limits on refused cards and sessions."""

    def add(self, cards: Iterable[RefusedCard]) -> int:
        """Store refused cards, and return how many were new. Known cards stay unchanged."""
        ...

    def of(self, token_id: TokenId) -> Sequence[RefusedCard]:
        """Return the refused cards of a session, ordered by attempt and number."""
        ...

    def of_guest(self, guest_id: GuestId) -> Sequence[RefusedCard]:
        """Return the refused cards of a guest, oldest first."""
        ...

    def give(self, goes: GuestId, stays: GuestId) -> None:
        """Give the refused cards of a guest to another, so that they count together."""
        ...

    def reached(
        self, limits: Sequence[CardLimit], session: CardSession, *, since: datetime
    ) -> Mapping[CardLimit, datetime]:
        """Return each reached limit, with the time since which it has been reached.

        A limit of n is reached if the guest, caller or center of the session has n sessions or
        refused cards within COUNTED_FOR after `since`, whether or not the session itself is stored.
        The time is that of the n-th latest session or refused card. A call reads n entries of an
        index for each limit, and all entries of the guest for a limit on a guest at a center. A
        write unit locks the guest: other units wait until it ends, so they see what it adds for the
        guest.
        """
        ...

    def at_centers(self, *, since: datetime, at_least: int) -> Sequence[CardsAtCenter]:
        """Return the centers with at least that many refused cards after `since`.

        Only the latest 10,000 refused cards are counted.
        """
        ...
