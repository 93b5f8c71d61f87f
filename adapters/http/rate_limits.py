"""How often one address or one caller may do something, counted in windows of time."""

from __future__ import annotations

import time
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any, Final

import structlog
from limits import RateLimitItem, RateLimitItemPerMinute, parse
from limits.errors import StorageError
from limits.storage import MemoryStorage, RedisStorage, Storage
from limits.strategies import FixedWindowRateLimiter

from domain.errors import TooManyRequests
from domain.permissions import Caller

FAILED_AUTHENTICATIONS: Final = RateLimitItemPerMinute(30)

REDIS_SECONDS: Final = 0.5
"""How long one word of Redis is waited for."""
REST_SECONDS: Final = 5.0
"""How long Redis is left alone when it has not answered."""

log = structlog.get_logger()


class RateLimits:
    """What one address or one caller may do in a time.

    It is counted in a storage that processes share, if there is one. While that is away, and
    without one, each process counts for itself: a limit never goes, and no request waits for it.
    """

    def __init__(self, *, add_card: str | None = None, shared: Storage | None = None) -> None:
        """Take the limit of add-card per caller, such as `60/minute`, or None for no limit.

        Raises ValueError when it cannot be understood.
        """
        self._add_card = parse(add_card) if add_card else None
        self._own = FixedWindowRateLimiter(MemoryStorage())
        self._shared = FixedWindowRateLimiter(shared) if shared else None
        self._is_away = False
        self._asked_again_at = 0.0

    def count_failed_authentication(self, address: str) -> None:
        """Count a failure of this address. Raises TooManyRequests over 30 in a minute."""
        self._count(FAILED_AUTHENTICATIONS, "authentication", _neighbourhood(address))

    def count_add_card(self, caller: Caller) -> None:
        """Count an add-card of this caller. Raises TooManyRequests over the limit, if one is set."""
        if self._add_card is not None:
            self._count(self._add_card, "add-card", caller.name)

    def look_for_shared(self) -> None:
        """Say in the log when the shared storage is away, before anything is to be counted."""
        self._ask_shared(lambda window: window.test(FAILED_AUTHENTICATIONS, "authentication"))

    def _count(self, limit: RateLimitItem, *who: str) -> None:
        wait_seconds = self._ask_shared(lambda window: _count_in(window, limit, *who))
        if wait_seconds is None:
            wait_seconds = _count_in(self._own, limit, *who)
        if wait_seconds:
            raise TooManyRequests(retry_after_seconds=wait_seconds)

    def _ask_shared(self, ask: Callable[[FixedWindowRateLimiter], int]) -> int | None:
        """Give the answer, or None when there is no shared storage or it is away."""
        if self._shared is None or time.monotonic() < self._asked_again_at:
            return None
        try:
            answer = ask(self._shared)
        except StorageError as away:
            self._asked_again_at = time.monotonic() + REST_SECONDS
            if not self._is_away:
                log.error("rate_limit_storage_away", fault=type(away.storage_error).__name__)
            self._is_away = True
            return None
        if self._is_away:
            log.warning("rate_limit_storage_back")
        self._is_away = False
        return answer


def counts_in_redis(url: str) -> Storage:
    """Give a storage for counts in Redis; nothing is connected before something is counted.

    Raises ModuleNotFoundError when the client of Redis is not installed.
    """
    from redis import ConnectionError as ConnectionLost
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    # Once more, for a connection that was lost while nothing was counted; never after a time-out.
    retry: Any = Retry(NoBackoff(), retries=1, supported_errors=(ConnectionLost,))
    return RedisStorage(
        url,
        key_prefix="cardonfile",
        wrap_exceptions=True,
        socket_connect_timeout=REDIS_SECONDS,
        socket_timeout=REDIS_SECONDS,
        retry=retry,
    )


def _count_in(window: FixedWindowRateLimiter, limit: RateLimitItem, *who: str) -> int:
    """Count one more; give how many seconds to wait if that is too many, and 0 if it is not."""
    if window.hit(limit, *who):
        return 0
    reset_at = window.get_window_stats(limit, *who).reset_time
    return max(1, round(reset_at - time.time()))


def _neighbourhood(address: str) -> str:
    """Give the address, or of an IPv6 address the 64 bits that one household or host shares.

    A socket that listens on `::` shows the client 198.51.100.7 as `::ffff:198.51.100.7`, an
    IPv4-mapped address (RFC 4291); both are the same client. What a proxy forwards may be no
    address but any text; all of these count as one.
    """
    try:
        client = ip_address(address)
    except ValueError:
        return "unknown"
    if isinstance(client, IPv6Address):
        mapped = client.ipv4_mapped
        return str(mapped or ip_network(f"{client}/64", strict=False))
    return str(client)
