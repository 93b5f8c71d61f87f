"""Limits on the number of cards that may be tried in 24 hours, against card testing.

Criminals test stolen card numbers on any page that adds a card. Many sessions or many refused cards
are a sign of such tests, so both are counted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain
from typing import Final


class Counted(StrEnum):
    """The things that a limit can count."""

    SESSIONS = "sessions"
    REFUSED_CARDS = "refused cards"


class CountedPer(StrEnum):
    """Which sessions and refused cards a limit counts together.

    With `GUEST`, each guest at each center has a separate count. With `GUEST_EVERYWHERE`, each
    guest has one count for all centers together.
    """

    GUEST = "guest"
    GUEST_EVERYWHERE = "guest-everywhere"
    CALLER = "caller"
    CENTER = "center"


@dataclass(frozen=True, slots=True)
class CardLimit:
    """How many sessions or refused cards a guest, a caller or a center may have in 24 hours.

    `at_most` is the highest number that is allowed.
    """

    counted: Counted
    per: CountedPer
    at_most: int

    @property
    def is_per_guest(self) -> bool:
        """Whether each guest has a separate count: `per` is `GUEST` or `GUEST_EVERYWHERE`."""
        return self.per in (CountedPer.GUEST, CountedPer.GUEST_EVERYWHERE)

    def times(self, factor: int) -> CardLimit:
        """Return a copy of this limit with `at_most` multiplied by `factor`."""
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
"""The limits that apply unless an operator sets others. docs/operations.md gives the reasons."""

LIMITS_OF_A_CENTER: Final = frozenset({CountedPer.GUEST, CountedPer.CENTER})
"""The limits that can be set for a single center, because they count only at one center."""

_OFF: Final = "off"
_LIMITS: Final = re.compile(rf"([a-z-]+)=({_OFF}|[1-9][0-9]{{0,5}})/({_OFF}|[1-9][0-9]{{0,5}})")


def parse_card_limits(
    value: str,
    limits: Sequence[CardLimit],
    *,
    allowed: Collection[CountedPer] = frozenset(CountedPer),
) -> Sequence[CardLimit]:
    """Return `limits` with the changes that `value` specifies, such as `guest=10/10,center=off/500`.

    The first number limits sessions, and the second number limits refused cards, both in 24 hours.
    Limits that `value` does not name stay unchanged. Raises ValueError for any other text, and for
    a name that is repeated or not `allowed`.
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
