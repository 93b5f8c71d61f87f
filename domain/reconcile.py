"""Settle or expire what nobody came back for, and finish what a process left undone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from domain.add_card import IDEMPOTENCY_KEYS_LAST
from domain.card_sessions import CardSession
from domain.discard_tokens import GIVEN_BACK_AFTER, DiscardToken
from domain.errors import ServiceUnavailable
from domain.identifiers import TokenId
from domain.ports import Clock, Storage
from domain.settle_session import SettleSession

MAX_PER_ROUND: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What one round of reconciling did.

    `sessions` and `discards` count what was taken up; `faults` holds what went wrong with single
    ones, which are taken up again later; `silent` names sessions that were asked for again in
    vain, and about which their PSP has not answered for 24 hours.
    """

    sessions: int
    discards: int
    faults: Sequence[Exception]
    silent: Sequence[TokenId]

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

    storage: Storage
    settle: SettleSession
    discard_token: DiscardToken
    clock: Clock

    def __call__(self) -> Round:
        """Do one round."""
        faults: list[Exception] = []
        silent: list[TokenId] = []
        sessions = discards = 0
        while sessions < MAX_PER_ROUND and (session := self._take_session()):
            sessions += 1
            with _set_aside(faults):
                settled = self.settle(session.token_id)
                if settled is not None and settled.has_been_silent_for_a_day(self.clock.now()):
                    silent.append(session.token_id)
        while discards < MAX_PER_ROUND and (discard := self.discard_token.take()):
            discards += 1
            with _set_aside(faults):
                self.discard_token(discard)
        with self.storage.write() as unit:
            unit.idempotency_keys.forget(before=self.clock.now() - IDEMPOTENCY_KEYS_LAST)
            unit.commit()
        return Round(sessions=sessions, discards=discards, faults=faults, silent=silent)

    def _take_session(self) -> CardSession | None:
        now = self.clock.now()
        with self.storage.write() as unit:
            session = unit.sessions.take_due(now, until=now + GIVEN_BACK_AFTER)
            unit.commit()
        return session


@contextmanager
def _set_aside(faults: list[Exception]) -> Iterator[None]:
    """Keep a fault for the report: one session that stumbles must not keep others waiting."""
    try:
        yield
    except ServiceUnavailable:
        raise
    except Exception as fault:  # noqa: BLE001 - whatever an adapter's bug may raise
        faults.append(fault)
