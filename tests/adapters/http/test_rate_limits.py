"""Limits that several processes count together, in a real Redis server."""

from __future__ import annotations

import time
from collections.abc import Iterator

import falcon
import pytest
from structlog.testing import capture_logs

from adapters.http import rate_limits
from adapters.http.rate_limits import RateLimits, counts_in_redis
from domain.errors import TooManyRequests
from tests.builders import a_caller
from tests.redis_server import PASSWORD, RedisServer, own_redis

ADDRESS = "198.51.100.7"


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """Run a server that tests may stop, but must start again."""
    with own_redis() as server:
        yield server


@pytest.fixture
def redis(server: RedisServer) -> RedisServer:
    server.clear()
    return server


def a_process(redis: RedisServer, *, write: str | None = None) -> RateLimits:
    """Return the limits of one of several processes."""
    return RateLimits(write=write, shared=counts_in_redis(redis.url))


def fail(limits: RateLimits, times: int) -> None:
    for _ in range(times):
        limits.count_failed_authentication(ADDRESS)


# Shows S16.
def test_processes_share_their_request_counts_through_redis(redis: RedisServer) -> None:
    processes = [a_process(redis, write="2/day") for _ in range(2)]
    told = [falcon.Response() for _ in processes]
    for process, response in zip(processes, told, strict=True):
        fail(process, 15)
        process.count_write(a_caller(), response)
    left = [(response.get_header("RateLimit") or "").split(";t=")[0] for response in told]
    assert left == ['"writes";r=1', '"writes";r=0']

    for process in processes:
        with pytest.raises(TooManyRequests) as refusal:
            process.count_failed_authentication(ADDRESS)
        assert 1 <= refusal.value.retry_after_seconds <= 60
        with pytest.raises(TooManyRequests):
            process.count_write(a_caller(), falcon.Response())
        process.count_failed_authentication("198.51.100.8")


# Shows S16.
def test_each_process_counts_requests_separately_while_redis_is_unavailable(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate_limits, "REDIS_BACKOFF_SECONDS", 0)
    limits = a_process(redis)
    redis.stop()
    with capture_logs() as lines:
        fail(limits, 30)
        with pytest.raises(TooManyRequests):
            limits.count_failed_authentication(ADDRESS)
    assert lines == [
        {"event": "rate_limit_storage_away", "log_level": "error", "fault": "ConnectionError"}
    ]

    redis.start()
    with capture_logs() as lines:
        fail(limits, 2)
    assert [line["event"] for line in lines] == ["rate_limit_storage_back"]
    assert list(redis.everything().values()) == [2]

    # A connection that was lost while idle is no outage.
    redis.stop()
    redis.start()
    with capture_logs() as lines:
        fail(limits, 1)
    assert lines == []
    assert list(redis.everything().values()) == [1]


def test_a_redis_server_that_hangs_is_not_called_again_for_a_while(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate_limits, "REDIS_BACKOFF_SECONDS", 600)
    limits = a_process(redis)
    with capture_logs() as lines, redis.held_up():
        fail(limits, 1)
    fail(limits, 29)

    with pytest.raises(TooManyRequests):
        limits.count_failed_authentication(ADDRESS)
    assert [line["fault"] for line in lines] == ["TimeoutError"]
    assert sum(redis.everything().values()) <= 1


def test_an_unusable_redis_server_is_logged_at_start_without_its_password(
    redis: RedisServer,
) -> None:
    wrong = RateLimits(shared=counts_in_redis(redis.url.replace(PASSWORD, "wr0ng")))
    with capture_logs() as lines:
        wrong.check_storage()
        a_process(redis).check_storage()
        RateLimits().check_storage()

    assert [line["fault"] for line in lines] == ["AuthenticationError"]
    assert "wr0ng" not in repr(lines)
    assert redis.everything() == {}


def test_a_clock_that_was_ahead_does_not_lock_out_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = RateLimits()
    with monkeypatch.context() as jumped:
        year, now = 365 * 86_400, time.time
        jumped.setattr(time, "time", lambda: now() + year)
        fail(limits, 30)
    fail(limits, 30)
    with pytest.raises(TooManyRequests) as refusal:
        limits.count_failed_authentication(ADDRESS)
    assert refusal.value.retry_after_seconds <= 60
