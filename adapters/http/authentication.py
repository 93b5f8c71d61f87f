"""Authentication by the bearer token in the Authorization header (RFC 6750)."""

from __future__ import annotations

import re
from dataclasses import dataclass

import falcon

from adapters.http.rate_limits import RateLimits
from domain.access.token import Identity
from domain.errors import UserNotAuthenticated
from domain.permissions import Caller

# Clients of similar services send `apikey`.
_TOKEN = re.compile(r"(?:bearer|apikey) +([A-Za-z0-9\-._~+/]+=*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Authentication:
    """Finds the caller of a request, and counts its writes.

    A token is accepted from the header only.
    """

    identity: Identity
    limits: RateLimits

    def __call__(self, req: falcon.Request) -> Caller:
        """Return the caller.

        Raises UserNotAuthenticated; or TooManyRequests after 30 failures in a minute, and over the
        caller's limit of requests that do not only read.
        """
        sent = _TOKEN.fullmatch(req.get_header("Authorization", default="").strip())
        caller = self.identity.authenticate(sent[1]) if sent else None
        if caller is None:
            self.limits.count_failed_authentication(req.remote_addr)
            raise UserNotAuthenticated
        req.context.caller = caller.name
        if req.method != "GET":
            self.limits.count_write(caller)
        return caller
