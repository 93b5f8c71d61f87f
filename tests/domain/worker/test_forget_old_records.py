"""Old records of each kind are deleted after a retention period."""

from __future__ import annotations

from datetime import timedelta

import pytest

from adapters.sql.repositories.repository import MAX_FORGOTTEN
from adapters.sql.repositories.sessions import SqlIdempotencyKeys
from domain.errors import ServiceUnavailable
from domain.events.event import DeliveryStatus
from tests.builders import an_event_delivery
from tests.databases import audit_trail, committed
from tests.installation import OTHER_GOOD_CARD, Installation

pytestmark = pytest.mark.installed(
    CARDONFILE_RETENTION="sessions=10,cards=20,audit=30,deliveries=1"
)


def forget_after(installation: Installation, days: int) -> None:
    installation.clock.advance(timedelta(days=days))
    installation.container.forget_old_records()()


def test_records_of_each_kind_are_deleted_after_their_retention_period(
    installation: Installation,
) -> None:
    kept, removed = installation.stored_card(), installation.removed_card(OTHER_GOOD_CARD)
    installation.reconcile()

    forget_after(installation, 11)
    with installation.storage.read() as unit:
        assert unit.sessions.get(removed.token_id) is None
        assert unit.accounts.get(removed.account_id) is not None
        assert len(unit.audit_trail.latest()) == 1

    forget_after(installation, 10)
    with installation.storage.read() as unit:
        assert unit.accounts.get(removed.account_id) is None
        assert len(unit.audit_trail.latest()) == 1

    forget_after(installation, 10)
    assert len(audit_trail(installation.storage)) == 0
    assert installation.accounts() == (installation.account(kept.account_id),)


@pytest.mark.parametrize(("seconds", "is_known"), [(0, True), (1, False)])
def test_idempotency_keys_are_deleted_after_a_day(
    installation: Installation, seconds: int, is_known: bool
) -> None:
    first = installation.add_card(idempotency_key="key")
    installation.clock.advance(timedelta(hours=24, seconds=seconds))
    installation.container.forget_old_records()()

    earlier = first.created_at - timedelta(days=1)
    with installation.storage.read() as unit:
        known = unit.idempotency_keys.get(installation.caller.name, "key", since=earlier)
    assert known == (first.token_id if is_known else None)


def test_idempotency_keys_are_deleted_in_batches(installation: Installation) -> None:
    now = installation.clock.now()
    token_id = installation.add_card().token_id
    with committed(installation.storage) as unit:
        for number in range(MAX_FORGOTTEN + 1):
            unit.idempotency_keys.claim(
                installation.caller.name, f"key-{number}", token_id, now=now, since=now
            )
    installation.clock.advance(timedelta(hours=25))

    forget = installation.container.forget_old_records()
    assert [forget(), forget(), forget()] == [True, True, False]
    with installation.storage.write() as unit:
        assert unit.idempotency_keys.forget(before=installation.clock.now()) == 0


def test_old_deliveries_are_deleted_even_if_deleting_idempotency_keys_fails(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise ServiceUnavailable

    with committed(installation.storage) as unit:
        unit.event_deliveries.add(an_event_delivery(status=DeliveryStatus.DELIVERED, due_at=None))
    installation.clock.advance(timedelta(days=31))
    monkeypatch.setattr(SqlIdempotencyKeys, "forget", refuse)

    with pytest.raises(ServiceUnavailable):
        installation.container.forget_old_records()()

    with installation.storage.read() as left:
        assert left.event_deliveries.latest(limit=1, only_failed=False) == ()
