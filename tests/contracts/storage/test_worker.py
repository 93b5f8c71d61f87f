from __future__ import annotations

from adapters.psp.contract.samples import NOW
from domain.storage import Storage
from tests.contracts.storage.records import MINUTE


def test_the_last_worker_heartbeat_is_kept(storage: Storage) -> None:
    with storage.write() as unit:
        assert unit.worker_heartbeats.last() is None
        for time in (NOW, NOW + MINUTE):
            unit.worker_heartbeats.leave(time)
        assert unit.worker_heartbeats.last() == NOW + MINUTE
