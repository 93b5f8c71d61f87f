"""Request counts of one process. test_rate_limits.py tests the limits that use them."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from typing_extensions import override

from adapters.http.counts_in_memory import CountsInMemory


class Slow(str):
    """A key whose lookup makes threads take turns."""

    __slots__ = ()

    @override
    def __hash__(self) -> int:
        time.sleep(0)
        return super().__hash__()


def test_all_threads_share_the_request_count_of_a_caller() -> None:
    counts = CountsInMemory()

    with ThreadPoolExecutor(4) as threads:
        for _ in range(400):
            threads.submit(counts.incr, Slow("caller"), 60)

    assert counts.get("caller") == 400


def test_the_request_count_of_a_caller_restarts_after_the_time_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = CountsInMemory()
    monkeypatch.setattr(time, "time", lambda: 1_000.0)
    assert [counts.incr("caller", 60) for _ in range(2)] == [1, 2]
    monkeypatch.setattr(time, "time", lambda: 1_059.9)
    assert (counts.get("caller"), counts.get_expiry("caller")) == (2, 1_060.0)

    monkeypatch.setattr(time, "time", lambda: 1_060.0)
    assert counts.get("caller") == 0
    assert counts.incr("caller", 60) == 1


def test_request_counts_of_past_time_windows_are_deleted_from_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = CountsInMemory()
    for minute in range(20):
        monkeypatch.setattr(time, "time", lambda minute=minute: 60.0 * minute)
        for address in range(600):
            counts.incr(f"{minute} {address}", 60)
        assert counts.get(f"{minute} 0") == 1

    assert len(counts) <= 1_200


def test_counting_requests_in_memory_does_not_start_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(threading.Thread, "start")

    assert CountsInMemory().incr("caller", 60) == 1
