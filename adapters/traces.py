"""Read, log and pass on the traces of clients' requests (W3C Trace Context)."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from structlog.contextvars import bound_contextvars
from typing_extensions import override

from domain.outside import Trace, Traces

TRACEPARENT: Final = "traceparent"

# Version 00 ends after the flags. Later versions may have more fields after a dash.
_VERSION_00 = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-([0-9a-f]{2})")
_LATER_VERSION = re.compile(
    r"(?!00|ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-([0-9a-f]{2})(?:-.*)?"
)
_SAMPLED: Final = 1
"""The only flag that version 00 defines. Other flags are not passed on."""

_current: ContextVar[Trace | None] = ContextVar("trace", default=None)


def trace_of(traceparent: str) -> Trace | None:
    """Return the trace in a header `traceparent`, or None if the header is malformed."""
    found = _VERSION_00.fullmatch(traceparent) or _LATER_VERSION.fullmatch(traceparent)
    return Trace(f"{found[1]}-{int(found[2], 16) & _SAMPLED:02x}") if found else None


def logged(trace: Trace | None) -> Mapping[str, str]:
    """Return the log field with the id of the trace, or an empty mapping if `trace` is None."""
    return {} if trace is None else {"trace_id": trace.partition("-")[0]}


def headers_of(trace: Trace | None) -> Mapping[str, str]:
    """Return the header for a request that belongs to `trace`, or no header if `trace` is None."""
    if trace is None:
        return {}
    trace_id, _, flags = trace.partition("-")
    return {TRACEPARENT: f"00-{trace_id}-{secrets.token_hex(8)}-{flags}"}


def begin(trace: Trace | None) -> None:
    """Set the trace to which all further work of this thread belongs, or None for no trace."""
    _current.set(trace)


class TracesOfThreads(Traces):
    """Keeps the trace to which the current work of each thread belongs."""

    @override
    def current(self) -> Trace | None:
        return _current.get()

    @override
    @contextmanager
    def following(self, trace: Trace | None) -> Iterator[None]:
        if trace is None or _current.get() is not None:
            yield
            return
        before = _current.set(trace)
        try:
            with bound_contextvars(**logged(trace)):
                yield
        finally:
            _current.reset(before)
