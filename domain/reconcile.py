"""Settle or expire what nobody came back for, and finish what a process left undone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from domain.card_sessions import CardSession
from domain.discard_tokens import DiscardToken
from domain.discards import Discard
from domain.errors import ServiceUnavailable
from domain.ports import Clock
from domain.retries import is_alarming
from domain.settle_session import SettleSession

MAX_PER_ROUND: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What one round of reconciling did.

    `sessions` and `discards` count what was taken up; `faults` holds what went wrong with single
    ones, which are taken up again later; `silent` counts those about which their PSP was asked
    again in vain, and has not answered for 24 hours.
    """

    sessions: int = 0
    discards: int = 0
    faults: Sequence[Exception] = ()
    silent: int = 0

    @property
    def is_idle(self) -> bool:
        """Tell whether there was nothing to do."""
        return self.sessions == 0 and self.discards == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconcile:
    """Use case: take up the sessions and discards that are due, one after the other.

    One round takes up 100 of each at most. One that fails stops no other. May run in several
    processes at once: each due one is taken by one of them. Raises ServiceUnavailable.
    """

    settle: SettleSession
    discard_token: DiscardToken
    clock: Clock

    def __call__(self, *, is_stopping: Callable[[], bool] = lambda: False) -> Round:
        """Do one round; `is_stopping` ends it early, between two of them."""
        faults: list[Exception] = []
        sessions = discards = silent = 0
        for _ in range(MAX_PER_ROUND):
            taken = None if is_stopping() else self.settle.take()
            discard = None if is_stopping() else self.discard_token.take()
            if taken is None and discard is None:
                break
            if taken is not None:
                sessions += 1
                with _set_aside(faults):
                    session = self.settle(taken.token_id)
                    silent += session is not None and self._is_silent(session)
            if discard is not None:
                discards += 1
                with _set_aside(faults):
                    silent += self._is_silent(self.discard_token(discard))
        return Round(sessions=sessions, discards=discards, faults=faults, silent=silent)

    def _is_silent(self, asked: CardSession | Discard) -> bool:
        return is_alarming(asked.unanswered_since, self.clock.now())


@contextmanager
def _set_aside(faults: list[Exception]) -> Iterator[None]:
    """Keep a fault for the report: one session that stumbles must not keep others waiting."""
    try:
        yield
    except ServiceUnavailable:
        raise
    except Exception as fault:  # noqa: BLE001 - whatever an adapter's bug may raise
        faults.append(fault)
