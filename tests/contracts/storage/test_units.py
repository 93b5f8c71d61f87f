from __future__ import annotations

import pytest

from adapters.psp_suite.concurrency import at_once
from adapters.psp_suite.samples import GUEST_ID, TOKEN_ID
from domain.sessions.session import CardSession
from domain.storage import Storage, WriteUnit
from tests.builders import a_guest, a_session
from tests.concurrency import elsewhere
from tests.contracts.storage.records import add, store


def read_session(storage: Storage) -> CardSession | None:
    with storage.read() as unit:
        return unit.sessions.get(TOKEN_ID)


def test_a_write_is_visible_to_other_units_after_its_commit(storage: Storage) -> None:
    with storage.write() as unit:
        unit.sessions.add(a_session())
        assert unit.sessions.get(TOKEN_ID) == a_session()
        assert elsewhere(lambda: read_session(storage)) is None
        unit.commit()
    assert elsewhere(lambda: read_session(storage)) == a_session()


# Shows F3.
def test_a_unit_of_work_without_a_commit_is_rolled_back(storage: Storage) -> None:
    with storage.write() as unit:
        add(unit, a_guest(), a_session())
    storage.transact(lambda unit: unit.sessions.add(a_session()))
    with storage.read() as reading:
        assert reading.guests.get(GUEST_ID) is None
        assert reading.sessions.get(TOKEN_ID) is None


def test_a_unit_of_work_returns_its_result_or_is_rolled_back_if_it_raises_an_error(
    storage: Storage,
) -> None:
    calls = []

    def add_and_fail(unit: WriteUnit) -> None:
        calls.append(unit)
        unit.sessions.add(a_session())
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), storage.write() as unit:
        add_and_fail(unit)
    with pytest.raises(ZeroDivisionError):
        storage.transact(add_and_fail)
    assert len(calls) == 2
    assert read_session(storage) is None

    def add_and_return(unit: WriteUnit) -> str:
        unit.sessions.add(a_session())
        unit.commit()
        return "added"

    assert storage.transact(add_and_return) == "added"
    assert read_session(storage) == a_session()


def test_a_read_unit_sees_one_consistent_state(storage: Storage) -> None:
    def add() -> None:
        store(storage, a_session())

    with storage.read() as unit:
        assert unit.sessions.get(TOKEN_ID) is None
        elsewhere(add)
        assert unit.sessions.get(TOKEN_ID) is None
    assert read_session(storage) == a_session()


def test_a_read_unit_refuses_to_write(storage: Storage) -> None:
    with pytest.raises(RuntimeError, match="may not write"), storage.read() as unit:
        unit.sessions.add(a_session())
    assert read_session(storage) is None
    with storage.read() as unit, pytest.raises(RuntimeError, match="may not write"):
        unit.commit()  # type: ignore[attr-defined]  # its type has no commit


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_unit_of_work_that_has_ended_refuses_all_operations(
    storage: Storage, is_committed: bool
) -> None:
    def refuses_everything(unit: WriteUnit) -> None:
        for use in (unit.sessions.add, unit.sessions.update):
            with pytest.raises(RuntimeError, match="is over"):
                use(a_session())
        with pytest.raises(RuntimeError, match="is over"):
            unit.sessions.get(TOKEN_ID)
        with pytest.raises(RuntimeError, match="is over"):
            unit.commit()

    with storage.write() as unit:
        if is_committed:
            unit.commit()
            refuses_everything(unit)
    refuses_everything(unit)
    assert read_session(storage) is None


# Shows F13.
def test_opening_a_unit_of_work_inside_another_unit_is_refused(storage: Storage) -> None:
    for outer in (storage.read, storage.write):
        for inner in (storage.read, storage.write):
            with outer(), pytest.raises(RuntimeError, match="do not nest"), inner():
                pass
        with outer(), pytest.raises(RuntimeError, match="do not nest"):
            storage.transact(lambda unit: unit.commit())
    with storage.write(), pytest.raises(RuntimeError, match="do not nest"):
        storage.check()
    storage.transact(lambda unit: unit.commit())


def test_a_closed_storage_is_reopened_at_its_next_use(storage: Storage) -> None:
    storage.close()
    storage.check()
    store(storage, a_session())
    at_once(4, lambda _: read_session(storage))
    storage.close()
    storage.close()
    assert read_session(storage) == a_session()
