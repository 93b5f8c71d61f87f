"""Products that clients put and list."""

from __future__ import annotations

import pytest

from adapters.psp_suite.samples import a_uuid
from domain.errors import InvalidCenterId, InvalidField, InvalidProductId, UserNotAuthorized
from domain.pagination import Page, PageRequest
from domain.permissions import Caller, Permission
from domain.products.product import Product
from tests.builders import CENTER_ID, OTHER_CENTER_ID, a_center, a_product
from tests.databases import committed
from tests.installation import Installation

PRODUCT_ID = a_uuid(51)
FIRST_PAGE = PageRequest()


def listed(
    installation: Installation,
    caller: Caller | None = None,
    *,
    center_id: str = CENTER_ID,
    page: PageRequest = FIRST_PAGE,
) -> Page[Product]:
    return installation.use_cases.list_products(
        caller or installation.caller, center_id=center_id, page=page
    )


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


def test_a_new_product_is_listed_last_and_keeps_its_position(installation: Installation) -> None:
    with committed(installation.storage) as unit:
        unit.products.put_many([a_product()])

    created = put(installation)
    assert listed(installation).items == (a_product(), created)
    last = put(installation, product_id=a_uuid(1_000_009))
    changed = put(installation, amount="50")
    assert listed(installation).items == (a_product(), changed, last)


def test_a_caller_limited_to_a_center_can_change_only_products_at_that_center(
    installation: Installation,
) -> None:
    limited = installation.a_caller(centers=frozenset({CENTER_ID}))
    put(installation, caller=limited)
    with pytest.raises(UserNotAuthorized):
        put(installation, caller=limited, center_id=OTHER_CENTER_ID)


def test_an_invalid_product_is_not_stored(installation: Installation) -> None:
    for center_id in ("x", a_uuid(999)):
        with pytest.raises(InvalidCenterId):
            put(installation, center_id=center_id)
    with pytest.raises(InvalidProductId):
        put(installation, product_id="x")
    for amount in (None, 49.9, "49,90"):
        with pytest.raises(InvalidField, match=r"^amount must be "):
            put(installation, amount=amount)
    assert listed(installation).items == ()


def test_a_product_cannot_be_moved_to_another_center(installation: Installation) -> None:
    installation.has_center(a_center(id=OTHER_CENTER_ID))
    product = put(installation)

    with pytest.raises(InvalidProductId):
        put(installation, center_id=OTHER_CENTER_ID)
    assert listed(installation).items == (product,)


def test_products_are_listed_in_pages(installation: Installation) -> None:
    products = [a_product(number) for number in range(1, 4)]
    with committed(installation.storage) as unit:
        unit.products.put_many(products)
    limited = installation.a_caller(centers=frozenset({CENTER_ID}))

    page = listed(installation, limited, page=PageRequest(page=2, size=2))
    assert (page.items, page.total) == (tuple(products[2:]), 3)


def test_listing_products_at_an_unknown_center_is_refused(installation: Installation) -> None:
    for center_id in ("x", a_uuid(9)):
        with pytest.raises(InvalidCenterId):
            listed(installation, center_id=center_id)
    with pytest.raises(UserNotAuthorized):
        listed(installation, installation.a_caller(centers=frozenset()))
