from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from adapters.psp_suite.concurrency import at_once
from adapters.psp_suite.samples import a_uuid
from domain.identifiers import CenterId, MerchantAccount
from domain.pagination import PageRequest
from domain.storage import Storage, WriteUnit
from tests.builders import (
    CENTER_ID,
    OTHER_CENTER_ID,
    a_center,
    a_configuration,
    center_settings,
)
from tests.databases import committed

FIRST, SECOND = a_center(name="A"), a_center(id=OTHER_CENTER_ID, name="B")
THIRD = a_center(id=CenterId(a_uuid(404)), name="C")


def test_centers_are_listed_by_name(storage: Storage) -> None:
    with storage.write() as unit:
        unit.centers.put_many([THIRD, SECOND, FIRST])
        page = unit.centers.page(None, PageRequest(page=2, size=2))
        assert (page.items, page.total) == ((THIRD,), 3)
        page = unit.centers.page(frozenset({FIRST.id, SECOND.id}), PageRequest())
        assert (page.items, page.total) == ((FIRST, SECOND), 2)
        assert unit.centers.page(frozenset(), PageRequest()).total == 0


def test_putting_a_center_a_second_time_keeps_its_settings(storage: Storage) -> None:
    renamed = replace(FIRST, name="D")
    with committed(storage) as unit:
        unit.centers.put_many([FIRST])
        unit.center_settings.put(CENTER_ID, center_settings())
        unit.configurations.put(CENTER_ID, a_configuration())
    with committed(storage) as unit:
        unit.centers.put_many([renamed])
    with storage.read() as unit:
        assert unit.centers.get(CENTER_ID) == renamed
        assert unit.center_settings.get(CENTER_ID) == center_settings()
        assert unit.configurations.get(CENTER_ID) == a_configuration()


def lengthen_contact(unit: WriteUnit) -> str:
    contact = f"{unit.center_settings.get_to_change(CENTER_ID).contact or ''}x"
    unit.center_settings.put(CENTER_ID, center_settings(contact=contact))
    return contact


def lengthen_account(unit: WriteUnit) -> str:
    before = unit.configurations.get_to_change(CENTER_ID)
    account = MerchantAccount(f"{before.merchant_account if before else ''}x")
    unit.configurations.put(CENTER_ID, a_configuration(merchant_account=account))
    return account


@pytest.mark.parametrize("lengthen", [lengthen_contact, lengthen_account])
def test_concurrent_changes_to_a_center_do_not_overwrite_each_other(
    storage: Storage, lengthen: Callable[[WriteUnit], str]
) -> None:
    def change(_: int) -> None:
        with committed(storage) as unit:
            lengthen(unit)

    at_once(4, change)

    with storage.write() as unit:
        assert lengthen(unit) == "x" * 5


def test_the_payment_configurations_of_all_centers_can_be_read(storage: Storage) -> None:
    first = a_configuration()
    second = a_configuration(merchant_account=MerchantAccount("harbor"), redirect_origins=())
    with storage.write() as unit:
        assert unit.configurations.all() == ()
        unit.configurations.put(CENTER_ID, first)
        unit.configurations.put(OTHER_CENTER_ID, second)
        assert sorted(unit.configurations.all(), key=repr) == sorted([first, second], key=repr)
        assert unit.configurations.psp_accounts() == {first.psp_account, second.psp_account}
