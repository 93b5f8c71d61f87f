"""Wraps ports so that they report every call to a watcher, before and after the call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Final, Protocol, cast

from typing_extensions import override

from domain.events.event_sender import EventSender
from domain.psps.payment_provider import PaymentProvider
from domain.storage import Returned, Storage, UnitOfWork, WriteUnit


class Moment(StrEnum):
    """When a watcher is called: before a call to a port, or after the call."""

    BEFORE = "before"
    AFTER = "after"


class Watcher(Protocol):
    """A function that is called before and after every call to a port.

    The caller of the port gets the exceptions that the watcher raises.
    """

    def __call__(self, call: str, moment: Moment, arguments: tuple[Any, ...] = ()) -> None:
        """Record a call, such as `storage.read`, `write.sessions.get` or `psp.outcome`."""


PSP_CALLS: Final = (
    *("psp.start", "psp.outcome", "psp.close", "psp.discard", "psp.read_card"),
    *("psp.list_cards", "psp.forget_guest"),
)
"""The calls that send a request to the PSP; `psp.read_webhook` sends none."""

SEND_EVENT: Final = "events.send"
"""The call that sends a request to the endpoint of a client."""


class WatchedStorage(Storage):
    """A storage that reports every unit of work, and every call to a repository in it."""

    def __init__(self, storage: Storage, watcher: Watcher) -> None:
        self._storage = storage
        self._watcher = watcher

    @override
    @contextmanager
    def read(self) -> Iterator[UnitOfWork]:
        self._watcher("storage.read", Moment.BEFORE)
        with self._storage.read() as unit:
            yield cast(UnitOfWork, _Watched(unit, "read", self._watcher))
        self._watcher("storage.read", Moment.AFTER)

    @override
    @contextmanager
    def write(self) -> Iterator[WriteUnit]:
        self._watcher("storage.write", Moment.BEFORE)
        with self._storage.write() as unit:
            yield cast(WriteUnit, _Watched(unit, "write", self._watcher))
        self._watcher("storage.write", Moment.AFTER)

    @override
    def transact(self, work: Callable[[WriteUnit], Returned]) -> Returned:
        self._watcher("storage.write", Moment.BEFORE)
        result = self._storage.transact(
            lambda unit: work(cast(WriteUnit, _Watched(unit, "write", self._watcher)))
        )
        self._watcher("storage.write", Moment.AFTER)
        return result

    @override
    def check(self) -> None:
        self._storage.check()

    @override
    def overwrite_deleted(self) -> bool:
        self._watcher("storage.overwrite_deleted", Moment.BEFORE)
        could = self._storage.overwrite_deleted()
        self._watcher("storage.overwrite_deleted", Moment.AFTER)
        return could

    @override
    def close(self) -> None:
        self._storage.close()


def watched_provider(provider: PaymentProvider, watcher: Watcher) -> PaymentProvider:
    """Return a PSP that reports every call."""
    return cast(PaymentProvider, _Watched(provider, "psp", watcher))


def watched_sender(sender: EventSender, watcher: Watcher) -> EventSender:
    """Return a sender of events that reports every call."""
    return cast(EventSender, _Watched(sender, "events", watcher))


class _Watched:
    """Wraps any port: forwards every call, and reports it."""

    def __init__(self, port: object, name: str, watcher: Watcher) -> None:
        self._port = port
        self._name = name
        self._watcher = watcher

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        call = f"{self._name}.{name}"
        if isinstance(found, frozenset | int):
            return found
        if not callable(found):
            return _Watched(found, call, self._watcher)

        def reported(*arguments: Any, **named: Any) -> Any:
            self._watcher(call, Moment.BEFORE, arguments)
            result = found(*arguments, **named)
            self._watcher(call, Moment.AFTER, arguments)
            return result

        return reported
