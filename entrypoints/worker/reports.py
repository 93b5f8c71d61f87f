"""The worker's log lines: finished and failing work, unavailable endpoints, and unusual cards."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import structlog

from domain.errors import ServiceUnavailable
from domain.events.deliver_event import Attempt, EndpointState
from domain.events.event import DeliveryStatus
from domain.identifiers import CenterId, EndpointId, TokenId
from domain.outside import Clock
from domain.sessions.card_testing import FindCardTesting
from domain.sessions.refused_card import WINDOW
from domain.settling.complete_agreements import CompleteAgreements
from domain.worker.jobs import End, JobResult, Kind
from entrypoints.databases import cause_of

LINE_EVERY_SECONDS: Final = 60
BACK_AFTER_SECONDS: Final = 90
"""A kind of work is logged as working again if its last failure was this long ago. This is longer
than a lease, after which a failed job is tried again.
"""

log = structlog.get_logger()


@dataclass(slots=True)
class Done:
    """The work that a runner has done so far.

    `jobs` counts finished jobs by kind, including jobs that failed. `ends` counts the same jobs by
    result, except those without a result. `faults` contains the exceptions that jobs raised. These
    jobs are retried later. `silent` counts the jobs whose PSP has not responded for 24 hours.
    """

    jobs: Counter[Kind] = field(default_factory=Counter)
    ends: Counter[End] = field(default_factory=Counter)
    faults: list[Exception] = field(default_factory=list)
    silent: int = 0

    @property
    def is_idle(self) -> bool:
        """Whether this round did no job."""
        return not self.jobs.total()

    def note(self, kind: Kind, result: JobResult) -> None:
        """Count a job and its result."""
        self.jobs[kind] += 1
        self.ends.update([result.end] if result.end else [])
        self.faults += [result.fault] if result.fault else []
        self.silent += result.is_silent

    def add(self, more: Done) -> None:
        """Add the work that another runner has done."""
        self.jobs += more.jobs
        self.ends += more.ends
        self.faults += more.faults
        self.silent += more.silent


class WorkLog:
    """Logs finished work, and when a kind of work begins to fail or works again.

    A kind of work that keeps failing is logged only once. At most one line about failing work is
    written in a minute, for all kinds together. All runners of a process share one log.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """Set the clock. `now` returns the time in seconds."""
        self._now = now
        self._lock = threading.Lock()
        self._failed_at: dict[str, float] = {}
        self._next_line_at = now()

    def report(self, done: Done) -> None:
        """Log the finished work, if any."""
        if done.silent:
            log.error("psp_silent_for_24_hours", silent=done.silent)
        if not done.is_idle:
            log.info("reconciled", **{end.value: done.ends[end] for end in End})

    def failed(self, work: str, fault: Exception) -> None:
        """Record that a kind of work has failed, and log the failure if it is new.

        The runner retries the work.
        """
        with self._lock:
            now, is_known = self._now(), work in self._failed_at
            if is_known or now >= self._next_line_at:
                self._failed_at[work] = now
            if is_known or now < self._next_line_at:
                return
            self._next_line_at = now + LINE_EVERY_SECONDS
        if isinstance(fault, ServiceUnavailable):
            log.error(
                "reconciler_without_storage",
                work=work,
                cause=cause_of(fault),
                note="nothing is lost; check the disk, permissions and other writers",
            )
        else:
            log.error("reconciler_fault", work=work, exc_info=fault)

    def succeeded(self, *works: str) -> None:
        """Record that these kinds of work have succeeded, and log which of them have recovered.

        A kind that failed in the last 90 seconds is not logged as recovered yet. The job that
        failed is retried only when its lease ends, so the retry may still fail.
        """
        with self._lock:
            now = self._now()
            latest = now - BACK_AFTER_SECONDS
            back = sorted(work for work in works if self._failed_at.get(work, now) <= latest)
            if not back or now < self._next_line_at:
                return
            for work in back:
                del self._failed_at[work]
            self._next_line_at = now + LINE_EVERY_SECONDS
        log.warning("reconciler_storage_back", work=back)


class EndpointLog:
    """Logs once when an endpoint stops accepting events, and once when it accepts them again.

    For an endpoint whose state changes often, at most one pair of lines is logged in a minute.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """Set the clock. `now` returns the time in seconds."""
        self._now = now
        self._away: set[EndpointId] = set()
        self._next_line_at: dict[EndpointId, float] = {}

    def __call__(self, attempt: Attempt) -> None:
        """Log the result of an attempt if it changes the state of the endpoint."""
        delivery, state = attempt
        endpoint, result = delivery.endpoint_id, delivery.last_result
        match state:
            case EndpointState.TAKES_EVENTS if endpoint in self._away:
                self._away.discard(endpoint)
                log.warning("event_endpoint_back", endpoint=endpoint)
            case EndpointState.GONE:
                log.error(
                    "event_endpoint_disabled",
                    endpoint=endpoint,
                    note="the endpoint responded 410; to send it events again, remove the "
                    "endpoint and add it again",
                )
            case EndpointState.AWAY if delivery.status is DeliveryStatus.FAILED:
                log.error(
                    "event_not_delivered",
                    endpoint=endpoint,
                    event_id=delivery.event.event_id,
                    result=result,
                    note="when the endpoint works again: cardonfile events replay EVENT_ID",
                )
            case EndpointState.AWAY if endpoint not in self._away:
                now = self._now()
                if now < self._next_line_at.get(endpoint, now):
                    return
                self._next_line_at[endpoint] = now + LINE_EVERY_SECONDS
                self._away.add(endpoint)
                log.warning(
                    "event_endpoint_away",
                    endpoint=endpoint,
                    result=result,
                    note="each event is tried ten times in three days",
                )


class CardTestingLog:
    """Logs centers with unusually many refused cards. Each center is logged once in 24 hours."""

    def __init__(self, find: FindCardTesting, clock: Clock) -> None:
        self._find = find
        self._clock = clock
        self._logged_at: dict[CenterId, datetime] = {}

    def __call__(self) -> None:
        """Find centers with unusually many refused cards, and log them.

        Raises ServiceUnavailable.
        """
        now = self._clock.now()
        for center in self._find():
            logged_at = self._logged_at.get(center.center_id)
            if logged_at is not None and abs(now - logged_at) < WINDOW:
                continue
            self._logged_at[center.center_id] = now
            log.warning(
                "card_testing_suspected",
                center_id=center.center_id,
                refused_cards=center.refused_cards,
                sessions=center.sessions,
                do="find the caller that adds these cards, and revoke its token or stop it; "
                "see card testing in docs/operations.md",
            )


class NotAgreedLog:
    """Logs bookings to which the guest did not agree, because an earlier release showed the page.

    That release does not show the text about a booking. Each booking is logged once.
    """

    def __init__(self, complete: CompleteAgreements) -> None:
        self._complete = complete
        self._logged: set[TokenId] = set()

    def __call__(self) -> None:
        """Add missing agreements, and log the bookings that still have no agreement.

        Raises ServiceUnavailable.
        """
        for session in self._complete():
            if session.token_id not in self._logged:
                self._logged.add(session.token_id)
                log.warning(
                    "booking_without_agreement",
                    session=session.prefix,
                    center_id=session.center_id,
                    do="release 0.2 showed the page, so the guest did not agree to the booking: "
                    "see agreements beside 0.2 in docs/operations.md",
                )
