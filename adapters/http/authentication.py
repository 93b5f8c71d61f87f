"""Authentication by the bearer token in the Authorization header (RFC 6750)."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import falcon
import structlog

from adapters.http.rate_limits import RateLimits
from domain.access.token import Identity, prefix_of
from domain.errors import UserNotAuthenticated
from domain.permissions import Caller

MISSING: Final = "missing"
MAX_LINES_A_MINUTE: Final = 1_000

log = structlog.get_logger()

# Clients of similar services send `apikey`.
_TOKEN = re.compile(r"(?:bearer|apikey) +([A-Za-z0-9\-._~+/]+=*)", re.IGNORECASE)


def sent_token(req: falcon.Request) -> str | None:
    """Return the token of a request, or None if it has none."""
    sent = _TOKEN.fullmatch(req.get_header("Authorization", default="").strip())
    return sent[1] if sent else None


class RefusalLog:
    """Logs refused tokens by their prefix: each prefix and reason once a minute, 1,000 at most."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """Take a function that returns seconds."""
        self._now, self._lock = now, threading.Lock()
        self._minute, self._logged = 0.0, set[tuple[str | None, str]]()

    def note(self, prefix: str | None, reason: str) -> None:
        """Log that a token was refused. The prefix is None for what has not the form of a token."""
        minute = self._now() // 60
        with self._lock:
            if minute != self._minute:
                self._minute, self._logged = minute, set()
            if (prefix, reason) in self._logged or len(self._logged) == MAX_LINES_A_MINUTE:
                return
            self._logged.add((prefix, reason))
        log.warning("authentication_refused", token=prefix, reason=str(reason))


@dataclass(frozen=True, slots=True, kw_only=True)
class Authentication:
    """Finds the caller of a request, and counts its writes.

    A token is accepted from the header only. `refused` is told why each other was not.
    """

    identity: Identity
    limits: RateLimits
    refusals: RefusalLog = field(default_factory=RefusalLog)
    refused: Callable[[str], None] = lambda _: None

    def __call__(self, req: falcon.Request) -> Caller:
        """Return the caller.

        Raises UserNotAuthenticated; or TooManyRequests after 30 failures in a minute, and over the
        caller's limit of requests that do not only read.
        """
        sent = sent_token(req)
        caller = self.identity.authenticate(sent) if sent else MISSING
        if not isinstance(caller, Caller):
            self.refused(caller)
            self.limits.count_failed_authentication(req.remote_addr)
            self.refusals.note(prefix_of(sent) if sent else None, caller)
            raise UserNotAuthenticated
        req.context.caller = caller.name
        if req.method != "GET":
            self.limits.count_write(caller)
        return caller
