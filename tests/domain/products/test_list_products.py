from __future__ import annotations

import pytest

from adapters.psp.contract.samples import a_uuid
from domain.errors import InvalidCenterId, PageParameterInvalid, TooManyItems, UserNotAuthorized
from domain.permissions import Permission
from tests.builders import CENTER_ID, a_product
from tests.installation import Installation


def test_products_are_listed_in_pages(installation: Installation) -> None:
    products = [a_product(number) for number in range(1, 26)]
    with installation.storage.write() as unit:
        unit.products.put_many(products)
        unit.commit()

    page = installation.use_cases.list_products(
        installation.caller, center_id=CENTER_ID, pages=["3"], sizes=[]
    )
    assert (page.items, page.total) == (tuple(products[20:]), 25)


def test_a_limited_caller_lists_the_products_of_its_own_centers(
    installation: Installation,
) -> None:
    with installation.storage.write() as unit:
        unit.products.put_many([a_product()])
        unit.commit()
    limited = installation.a_caller(centers=frozenset({CENTER_ID}))

    page = installation.use_cases.list_products(limited, center_id=CENTER_ID, pages=[], sizes=[])

    assert page.items == (a_product(),)


def test_products_have_refusals_of_their_own(installation: Installation) -> None:
    list_products = installation.use_cases.list_products

    with pytest.raises(UserNotAuthorized):
        list_products(
            installation.a_caller(Permission.GUESTS_VIEW), center_id="x", pages=[], sizes=["0"]
        )
    with pytest.raises(TooManyItems):
        list_products(installation.caller, center_id="x", pages=[], sizes=["101"])
    with pytest.raises(PageParameterInvalid):
        list_products(installation.caller, center_id="x", pages=["0"], sizes=[])
    for center_id in ("x", a_uuid(9)):
        with pytest.raises(InvalidCenterId):
            list_products(installation.caller, center_id=center_id, pages=[], sizes=[])
    with pytest.raises(UserNotAuthorized):
        list_products(
            installation.a_caller(centers=frozenset()), center_id=CENTER_ID, pages=[], sizes=[]
        )
