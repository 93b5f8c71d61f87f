"""The metrics that each process counts, for Prometheus.

The package prometheus-client reads PROMETHEUS_MULTIPROC_DIR when this module is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from typing_extensions import override

from domain.events.event import Event, EventEndpoint
from domain.events.event_sender import EventSender
from domain.sessions.session_log import SessionLog, SessionStep, Step

STORING_SECONDS: Final = (1, 5, 15, 60, 300, 1800, 7200, 86_400)
MAX_CODES: Final = 100
"""The maximum number of codes of declined cards that are counted separately. All further codes are
counted together, as `other`.
"""

_HARMLESSLY: Final = suppress(Exception)
_STORED: Final = (Step.STORED, Step.RENEWED)
_ENDED: Final = (*_STORED, Step.CARD_USED, Step.REFUSED, Step.EXPIRED)


class Counts:
    """The metrics of this process. To count, call a metric with its labels.

    For a metric that measures times, pass the number of seconds after the labels. The calls never
    raise, not even if the disk that holds the metrics files is full.
    """

    def __init__(self, registry: CollectorRegistry | None, psps: Iterable[str] = ()) -> None:
        """Create the metrics in `registry`, which is None if each process writes files.

        The counts of stored cards start at 0 for each of `psps`. If a count first appeared with the
        value 1, Prometheus would not see an increase, and an alert would miss the first card.
        """

        def counter(name: str, what: str, *labels: str) -> Callable[..., None]:
            metric = Counter(f"cardonfile_{name}", what, labels, registry=registry)
            # The labels are cached, because finding them takes longer than counting.
            labelled: Callable[..., Counter] = cache(metric.labels) if labels else lambda: metric

            def count(*values: str) -> None:
                with _HARMLESSLY:
                    labelled(*values).inc()

            return count

        def seconds(
            name: str,
            what: str,
            *labels: str,
            buckets: Sequence[float] = Histogram.DEFAULT_BUCKETS,
            begin_at_0: Iterable[str] = (),
        ) -> Callable[..., None]:
            name = f"cardonfile_{name}_seconds"
            metric = Histogram(name, what, labels, registry=registry, buckets=buckets)
            labelled: Callable[..., Histogram] = cache(metric.labels) if labels else lambda: metric
            for each in begin_at_0:
                labelled(each)

            def observe(*values: Any) -> None:  # first the labels, then the seconds
                with _HARMLESSLY:
                    labelled(*values[:-1]).observe(values[-1])

            return observe

        self.request = seconds(
            "http_request_duration", "Requests with a response.", "route", "method", "status"
        )
        self.unauthenticated = counter(
            "authentication_failures_total", "Requests from an unknown caller.", "reason"
        )
        self.ended = counter("sessions_ended_total", "Sessions that ended.", "end", "reason")
        self.declined = counter(
            "cards_declined_total", "Cards that a bank declined.", "psp", "code"
        )
        self.stored = seconds(
            "card_storing",
            "Time from the collection of a card at the PSP until the card is stored.",
            "psp",
            buckets=STORING_SECONDS,
            begin_at_0=psps,
        )
        self.psp_call = seconds(
            "psp_call_duration", "Calls to PSPs.", "psp", "account", "operation", "result"
        )
        self.attempt = counter(
            "event_attempts_total", "Attempts to deliver events.", "endpoint", "result"
        )
        self.wait = seconds(
            "database_wait", "Waits for a connection to PostgreSQL, or for SQLite's write lock."
        )
        self.lost_line = counter(
            "log_lines_lost_total", "Log lines that could not be written completely."
        )


class CountedSessions(SessionLog):
    """Logs the steps of sessions, and counts declined cards and the results of sessions."""

    def __init__(self, log: SessionLog, counts: Counts) -> None:
        self._log = log
        self._counts = counts
        self._codes: set[str] = set()

    @override
    def __call__(self, *steps: SessionStep) -> None:
        self._log(*steps)
        for each in steps:
            psp = each.session.configuration.provider
            if each.step is Step.DECLINED:
                self._counts.declined(psp, self._bounded(each.reason or "unknown"))
            if each.step in _ENDED:
                self._counts.ended(each.step, each.reason or "")
            if each.step in _STORED and each.collected_at and each.session.ended_at:
                # The PSP's clock may be ahead.
                late = (each.session.ended_at - each.collected_at).total_seconds()
                self._counts.stored(psp, max(late, 0.0))

    def _bounded(self, code: str) -> str:
        if code not in self._codes and len(self._codes) >= MAX_CODES:
            return "other"
        self._codes.add(code)
        return code


@dataclass(frozen=True, slots=True)
class CountedEvents(EventSender):
    """Sends events, and counts the attempts."""

    sender: EventSender
    counts: Counts

    @override
    def send(self, event: Event, endpoint: EventEndpoint, *, now: datetime) -> int:
        result = "no response"
        try:
            status = self.sender.send(event, endpoint, now=now)
            result = f"{status // 100}xx"
            return status
        finally:
            self.counts.attempt(endpoint.endpoint_id, result)
