"""The products of a center: `/v1/centers/{center_id}/products`."""

from __future__ import annotations

from dataclasses import dataclass

import falcon

from adapters.http.authentication import Authentication
from adapters.http.requests import Query
from adapters.http.responses import ProductsForSale, json_body
from adapters.http.use_cases import UseCases


@dataclass(frozen=True, kw_only=True)
class CenterProducts:
    """List the products of a center (interface, section 4.3)."""

    use_cases: UseCases
    authenticate: Authentication

    def on_get(self, req: falcon.Request, resp: falcon.Response, center_id: str) -> None:
        """List one page of them."""
        caller = self.authenticate(req)
        query = Query(req)
        page = self.use_cases.list_products(
            caller, center_id=center_id, pages=query.all("page"), sizes=query.all("size")
        )
        json_body(resp, ProductsForSale.of(page))
