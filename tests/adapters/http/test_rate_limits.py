"""Limits that several processes count together, in a real Redis server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from adapters.http import rate_limits
from adapters.http.rate_limits import RateLimits, counts_in_redis
from domain.errors import TooManyRequests
from tests.adapters.http.api import ACCOUNTS, GOOD_BODY, Api, refused
from tests.builders import a_caller
from tests.installation import Installation
from tests.redis_server import PASSWORD, RedisServer, own_redis

ADDRESS = "198.51.100.7"


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with own_redis() as server:
        yield server


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Redis asked again at once when it was away."""
    monkeypatch.setattr(rate_limits, "REST_SECONDS", 0)


def a_process(redis: RedisServer, *, add_card: str | None = None) -> RateLimits:
    """Give the limits as one of several processes has them."""
    return RateLimits(add_card=add_card, shared=counts_in_redis(redis.url))


def fail(limits: RateLimits, times: int) -> None:
    for _ in range(times):
        limits.count_failed_authentication(ADDRESS)


def test_processes_count_failures_together(redis: RedisServer) -> None:
    first, second = a_process(redis), a_process(redis)
    fail(first, 15)
    fail(second, 15)

    for limits in (first, second):
        with pytest.raises(TooManyRequests) as refusal:
            limits.count_failed_authentication(ADDRESS)
        assert 1 <= refusal.value.retry_after_seconds <= 60
    second.count_failed_authentication("198.51.100.8")


def test_processes_count_the_cards_of_a_caller_together(redis: RedisServer) -> None:
    first, second = (a_process(redis, add_card="2/day") for _ in range(2))
    first.count_add_card(a_caller())
    second.count_add_card(a_caller())

    with pytest.raises(TooManyRequests):
        first.count_add_card(a_caller())


def test_two_installations_reach_a_limit_together_over_http(
    redis: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    installations = [
        Installation(
            tmp_path_factory.mktemp(name),
            CARDONFILE_RATE_LIMIT_STORAGE=redis.url,
            CARDONFILE_ADD_CARD_LIMIT="2/minute",
        )
        for name in ("one", "two")
    ]
    one, two = (Api(each) for each in installations)
    assert [each.post(GOOD_BODY).status_code for each in (one, two)] == [200, 200]

    assert refused(one.post(GOOD_BODY)) == (429, "Too many requests")
    assert two.get(ACCOUNTS).status_code == 200
    for each in installations:
        each.close()


@pytest.mark.usefixtures("impatient")
def test_while_redis_is_away_each_process_counts_for_itself(redis: RedisServer) -> None:
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


def test_a_redis_that_hangs_is_left_alone_for_a_while(redis: RedisServer) -> None:
    limits = a_process(redis)
    with capture_logs() as lines, redis.held_up():
        fail(limits, 1)
    fail(limits, 29)

    with pytest.raises(TooManyRequests):
        limits.count_failed_authentication(ADDRESS)
    assert [line["fault"] for line in lines] == ["TimeoutError"]
    assert sum(redis.everything().values()) <= 1


@pytest.mark.usefixtures("impatient")
def test_a_redis_that_was_restarted_is_no_outage(redis: RedisServer) -> None:
    limits = a_process(redis)
    fail(limits, 1)
    redis.stop()
    redis.start()

    with capture_logs() as lines:
        fail(limits, 1)
    assert lines == []
    assert list(redis.everything().values()) == [1]


def test_a_redis_that_cannot_be_used_is_told_of_at_the_start_without_its_password(
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
