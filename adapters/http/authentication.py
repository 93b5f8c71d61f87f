"""Authentication by the bearer token in the Authorization header (RFC 6750)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import falcon

from adapters.http.client_networks import logged_network
from adapters.http.rate_limits import RateLimits
from adapters.http.refusal_log import RefusalLog
from adapters.traces import begin
from domain.access.token import Identity, prefix_of
from domain.errors import UserNotAuthenticated
from domain.permissions import Caller

MISSING: Final = "missing"
LINES_A_MINUTE: Final = 1_000
"""The maximum number of refused tokens that are logged in a minute for each reason."""

# Clients of similar services send `apikey`.
_TOKEN = re.compile(r"(?:bearer|apikey) +([A-Za-z0-9\-._~+/]+=*)", re.IGNORECASE)


def sent_token(req: falcon.Request) -> str | None:
    """Return the token in the request's Authorization header, or None if there is no token."""
    sent = _TOKEN.fullmatch(req.get_header("Authorization", default="").strip())
    return sent[1] if sent else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Authentication:
    """Finds the caller of a request, counts the caller's writes, and begins the request's trace.

    Only a token in the header is accepted. The reason for each refusal is logged.
    """

    identity: Identity
    limits: RateLimits
    refusal_log: RefusalLog = field(default_factory=lambda: RefusalLog(LINES_A_MINUTE))
    refused: Callable[[str], None] = lambda _: None

    def __call__(self, req: falcon.Request, resp: falcon.Response) -> Caller:
        """Return the caller. If writes are limited, a response to a write states the limit.

        Raises UserNotAuthenticated if the token is missing or not valid. Raises TooManyRequests
        instead if the address already had 30 such failures in the current minute. Also raises
        TooManyRequests if the request is a write and exceeds the caller's limit.
        """
        sent = sent_token(req)
        caller = self.identity.authenticate(sent) if sent else MISSING
        if not isinstance(caller, Caller):
            self.refused(caller)
            said = {
                "token": prefix_of(sent) if sent else None,
                "reason": str(caller),
                "network": logged_network(req.remote_addr),
            }
            self.refusal_log.warning("authentication_refused", said, kind=caller, once=True)
            # The refusal is logged first, because this raises if the address is over its limit.
            self.limits.count_failed_authentication(req.remote_addr)
            raise UserNotAuthenticated
        req.context.caller = caller.name
        # The trace of an unauthenticated request is logged, but not continued.
        begin(req.context.get("trace"))
        if req.method != "GET":
            self.limits.count_write(caller, resp)
        return caller
