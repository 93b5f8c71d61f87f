"""What `cardonfile reconcile` does: chores, then rounds of jobs until none is due."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from domain.errors import ServiceUnavailable
from domain.worker.reconcile import Reconcile, Round
from entrypoints.worker.reports import EndpointLog, report

REST_SECONDS: Final = 0.05
"""How long a chore of which there is more leaves the database to others."""

log = structlog.get_logger()


def run_until_idle(
    reconcile: Reconcile, chores: Sequence[Callable[[], bool | None]] = ()
) -> list[Round]:
    """Do the chores, and run rounds until nothing is due. Raises ServiceUnavailable at the end.

    An endpoint that does not take an event gets no other, so that a backlog of an endpoint that
    hangs does not hold up the rest for hours.
    """
    unavailable: list[ServiceUnavailable] = []
    for chore in chores:
        try:
            while chore():
                time.sleep(REST_SECONDS)
        except ServiceUnavailable as error:
            unavailable.append(error)
        except Exception as fault:
            log.error("reconciler_fault", exc_info=fault)
    rounds: list[Round] = []
    note_attempt = EndpointLog()
    while not rounds or not rounds[-1].is_idle:
        done = reconcile(except_to=rounds[-1].away if rounds else ())
        for attempt in done.attempts:
            note_attempt(attempt)
        report(done)
        rounds.append(done)
        unavailable += [done.unavailable] if done.unavailable else []
    if unavailable:
        raise unavailable[0]
    return rounds
