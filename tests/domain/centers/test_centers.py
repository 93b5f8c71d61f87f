from __future__ import annotations

import pytest

from adapters.psp.contract.samples import a_uuid
from domain.centers.list_centers import ConfiguredCenter
from domain.errors import (
    InvalidCenterId,
    InvalidField,
    InvalidProductId,
    TooManyItems,
    UserNotAuthorized,
)
from domain.identifiers import CenterId
from domain.pagination import Page
from domain.permissions import Caller, Permission
from domain.products.product import Product
from tests.builders import CENTER_ID, OTHER_CENTER_ID, a_center, a_product
from tests.installation import Installation

PRODUCT_ID = a_uuid(51)


def listed(
    installation: Installation, caller: Caller, *, page: str = "1", size: str = "10"
) -> Page[ConfiguredCenter]:
    return installation.use_cases.list_centers(caller, pages=[page], sizes=[size])


def test_centers_are_listed_by_name_with_their_configuration(installation: Installation) -> None:
    first = a_center(id=OTHER_CENTER_ID, name="A first center")
    installation.has_center(first)
    installation.configure(avs=True, redirect_origins=("https://shop.example",))

    found = listed(installation, installation.caller)

    assert [each.center for each in found.items] == [first, a_center()]
    assert found.items[0].configuration is None
    configuration = found.items[1].configuration
    assert configuration is not None
    assert configuration.redirect_origins == ("https://shop.example",)
    second_page = listed(installation, installation.caller, page="2", size="1")
    assert (second_page.items, second_page.total) == (found.items[1:], 2)


def test_a_caller_sees_its_own_centers_only(installation: Installation) -> None:
    installation.has_center(a_center(id=OTHER_CENTER_ID))
    caller = installation.a_caller(Permission.GUESTS_VIEW, centers=frozenset({OTHER_CENTER_ID}))

    found = listed(installation, caller)

    assert ([each.center.id for each in found.items], found.total) == ([OTHER_CENTER_ID], 1)
    read = installation.use_cases.read_center
    assert read(caller, center_id=OTHER_CENTER_ID.upper()) == found.items[0]
    with pytest.raises(UserNotAuthorized):
        read(caller, center_id=CENTER_ID)


def test_a_center_that_does_not_exist_is_refused(installation: Installation) -> None:
    for center_id in ("x", a_uuid(999)):
        with pytest.raises(InvalidCenterId):
            installation.use_cases.read_center(installation.caller, center_id=center_id)
    with pytest.raises(TooManyItems):
        listed(installation, installation.caller, size="101")


def put(
    installation: Installation,
    *,
    caller: Caller | None = None,
    center_id: str = CENTER_ID,
    product_id: str = PRODUCT_ID,
    amount: object = "49.90",
) -> Product:
    return installation.use_cases.put_product(
        caller or installation.a_caller(Permission.PRODUCTS_EDIT),
        center_id=center_id,
        product_id=product_id,
        code="OIL-50",
        name="Massage oil",
        description="",
        amount=amount,
        currency="EUR",
    )


def products_of(installation: Installation, center_id: CenterId = CENTER_ID) -> tuple[Product, ...]:
    return installation.use_cases.list_products(
        installation.caller, center_id=center_id, pages=(), sizes=()
    ).items


def test_a_product_is_created_at_the_end(installation: Installation) -> None:
    with installation.storage.write() as unit:
        unit.products.put_many([a_product()])
        unit.commit()

    created = put(installation)
    assert products_of(installation) == (a_product(), created)


def test_a_product_is_changed_in_its_place(installation: Installation) -> None:
    put(installation)
    other = put(installation, product_id=a_product().id)

    for _ in range(2):
        changed = put(installation, amount="50")
        assert products_of(installation) == (changed, other)


@pytest.mark.parametrize("permission", list(Permission))
def test_a_product_is_changed_by_products_edit_at_the_callers_centers(
    installation: Installation, permission: Permission
) -> None:
    limited = installation.a_caller(permission, centers=frozenset({CENTER_ID}))
    if permission is Permission.PRODUCTS_EDIT:
        put(installation, caller=limited)
        with pytest.raises(UserNotAuthorized):
            put(installation, caller=limited, center_id=OTHER_CENTER_ID)
    else:
        with pytest.raises(UserNotAuthorized):
            put(installation, caller=limited)


def test_an_invalid_product_is_not_stored(installation: Installation) -> None:
    for center_id in ("x", a_uuid(999)):
        with pytest.raises(InvalidCenterId):
            put(installation, center_id=center_id)
    with pytest.raises(InvalidProductId):
        put(installation, product_id="x")
    for amount in (None, 49.9, "49,90"):
        with pytest.raises(InvalidField, match=r"^amount must be "):
            put(installation, amount=amount)
    assert products_of(installation) == ()


def test_a_product_of_another_center_stays_there(installation: Installation) -> None:
    installation.has_center(a_center(id=OTHER_CENTER_ID))
    product = put(installation)

    with pytest.raises(InvalidProductId):
        put(installation, center_id=OTHER_CENTER_ID)
    assert products_of(installation) == (product,)
