"""The products of a center: `/v1/centers/{center_id}/products`."""

from __future__ import annotations

from dataclasses import dataclass

import falcon

from adapters.http.answers import ProductsForSale, json_body
from adapters.http.authentication import Authentication
from adapters.http.requests import Query
from domain.list_products import ListProducts


@dataclass(frozen=True, kw_only=True)
class CenterProducts:
    """List products in pages (interface, section 4.2)."""

    authenticate: Authentication
    list_products: ListProducts

    def on_get(self, req: falcon.Request, resp: falcon.Response, center_id: str) -> None:
        """List the center's products."""
        caller = self.authenticate(req)
        query = Query(req)
        page = self.list_products(
            caller, center_id=center_id, pages=query.all("page"), sizes=query.all("size")
        )
        json_body(resp, ProductsForSale.of(page))
