from __future__ import annotations

from typing import Final

import pytest

from adapters.psp_suite.samples import a_uuid
from tests.adapters.http.api import PRODUCTS, Api
from tests.builders import a_product


def test_products_come_in_pages(api: Api) -> None:
    with api.installation.storage.write() as unit:
        unit.products.put_many(a_product(number) for number in range(1, 26))
        unit.commit()

    first = api.get(PRODUCTS)
    assert first.json["page_info"] == {"total": 25, "page": 1, "size": 10}
    assert len(first.json["products"]) == 10
    assert first.json["products"][0] == {
        "id": a_product(1).id,
        "code": "P-1",
        "name": "Massage 1",
        "description": "An hour of rest",
        "price": {"amount": "120.50", "currency": "EUR"},
    }
    last = api.get(PRODUCTS, "page=3&size=10")
    assert [product["code"] for product in last.json["products"]] == [
        f"P-{number}" for number in range(21, 26)
    ]


OIL: Final = {
    "code": "OIL-50",
    "name": "Massage oil",
    "description": "",
    "price": {"amount": "49.90", "currency": "EUR"},
}


def test_a_product_that_was_put_is_listed(api: Api) -> None:
    put = api.put(f"{PRODUCTS}/{a_uuid(51)}", OIL)

    assert put.json == {"id": a_uuid(51), **OIL}
    assert api.get(PRODUCTS).json["products"] == [put.json]


@pytest.mark.parametrize("price", [None, "49.90", {"amount": 49.9, "currency": "EUR"}])
def test_a_price_of_another_form_is_refused(api: Api, price: object) -> None:
    result = api.put(f"{PRODUCTS}/{a_uuid(52)}", OIL | {"price": price})

    assert result.status_code == 400
    assert result.json["message"].startswith("amount must be ")
