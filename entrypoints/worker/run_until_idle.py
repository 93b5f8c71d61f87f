"""What `cardonfile reconcile` does: chores, then rounds of jobs until none is due."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from domain.errors import ServiceUnavailable
from domain.worker.reconcile import Reconcile, Round
from entrypoints.worker.reports import EndpointLog, report

log = structlog.get_logger()


def run_until_idle(reconcile: Reconcile, chores: Sequence[Callable[[], None]] = ()) -> list[Round]:
    """Do the chores, and run rounds until nothing is due. Raises ServiceUnavailable at the end.

    An endpoint that does not take an event gets no other, so that a backlog of an endpoint that
    hangs does not hold up the rest for hours.
    """
    unavailable: list[ServiceUnavailable] = []
    for chore in chores:
        try:
            chore()
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
