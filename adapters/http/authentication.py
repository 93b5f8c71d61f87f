"""Who sends a request: the bearer token of its Authorization header (RFC 6750)."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Final

import falcon
from limits import RateLimitItem, RateLimitItemPerMinute, parse
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter

from domain.errors import TooManyRequests, UserNotAuthenticated
from domain.permissions import Caller
from domain.ports import Identity

FAILED_AUTHENTICATIONS: Final = RateLimitItemPerMinute(30)

_BEARER = re.compile(r"bearer +([A-Za-z0-9\-._~+/]+=*)", re.IGNORECASE)


class RateLimits:
    """What one address or one caller may do in a time; counted in this process's memory."""

    def __init__(self, *, add_card: str | None = None) -> None:
        """Take the limit of add-card per caller, such as `60/minute`, or None for no limit.

        Raises ValueError when it cannot be understood.
        """
        self._add_card = parse(add_card) if add_card else None
        self._window = FixedWindowRateLimiter(MemoryStorage())

    def count_failed_authentication(self, address: str) -> None:
        """Count a failure of this address. Raises TooManyRequests over 30 in a minute."""
        self._count(FAILED_AUTHENTICATIONS, "authentication", _neighbourhood(address))

    def count_add_card(self, caller: Caller) -> None:
        """Count an add-card of this caller. Raises TooManyRequests over the limit, if one is set."""
        if self._add_card is not None:
            self._count(self._add_card, "add-card", caller.name)

    def _count(self, limit: RateLimitItem, *who: str) -> None:
        if not self._window.hit(limit, *who):
            reset_at = self._window.get_window_stats(limit, *who).reset_time
            raise TooManyRequests(retry_after_seconds=max(1, round(reset_at - time.time())))


@dataclass(frozen=True, slots=True, kw_only=True)
class Authentication:
    """Finds the caller of a request. The token is taken from the header and nowhere else."""

    identity: Identity
    limits: RateLimits

    def __call__(self, req: falcon.Request) -> Caller:
        """Give the caller. Raises UserNotAuthenticated, or TooManyRequests after many failures."""
        bearer = _BEARER.fullmatch(req.get_header("Authorization", default="").strip())
        caller = self.identity.authenticate(bearer[1]) if bearer else None
        if caller is None:
            self.limits.count_failed_authentication(req.remote_addr)
            raise UserNotAuthenticated
        req.context.caller = caller.name
        return caller


def _neighbourhood(address: str) -> str:
    """Give the address, or of an IPv6 address the 64 bits that one household or host shares."""
    try:
        is_v6 = ip_address(address).version == 6
    except ValueError:
        return address
    return str(ip_network(f"{address}/64", strict=False)) if is_v6 else address
