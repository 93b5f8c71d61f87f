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
LINE_EVERY_SECONDS: Final = 60
MAX_REMEMBERED: Final = 1_000

log = structlog.get_logger()

# Clients of similar services send `apikey`.
_TOKEN = re.compile(r"(?:bearer|apikey) +([A-Za-z0-9\-._~+/]+=*)", re.IGNORECASE)


class RefusalLog:
    """Logs refused tokens by their prefix: once a minute for each prefix and reason.

    It remembers 1,000 of these at most, and logs no others until a minute of one is over.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """Take a function that returns seconds."""
        self._now = now
        self._lock = threading.Lock()
        self._logged_at: dict[tuple[str | None, str], float] = {}

    def note(self, prefix: str | None, reason: str) -> None:
        """Log that a token was refused. The prefix is None for what has not the form of a token."""
        now = self._now()
        with self._lock:
            self._logged_at = {
                each: at for each, at in self._logged_at.items() if now < at + LINE_EVERY_SECONDS
            }
            if (prefix, reason) in self._logged_at or len(self._logged_at) >= MAX_REMEMBERED:
                return
            self._logged_at[prefix, reason] = now
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
        sent = _TOKEN.fullmatch(req.get_header("Authorization", default="").strip())
        caller = self.identity.authenticate(sent[1]) if sent else MISSING
        if not isinstance(caller, Caller):
            self.refused(caller)
            self.limits.count_failed_authentication(req.remote_addr)
            self.refusals.note(prefix_of(sent[1]) if sent else None, caller)
            raise UserNotAuthenticated
        req.context.caller = caller.name
        if req.method != "GET":
            self.limits.count_write(caller)
        return caller
