from __future__ import annotations

from typing import Final

from adapters.psp_suite.samples import a_uuid
from tests.adapters.http.api import PRODUCTS, Api

OIL: Final = {
    "code": "OIL-50",
    "name": "Massage oil",
    "description": "",
    "price": {"amount": "49.90", "currency": "EUR"},
}


def test_a_stored_product_appears_in_the_list_of_products(api: Api) -> None:
    put = api.put(f"{PRODUCTS}/{a_uuid(51)}", OIL)

    assert put.json == {"id": a_uuid(51), **OIL}
    assert api.get(PRODUCTS).json["products"] == [put.json]


def test_putting_a_product_with_a_malformed_price_is_refused(api: Api) -> None:
    for price in (None, "49.90", {"amount": 49.9, "currency": "EUR"}):
        result = api.put(f"{PRODUCTS}/{a_uuid(52)}", OIL | {"price": price})
        assert result.status_code == 400
        assert result.json["message"].startswith("amount must be ")
