"""The gauges that are read from the storage at each request of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from typing_extensions import override

from domain.outside import Clock
from domain.retries import Waiting
from domain.storage import Storage
from domain.worker.heartbeat import WorkerState
from domain.worker.read_status import ReadStatus, Status

_ACCOUNT: Final = ("psp", "account")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StoredGauges(Collector):
    """Reports the status of the installation, or only that the storage is unavailable."""

    storage: Storage
    read_status: ReadStatus
    clock: Clock
    release: str

    @override
    def collect(self) -> Iterator[GaugeMetricFamily]:
        status: Status | None = None
        # The counts of the process are served even if the records cannot be read.
        with suppress(Exception):
            self.storage.check()
            status = self.read_status()
        yield _gauge("build_info", "The release.", [((self.release,), 1)], "version")
        yield _gauge(
            "database_up", "1 if records can be read and written.", [((), status is not None)]
        )
        if status is not None:
            yield from _gauges(status, self.clock.now())


def _gauges(status: Status, now: datetime) -> Iterator[GaugeMetricFamily]:
    workers = [worker for worker in status.workers if worker.state is WorkerState.RUNNING]
    running = sum(not worker.is_missing for worker in workers)
    yield _gauge("workers", "Workers seen in the last minute.", [((), running)])
    expiring = len(status.expiring)
    yield _gauge("tokens_expiring", "Access tokens that expire within 14 days.", [((), expiring)])
    failed = [((endpoint.endpoint_id,), counts.failed) for endpoint, counts in status.endpoints]
    yield _gauge("failed_events", "Events whose ten delivery attempts failed.", failed, "endpoint")
    pending = {
        (endpoint.endpoint_id,): Waiting(counts.pending, counts.pending_since)
        for endpoint, counts in status.endpoints
    }
    due = {(kind,): waiting for kind, waiting in status.due.items()}
    for name, what, labels, found in (
        ("pending_events", "Events that have not been delivered yet", ["endpoint"], pending),
        ("due_items", "Work that is due now", ["kind"], due),
        ("unanswered_items", "Work whose PSP does not respond", _ACCOUNT, status.unanswered),
    ):
        items = [(key, each.items) for key, each in found.items()]
        ages = [(key, (now - (each.since or now)).total_seconds()) for key, each in found.items()]
        yield _gauge(name, f"{what}.", items, *labels)
        yield _gauge(f"{name}_oldest_age_seconds", f"{what}: age of the oldest.", ages, *labels)


def _gauge(
    name: str, what: str, values: Iterable[tuple[Sequence[str], float]], *labels: str
) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(f"cardonfile_{name}", what, labels=labels)
    for key, value in values:
        gauge.add_metric(key, value)
    return gauge
