from __future__ import annotations

import pytest

from adapters.psp_suite.concurrency import at_once
from adapters.psp_suite.samples import GUEST_ID, OTHER_GUEST_ID, a_uuid
from domain.identifiers import GuestId
from domain.pagination import PageRequest
from domain.storage import AlreadyStored, Storage
from tests.builders import a_guest
from tests.contracts.storage.records import add
from tests.databases import committed


def test_putting_a_guest_twice_keeps_the_last_record(storage: Storage) -> None:
    with committed(storage) as unit:
        unit.guests.put_many([a_guest(), a_guest(id=OTHER_GUEST_ID)])
        unit.guests.put_many([a_guest(last_name="Li"), a_guest(last_name="Ríos")])
    with storage.read() as reading:
        assert reading.guests.get(GUEST_ID) == a_guest(last_name="Ríos")
        assert reading.guests.get(OTHER_GUEST_ID) == a_guest(id=OTHER_GUEST_ID)


def test_putting_a_guest_without_a_language_keeps_the_language_on_file(storage: Storage) -> None:
    with committed(storage) as unit:
        add(unit, a_guest(language="de"), a_guest(last_name="Li"))
        assert unit.guests.get(GUEST_ID) == a_guest(last_name="Li", language="de")
        unit.guests.put_many([a_guest(language="fr")])
        assert unit.guests.get(GUEST_ID) == a_guest(language="fr")
        unit.guests.update(a_guest())
    with storage.read() as reading:
        assert reading.guests.get(GUEST_ID) == a_guest()


def test_adding_an_existing_guest_does_not_overwrite_the_guest(storage: Storage) -> None:
    with committed(storage) as unit:
        unit.guests.add(a_guest())
    with pytest.raises(AlreadyStored), storage.write() as unit:
        unit.guests.add(a_guest(last_name="Li"))
    with committed(storage) as unit:
        unit.guests.update(a_guest(last_name="Ríos"))
    with storage.read() as reading:
        assert reading.guests.get(GUEST_ID) == a_guest(last_name="Ríos")


def test_adding_a_guest_concurrently_adds_one_guest(storage: Storage) -> None:
    def add(number: int) -> bool:
        try:
            with committed(storage) as unit:
                unit.guests.add(a_guest(last_name=str(number)))
        except AlreadyStored:
            return False
        return True

    assert sum(at_once(4, add)) == 1


def test_a_unit_that_waited_for_the_lock_on_a_guest_sees_the_committed_change(
    storage: Storage,
) -> None:
    with committed(storage) as unit:
        unit.guests.add(a_guest())

    def change(number: int) -> bool:
        with committed(storage) as unit:
            if unit.guests.lock(GUEST_ID) != a_guest():
                return False
            unit.guests.update(a_guest(last_name=str(number)))
        return True

    assert sum(at_once(4, change)) == 1


def test_guests_are_found_by_email_address_in_any_case(storage: Storage) -> None:
    addresses = ("ada@example.com", "ADA@Example.com", "ada@example.co", "xada@example.com", None)
    with committed(storage) as unit:
        unit.guests.put_many(
            a_guest(id=GuestId(a_uuid(90 - number)), email=email)
            for number, email in enumerate(addresses)
        )
    with storage.read() as reading:
        whole = reading.guests.with_email("Ada@example.COM", PageRequest())
        second = reading.guests.with_email("ada@example.com", PageRequest(page=2, size=1))
        for wildcard in ("%", "a_a@example.com", "*"):
            assert reading.guests.with_email(wildcard, PageRequest()).total == 0
    assert [guest.id for guest in whole.items] == [a_uuid(89), a_uuid(90)]
    assert [guest.id for guest in second.items] == [a_uuid(90)]
    assert (whole.total, second.total) == (2, 2)
