"""What `cardonfile reconcile` does: chores, then rounds of jobs until none is due."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import structlog

from domain.errors import ServiceUnavailable
from domain.worker.reconcile import Reconcile, Round
from entrypoints.worker.reports import EndpointLog, report

REST_SECONDS: Final = 0.05
"""How long a chore of which there is more leaves the database to others."""

log = structlog.get_logger()


Chore: TypeAlias = Callable[[], bool | None]
"""Something that is done each time; it returns True if there is more to do."""


def run_until_idle(reconcile: Reconcile, chores: Sequence[Chore] = ()) -> list[Round]:
    """Do the chores, run rounds until nothing is due, and do the rest of the chores.

    An endpoint that does not take an event gets no other, so that a backlog of an endpoint that
    hangs does not hold up the rest for hours. Raises ServiceUnavailable at the end.
    """
    unavailable: list[ServiceUnavailable] = []
    left = [chore for chore in chores if _is_more(chore, unavailable)]
    rounds: list[Round] = []
    note_attempt = EndpointLog()
    while not rounds or not rounds[-1].is_idle:
        done = reconcile(except_to=rounds[-1].away if rounds else ())
        for attempt in done.attempts:
            note_attempt(attempt)
        report(done)
        rounds.append(done)
        unavailable += [done.unavailable] if done.unavailable else []
    while left:
        time.sleep(REST_SECONDS)
        left = [chore for chore in left if _is_more(chore, unavailable)]
    if unavailable:
        raise unavailable[0]
    return rounds


def _is_more(chore: Chore, unavailable: list[ServiceUnavailable]) -> bool:
    try:
        return bool(chore())
    except ServiceUnavailable as error:
        unavailable.append(error)
    except Exception as fault:
        log.error("reconciler_fault", exc_info=fault)
    return False
