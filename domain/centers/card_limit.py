"""Limits on the cards that may be tried in 24 hours, against card testing.

Criminals try stolen card numbers on any page that adds a card. Two things show such tries, and both
are counted: sessions and refused cards.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain
from typing import Final


class Counted(StrEnum):
    """What a limit counts."""

    SESSIONS = "sessions"
    REFUSED_CARDS = "refused cards"


class CountedPer(StrEnum):
    """What a limit counts sessions and refused cards for.

    `GUEST` counts those of a guest at one center, `GUEST_EVERYWHERE` at all centers.
    """

    GUEST = "guest"
    GUEST_EVERYWHERE = "guest-everywhere"
    CALLER = "caller"
    CENTER = "center"


@dataclass(frozen=True, slots=True)
class CardLimit:
    """The most sessions or refused cards that a guest, a caller or a center may have in 24 hours."""

    counted: Counted
    per: CountedPer
    at_most: int

    @property
    def is_on_a_guest(self) -> bool:
        """Whether the limit is on a guest, at one center or at all centers."""
        return self.per in (CountedPer.GUEST, CountedPer.GUEST_EVERYWHERE)

    def times(self, factor: int) -> CardLimit:
        """Return this limit, multiplied by a factor."""
        return replace(self, at_most=self.at_most * factor)


DEFAULT_LIMITS: Final = (
    CardLimit(Counted.SESSIONS, CountedPer.GUEST, 10),
    CardLimit(Counted.REFUSED_CARDS, CountedPer.GUEST, 10),
    CardLimit(Counted.REFUSED_CARDS, CountedPer.GUEST_EVERYWHERE, 30),
    CardLimit(Counted.SESSIONS, CountedPer.CALLER, 5_000),
    CardLimit(Counted.REFUSED_CARDS, CountedPer.CALLER, 500),
    CardLimit(Counted.SESSIONS, CountedPer.CENTER, 1_000),
    CardLimit(Counted.REFUSED_CARDS, CountedPer.CENTER, 200),
)
"""The limits unless an operator sets others. docs/operations.md gives the reasons."""

LIMITS_OF_A_CENTER: Final = frozenset({CountedPer.GUEST, CountedPer.CENTER})
"""The limits that a center may set for itself: they count only at that center."""

_OFF: Final = "off"
_LIMITS: Final = re.compile(rf"([a-z-]+)=({_OFF}|[1-9][0-9]{{0,5}})/({_OFF}|[1-9][0-9]{{0,5}})")


def parse_card_limits(
    value: str,
    limits: Sequence[CardLimit],
    *,
    allowed: Collection[CountedPer] = frozenset(CountedPer),
) -> Sequence[CardLimit]:
    """Return `limits`, changed as a text such as `guest=10/10,center=off/500` says.

    The numbers are sessions and refused cards in 24 hours. Limits that are not named stay
    unchanged. Raises ValueError for any other text, and for a name that is repeated or not
    `allowed`.
    """
    named: dict[CountedPer, list[CardLimit]] = {}
    for part in value.split(",") if value else ():
        found = _LIMITS.fullmatch(part.strip())
        if found is None or found[1] in named or found[1] not in allowed:
            raise ValueError(value)
        per = CountedPer(found[1])
        named[per] = [
            CardLimit(counted, per, int(at_most))
            for counted, at_most in zip(Counted, found.groups()[1:], strict=True)
            if at_most != _OFF
        ]
    others = (limit for limit in limits if limit.per not in named)
    return (*others, *chain.from_iterable(named.values()))
