"""Injects faults at calls to ports: before a call is made, or after the call has returned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Any, Final

from domain.errors import ServiceUnavailable
from domain.events.event_sender import EventNotSent
from domain.psps.payment_provider import ProviderRefused, ProviderUnavailable
from tests.simulation.ports import PSP_CALLS, SEND_EVENT, Moment
from tests.simulation.processes import Process

MAX_STEPS_AT_ONCE: Final = 3

_UNITS: Final = ("storage.read", "storage.write")
_COMMIT: Final = "write.commit"


class Fault(StrEnum):
    """What may happen at a call. The values appear in the history of a run."""

    KILLED = "the process is killed"
    STORAGE_DOWN = "the storage is down"
    SILENT = "the PSP does not respond"
    ENDPOINT_SILENT = "the endpoint does not respond"
    REFUSED = "the PSP refuses the call"
    INTERRUPTED = "something else happens first"


@dataclass(slots=True)
class Step:
    """A step that a process is doing. A fault is injected when `calls_left` reaches 0."""

    process: Process
    choices: Random
    calls_left: int
    had_fault: bool = False
    lacked_storage: bool = False


class Faults:
    """Injects faults into the innermost step in progress.

    - `lasting` maps the name of each call to the PSP that fails for a while to the moment and the
      kind of its fault.
    - `log` is called with a description of each fault.
    - `interrupt` does other steps in the middle of the step.
    - `has_page` returns whether the PSP has already created a page for an idempotency key. The
      contract of the port says that the PSP does not refuse a call that repeats such a key.
    """

    def __init__(
        self,
        *,
        log: Callable[[str], None],
        interrupt: Callable[[Random], None],
        has_page: Callable[[str], bool],
    ) -> None:
        self.steps: list[Step] = []
        self.lasting: dict[str, tuple[Moment, Fault]] = {}
        self.have_stopped = False
        self._log = log
        self._interrupt = interrupt
        self._has_page = has_page
        self._refused_for_good: set[str] = set()

    def on_call(self, call: str, moment: Moment, arguments: tuple[Any, ...] = ()) -> None:
        """Inject a fault at this call, or do nothing. Raises the error of the fault."""
        key = arguments[0].idempotency_key if call == "psp.start" else ""
        if self.steps and not self.have_stopped:
            step = self.steps[-1]
            fault = self._choose(step, call, moment, self._possible(call, moment, key))
            if fault:
                self._log(f"… {moment} {call}: {fault}")
                step.had_fault = True
                self._inject(fault, step, key)
        if key in self._refused_for_good and moment is Moment.BEFORE:
            raise ProviderRefused("as before")

    def _choose(self, step: Step, call: str, moment: Moment, possible: list[Fault]) -> Fault | None:
        if not possible:
            return None
        step.calls_left -= 1
        if step.calls_left == 0:
            return step.choices.choice(possible)
        at, fault = self.lasting.get(call, (None, None))
        return fault if at is moment and fault in possible else None

    def _possible(self, call: str, moment: Moment, key: str) -> list[Fault]:
        possible = []
        if call in PSP_CALLS:
            possible = [Fault.SILENT]
            if moment is Moment.BEFORE and not (key and self._has_page(key)):
                possible.append(Fault.REFUSED)
        elif call == SEND_EVENT:
            possible = [Fault.ENDPOINT_SILENT]
        elif call == _COMMIT or (call in _UNITS and moment is Moment.BEFORE):
            # If the storage fails after a commit, the data is stored, but the caller gets an error.
            possible = [Fault.STORAGE_DOWN]
        if call in (*_UNITS, *PSP_CALLS, SEND_EVENT) and len(self.steps) < MAX_STEPS_AT_ONCE:
            possible += [Fault.INTERRUPTED] * 3
        return [*possible, Fault.KILLED] if possible or call in _UNITS else []

    def _inject(self, fault: Fault, step: Step, key: str) -> None:
        match fault:
            case Fault.KILLED:
                step.process.die()
            case Fault.STORAGE_DOWN:
                step.lacked_storage = True
                raise ServiceUnavailable
            case Fault.SILENT:
                raise ProviderUnavailable(fault)
            case Fault.ENDPOINT_SILENT:
                raise EventNotSent(fault)
            case Fault.REFUSED:
                self._refused_for_good |= {key} if key else set()
                raise ProviderRefused(fault)
            case Fault.INTERRUPTED:
                self._interrupt(step.choices)
