"""What goes wrong between two steps: at any call to a port, before it is made or after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Any, Final

from domain.errors import ServiceUnavailable
from domain.ports import ProviderRefused, ProviderUnavailable
from tests.simulation.ports import PSP_CALLS, Moment
from tests.simulation.processes import Process

AT_ONCE: Final = 3
"""So many steps are under way at the same time at most."""

_UNITS: Final = ("storage.read", "storage.write")
_COMMIT: Final = "write.commit"


class Fault(StrEnum):
    """What may happen at a call; each value ends a sentence that begins with the call."""

    KILLED = "the process is killed"
    STORAGE_AWAY = "the storage is away"
    SILENT = "the PSP gives no answer"
    REFUSED = "the PSP refuses the call"
    MEANWHILE = "something else comes first"


@dataclass(slots=True)
class Step:
    """A step that a process is doing. The last of `calls_left` calls brings a fault."""

    process: Process
    choices: Random
    calls_left: int
    had_fault: bool = False


class Faults:
    """Lets things go wrong at the calls of the step that is under way.

    `lasting` names calls to the PSP that go wrong for a while, and how. `meanwhile` has something
    else happen; `has_page` says whether the PSP has made the page of an idempotency key: such a
    call it does not refuse, as a port promises.
    """

    def __init__(
        self,
        *,
        tell: Callable[[str], None],
        meanwhile: Callable[[Random], None],
        has_page: Callable[[str], bool],
    ) -> None:
        self.steps: list[Step] = []
        self.lasting: dict[str, tuple[Moment, Fault]] = {}
        self.have_stopped = False
        self._tell = tell
        self._meanwhile = meanwhile
        self._has_page = has_page
        self._refused_for_good: set[str] = set()

    def hear(self, call: str, moment: Moment, arguments: tuple[Any, ...] = ()) -> None:
        """Let a call pass, or have it go wrong."""
        key = arguments[0].idempotency_key if call == "psp.start" else ""
        if self.steps and not self.have_stopped:
            self._let_something_happen(call, moment, key)
        if key in self._refused_for_good and moment is Moment.BEFORE:
            raise ProviderRefused("as before")

    def _let_something_happen(self, call: str, moment: Moment, key: str) -> None:
        step = self.steps[-1]
        possible = self._possible(call, moment, key)
        fault = None
        if possible:
            step.calls_left -= 1
            if step.calls_left == 0:
                fault = step.choices.choice(possible)
            elif self.lasting.get(call, (None, None)) in {(moment, each) for each in possible}:
                fault = self.lasting[call][1]
        if fault:
            self._have(fault, step, f"{moment} {call}", key)

    def _possible(self, call: str, moment: Moment, key: str) -> list[Fault]:
        possible = []
        if call in PSP_CALLS:
            possible = [Fault.SILENT]
            if moment is Moment.BEFORE and not (key and self._has_page(key)):
                possible.append(Fault.REFUSED)
        elif call == _COMMIT or (call in _UNITS and moment is Moment.BEFORE):
            # After a commit: it was kept, and nobody is told so.
            possible = [Fault.STORAGE_AWAY]
        if call != _COMMIT and call in (*_UNITS, *PSP_CALLS) and len(self.steps) < AT_ONCE:
            possible += [Fault.MEANWHILE] * 3
        return [*possible, Fault.KILLED] if possible or call in _UNITS else []

    def _have(self, fault: Fault, step: Step, when: str, key: str) -> None:
        self._tell(f"… {when}: {fault}")
        step.had_fault = True
        match fault:
            case Fault.KILLED:
                step.process.die()
            case Fault.STORAGE_AWAY:
                raise ServiceUnavailable
            case Fault.SILENT:
                raise ProviderUnavailable(fault)
            case Fault.REFUSED:
                self._refused_for_good |= {key} if key else set()
                raise ProviderRefused(fault)
            case Fault.MEANWHILE:
                self._meanwhile(step.choices)
