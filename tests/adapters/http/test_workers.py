"""Threads that answer requests: how many do so at a time, and who takes over when."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from adapters.http.workers import Workers, step_aside
from tests.waiting import wait_until


class Events:
    """Events that the test makes happen; each is something to do."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self.threads: list[str] = []

    def happen(self, act: Callable[[], object] = lambda: None) -> None:
        """Have an event happen."""
        self._waiting.put(act)

    def next(self) -> Callable[[], object] | None:
        """Give the next event, or None."""
        try:
            return self._waiting.get(timeout=0.05)
        except queue.Empty:
            return None

    def handle(self, act: Callable[[], object]) -> None:
        """Do what an event is, and keep which thread did."""
        self.threads.append(threading.current_thread().name)
        act()

    def hold_up(self) -> threading.Event:
        """Have an event happen that takes until the result is set."""
        goes_on = threading.Event()
        self.happen(lambda: goes_on.wait(20))
        return goes_on


@contextmanager
def working(
    events: Events, *, count: int, on_duty: int = 1
) -> Iterator[Workers[Callable[[], object]]]:
    """Have workers handle the events, and look after them."""
    workers = Workers(events.next, events.handle, count=count, on_duty=on_duty)
    workers.start()
    yield workers
    workers.stop(within_seconds=20)


def handled(events: Events, count: int, workers: Workers[Callable[[], object]]) -> None:
    """Relieve who is held up until so many events have begun to be handled."""

    def look() -> bool:
        workers.relieve_who_is_held_up()
        return len(events.threads) == count

    wait_until(look)


def test_one_thread_handles_everything_as_long_as_it_gets_on() -> None:
    events = Events()
    with working(events, count=3):
        for _ in range(50):
            events.happen()
        wait_until(lambda: len(events.threads) == 50)

    assert len(set(events.threads)) == 1


def test_who_is_held_up_is_relieved_and_takes_its_turn_later() -> None:
    events = Events()
    with working(events, count=2) as workers:
        for _ in range(2):
            goes_on = events.hold_up()
            events.happen()
            handled(events, 2, workers)
            goes_on.set()
            for _ in range(20):
                events.happen()
            handled(events, 22, workers)
            held_up, relief, *others = events.threads
            assert {held_up} != {relief} == set(others)
            events.threads.clear()


def test_when_all_are_held_up_the_first_who_is_done_goes_on() -> None:
    events = Events()
    with working(events, count=2) as workers:
        first, second = events.hold_up(), events.hold_up()
        handled(events, 2, workers)
        events.happen()
        second.set()
        handled(events, 3, workers)
        first.set()

    held_up, done, next_one = events.threads
    assert next_one == done != held_up


def test_who_is_about_to_wait_has_another_go_on_at_once() -> None:
    events, goes_on = Events(), threading.Event()

    def wait() -> None:
        step_aside()
        step_aside()
        goes_on.wait(20)

    with working(events, count=2):
        events.happen(wait)
        events.happen()
        wait_until(lambda: len(events.threads) == 2)
        goes_on.set()

    assert len(set(events.threads)) == 2


def test_elsewhere_nobody_has_to_step_aside() -> None:
    step_aside()


@pytest.mark.parametrize("fault", [ValueError, SystemExit])
def test_a_fault_is_logged_and_the_thread_goes_on(
    caplog: pytest.LogCaptureFixture, fault: type[BaseException]
) -> None:
    def fail() -> None:
        raise fault

    events = Events()
    with working(events, count=1):
        events.happen(fail)
        events.happen()
        wait_until(lambda: len(events.threads) == 2)

    assert [each.getMessage() for each in caplog.records] == ["Fault in a worker"]


def test_nobody_is_left_waiting_at_the_end() -> None:
    others = set(threading.enumerate())
    with working(Events(), count=5, on_duty=2):
        workers = set(threading.enumerate()) - others
        assert len(workers) == 5

    wait_until(lambda: not any(each.is_alive() for each in workers))
