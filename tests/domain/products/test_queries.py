from __future__ import annotations

import pytest

from adapters.psp_suite.samples import a_uuid
from domain.errors import InvalidCenterId, UserNotAuthorized
from domain.pagination import Page, PageRequest
from domain.permissions import Caller
from domain.products.product import Product
from tests.builders import CENTER_ID, a_product
from tests.databases import committed
from tests.installation import Installation

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
