"""Rate limits per address, per caller and per page with a secret, in fixed windows of time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

import falcon
import structlog
from limits import RateLimitItem, RateLimitItemPerMinute, parse
from limits.errors import StorageError
from limits.storage import RedisStorage, Storage

from adapters.http.client_networks import counted_network
from adapters.http.counts_in_memory import CountsInMemory
from domain.access.token import hash_of
from domain.errors import TooManyRequests
from domain.permissions import Caller

FAILED_AUTHENTICATIONS: Final = RateLimitItemPerMinute(30)
PAGE_LOADS: Final = RateLimitItemPerMinute(60)

REDIS_SECONDS: Final = 0.5
"""The time limit for connecting to Redis, and for each command."""
REDIS_BACKOFF_SECONDS: Final = 5.0
"""After an error, how long to wait before Redis is called the next time."""

RATE_LIMIT: Final = "RateLimit"
RATE_LIMIT_POLICY: Final = "RateLimit-Policy"
"""The headers with the caller's limit of writes (draft-ietf-httpapi-ratelimit-headers-10)."""

Returned = TypeVar("Returned")

log = structlog.get_logger()


class Counted(NamedTuple):
    """The state of a limit after a request was counted.

    `is_over` is whether this request exceeded the limit. `left` is how many more requests are
    allowed in the current window. `seconds` is the time until the window ends.
    """

    is_over: bool
    left: int
    seconds: int

    def require(self) -> None:
        """Raise TooManyRequests if the request exceeded the limit."""
        if self.is_over:
            raise TooManyRequests(retry_after_seconds=self.seconds)


class RateLimits:
    """The limits on failed authentications, on loads of pages with a secret, and on writes.

    Failed authentications are counted per address, loads per page and address, and writes per
    caller.

    With a shared storage, all processes share the counts. Without a shared storage, or while it is
    unavailable, each process applies the limits to its own counts, and requests do not wait for the
    storage.
    """

    def __init__(self, *, write: str | None = None, shared: Storage | None = None) -> None:
        """Set the limit of writes per caller, such as `60/minute`. None means that there is no limit.

        `shared` is the storage that all processes share, or None. Raises ValueError if `write`
        cannot be parsed.
        """
        self._write = parse(write) if write else None
        self._own = CountsInMemory()
        self._shared = shared
        self._is_away = False
        self._next_call_at = 0.0

    def count_failed_authentication(self, address: str) -> None:
        """Count a failed authentication from an address.

        Raises TooManyRequests if it is not among the first 30 in the current minute.
        """
        self._count(FAILED_AUTHENTICATIONS, "authentication", counted_network(address)).require()

    def count_write(self, caller: Caller, resp: falcon.Response) -> None:
        """Count a write by a caller. Headers of the response state how many writes are left.

        If writes are not limited, nothing is counted and the headers are not set. Raises
        TooManyRequests if this write exceeds the limit.
        """
        if self._write is None:
            return
        counted = self._count(self._write, "write", caller.name)
        quota, window = self._write.amount, self._write.get_expiry()
        resp.set_header(RATE_LIMIT_POLICY, f'"writes";q={quota};w={window}')
        resp.set_header(RATE_LIMIT, f'"writes";r={counted.left};t={counted.seconds}')
        counted.require()

    def count_page_load(self, page: str, secret: str, address: str) -> None:
        """Count a request from `address` for the page that is opened with `secret`.

        `page` is the kind of page, such as `desk`. Only the hash of the secret is stored, because
        the storage may be shared. Raises TooManyRequests if the request is not among the first 60
        in the current minute.
        """
        self._count(PAGE_LOADS, page, hash_of(secret), counted_network(address)).require()

    def check_storage(self) -> bool:
        """Return whether the shared storage is available. Logs when it becomes unavailable.

        Does not count a request.
        """
        found = self._in_shared_storage(
            lambda counts: counts.get(FAILED_AUTHENTICATIONS.key_for("authentication"))
        )
        return found is not None

    def _count(self, limit: RateLimitItem, *who: str) -> Counted:
        shared = self._in_shared_storage(lambda counts: _count_in(counts, limit, *who))
        return _count_in(self._own, limit, *who) if shared is None else shared

    def _in_shared_storage(self, call: Callable[[Storage], Returned]) -> Returned | None:
        """Call `call` with the shared storage, and return the result.

        Return None if there is no shared storage, or if it is unavailable.
        """
        if self._shared is None or time.monotonic() < self._next_call_at:
            return None
        try:
            result = call(self._shared)
        except StorageError as away:
            self._next_call_at = time.monotonic() + REDIS_BACKOFF_SECONDS
            if not self._is_away:
                log.error("rate_limit_storage_away", fault=type(away.storage_error).__name__)
            self._is_away = True
            return None
        if self._is_away:
            log.warning("rate_limit_storage_back")
        self._is_away = False
        return result


def counts_in_redis(url: str) -> Storage:
    """Return a shared storage in Redis. It connects when it is first used.

    Raises ModuleNotFoundError if the Redis client is not installed.
    """
    from redis import ConnectionError as ConnectionLost
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    # A connection that was lost while idle is retried once; a time-out is not retried. The type is
    # Any, because `RedisStorage` declares its options as numbers and text only.
    retry: Any = Retry(NoBackoff(), retries=1, supported_errors=(ConnectionLost,))
    return RedisStorage(
        url,
        key_prefix="cardonfile",
        wrap_exceptions=True,
        socket_connect_timeout=REDIS_SECONDS,
        socket_timeout=REDIS_SECONDS,
        retry=retry,
    )


def _count_in(counts: Storage, limit: RateLimitItem, *who: str) -> Counted:
    key, longest = limit.key_for(*who), limit.get_expiry()
    left = limit.amount - counts.incr(key, longest)
    seconds = counts.get_expiry(key) - time.time()
    if left < 0 and seconds > longest:
        # The window began while the clock was ahead.
        counts.clear(key)
        return _count_in(counts, limit, *who)
    return Counted(left < 0, max(left, 0), min(max(1, round(seconds)), longest))
