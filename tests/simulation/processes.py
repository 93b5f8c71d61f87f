"""A simulated process of the service. After a kill, it is restarted with the same files."""

from __future__ import annotations

from collections.abc import Set
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from dependency_injector import providers
from typing_extensions import override

from adapters.fake_psp.plugin import NAME as FAKE
from adapters.fake_psp.provider import FakeProvider
from adapters.fake_psp.psp import FakePsp
from adapters.sqlite.storage import SqliteStorage
from domain.outside import Clock
from domain.sessions.session import IDEMPOTENCY_KEY_LIFETIME
from entrypoints.container import Container
from entrypoints.worker.reconcile import reconcile_until_idle
from entrypoints.worker.reports import Done
from tests.simulation.endpoints import Endpoints, LeaseCheck
from tests.simulation.ports import Moment, WatchedStorage, Watcher, watched_provider, watched_sender
from tests.simulation.psp import LastingTokens
from tests.use_cases import UseCases

# Waiting for a lock is useless, because a caller in the same thread holds the lock.
_BUSY_SECONDS: Final = 0.05


class Killed(BaseException):
    """The process was killed.

    This is not an Exception, so that no handler of the service catches it.
    """


class ClockOfProcess(Clock):
    """A clock that is ahead of the right clock by `ahead`, and for a while also by `jump`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.ahead = timedelta(0)
        self.jump = timedelta(0)

    @override
    def now(self) -> datetime:
        return self._clock.now() + self.ahead + self.jump

    @override
    def is_steady(self) -> bool:
        return not self.jump


class Process:
    """One process of an installation. A killed process no longer makes calls to ports.

    It overrides the clock, the storage, the PSP and the event sender in a separate container.
    """

    def __init__(
        self,
        name: str,
        database: Path,
        container: Container,
        *,
        clock: Clock,
        psp: FakePsp,
        endpoints: Endpoints,
        late: Set[str],
        watcher: Watcher,
    ) -> None:
        self.name = name
        self.clock = ClockOfProcess(clock)
        self.is_dead = False
        self._database = database
        self.container = container
        self._psp = psp
        self.endpoints = endpoints
        self._late = late
        self._watcher = watcher
        # `container.reset_singletons` would search the container for these parts each time.
        self._parts = list(container.traverse(types=[providers.BaseSingleton]))
        self.start()

    def start(self) -> None:
        """Build all parts that a process has in memory."""
        container = self.container
        ports = (container.clock, container.storage, container.psp_adapters, container.event_sender)
        # A provider remembers all its earlier overrides, and searches all of them.
        for port in ports:
            port.reset_override()
        for part in self._parts:
            part.reset()
        container.clock.override(providers.Object(self.clock))
        self.storage = SqliteStorage(self._database, busy_timeout_seconds=_BUSY_SECONDS)
        container.storage.override(providers.Object(WatchedStorage(self.storage, self._report)))
        fake = FakeProvider(self._psp, webhook_secret=self._psp.webhook_secret, clock=self.clock)
        provider = LastingTokens(fake, self._psp, self._late)
        container.psp_adapters.override(
            providers.Object({FAKE: watched_provider(provider, self._report)})
        )
        sender = LeaseCheck(watched_sender(self.endpoints, self._report), self.endpoints)
        container.event_sender.override(providers.Object(sender))
        self.use_cases = UseCases.of(container)
        self.settle = container.settle_session()
        self.is_dead = False

    def reconcile(self) -> Done:
        """Do all due work as `cardonfile reconcile` does, but without its periodic tasks."""
        return reconcile_until_idle(self.container)

    def forget_idempotency_keys(self) -> None:
        """Delete old idempotency keys.

        Unlike the worker, do not delete old deliveries, because the invariants check all events.
        """
        if self.clock.is_steady():
            with self.container.storage().write() as unit:
                unit.idempotency_keys.forget(before=self.clock.now() - IDEMPOTENCY_KEY_LIFETIME)
                unit.commit()

    def stop(self) -> None:
        """Close the storage of the process."""
        self.storage.close()

    def die(self) -> None:
        """Kill the process. Always raises Killed."""
        self.is_dead = True
        raise Killed

    def _report(self, call: str, moment: Moment, arguments: tuple[Any, ...] = ()) -> None:
        if self.is_dead:
            raise Killed
        self._watcher(call, moment, arguments)
        if self.is_dead:
            raise Killed
