"""Protection against card testing: apply the limits, and find centers that may be under attack."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from domain.centers.card_limit import CardLimit, Counted, CountedPer
from domain.errors import CardLimitReached
from domain.outside import Clock
from domain.sessions.refused_card import WINDOW, CardsAtCenter
from domain.sessions.session import CardSession
from domain.storage import Storage, UnitOfWork

MANY_REFUSED_CARDS: Final = 20
SESSIONS_PER_REFUSED_CARD: Final = 4

LIMIT_FACTOR_WITHOUT_REFUSALS: Final = 5
"""For guests without a refused card, the limits of a center are multiplied by this number."""
_HAS_REFUSALS: Final = CardLimit(Counted.REFUSED_CARDS, CountedPer.GUEST_EVERYWHERE, 1)


def require_below_limits(
    unit: UnitOfWork, limits: Sequence[CardLimit], session: CardSession, now: datetime
) -> bool:
    """Raise CardLimitReached if the guest, the caller or the center has reached a limit.

    One person with a few customer accounts at a shop can exhaust the limits of a center. For a
    guest without a refused card in the last 24 hours, each of these limits is therefore five times
    as high. If the center has reached the usual limit, such a guest must click before a page is
    created. Programs that follow links do not click.

    Return whether the guest must click. Changes nothing. CardLimitReached states how long to wait
    until all limits allow a session.
    """
    since = now - WINDOW
    reached = dict(unit.refused_cards.reached(limits, session, since=since)) if limits else {}
    of_center = [limit for limit in reached if limit.per is CountedPer.CENTER]
    needs_click = bool(of_center) and not unit.refused_cards.reached(
        [_HAS_REFUSALS, *(limit.times(LIMIT_FACTOR_WITHOUT_REFUSALS) for limit in of_center)],
        session,
        since=since,
    )
    if needs_click:
        for limit in of_center:
            del reached[limit]
    if reached:
        limit, full_since = max(reached.items(), key=lambda each: each[1])
        # The clock of another machine may be slightly ahead.
        wait = min(full_since, now) + WINDOW - now
        whose = {CountedPer.CALLER: session.caller, CountedPer.CENTER: session.center_id}
        raise CardLimitReached(
            counted=f"{limit.counted} per {limit.per}",
            of=whose.get(limit.per, session.guest_id),
            retry_after_seconds=max(1, math.ceil(wait.total_seconds())),
        )
    return needs_click


def on_refused_cards(limits: Sequence[CardLimit]) -> Sequence[CardLimit]:
    """Return the limits that count refused cards."""
    return [limit for limit in limits if limit.counted is Counted.REFUSED_CARDS]


def limits_that_close_pages(
    limits: Sequence[CardLimit], session: CardSession
) -> Sequence[CardLimit]:
    """Return the limits on a guest's refused cards.

    If one of these limits is reached, the guest's open pages are closed. Limits on callers and
    centers do not close pages, because they count other guests' cards too.
    """
    refused_cards = on_refused_cards(session.configuration.card_limits(limits))
    return [limit for limit in refused_cards if limit.is_per_guest]


def must_close_page(
    unit: UnitOfWork, limits: Sequence[CardLimit], session: CardSession, now: datetime
) -> bool:
    """Return whether so many cards of the guest were refused that an open page must be closed."""
    of_guests, since = limits_that_close_pages(limits, session), now - WINDOW
    return bool(of_guests and unit.refused_cards.reached(of_guests, session, since=since))


@dataclass(frozen=True, slots=True, kw_only=True)
class FindCardTesting:
    """Use case: find the centers where unusually many cards were refused in the last 24 hours.

    Such a center had at least 20 refused cards, and more than one refused card for every four
    sessions. Changes nothing. Raises ServiceUnavailable.
    """

    storage: Storage
    clock: Clock

    def __call__(self) -> Sequence[CardsAtCenter]:
        since = self.clock.now() - WINDOW
        with self.storage.read() as unit:
            centers = unit.refused_cards.at_centers(since=since, at_least=MANY_REFUSED_CARDS)
        return [
            center
            for center in centers
            if center.refused_cards * SESSIONS_PER_REFUSED_CARD > center.sessions
        ]
