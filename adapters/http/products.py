"""The products of a center: `/v1/centers/{center_id}/products`."""

from __future__ import annotations

from dataclasses import dataclass

import falcon

from adapters.http.authentication import Authentication
from adapters.http.requests import ProductBody, Query, read_body
from adapters.http.responses import ProductForSale, ProductsForSale, json_body
from adapters.http.use_cases import UseCases
from domain.permissions import MAY_EDIT_PRODUCTS


@dataclass(frozen=True, kw_only=True)
class Products:
    """List the products of a center, create and update them."""

    use_cases: UseCases
    authenticate: Authentication

    def add_to(self, app: falcon.App[falcon.Request, falcon.Response]) -> None:
        """Add the routes."""
        path = "/v1/centers/{center_id}/products"
        app.add_route(path, self)
        app.add_route(path + "/{product_id}", self, suffix="product")

    def on_get(self, req: falcon.Request, resp: falcon.Response, center_id: str) -> None:
        """List one page of them."""
        caller = self.authenticate(req)
        query = Query(req)
        page = self.use_cases.list_products(
            caller, center_id=center_id, pages=query.all("page"), sizes=query.all("size")
        )
        json_body(resp, ProductsForSale.of(page))

    def on_put_product(
        self, req: falcon.Request, resp: falcon.Response, center_id: str, product_id: str
    ) -> None:
        """Create or update a product."""
        caller = self.authenticate(req)
        # The permission is checked before the body is read, so that its refusal comes first.
        caller.require(MAY_EDIT_PRODUCTS)
        body = read_body(req, ProductBody)
        price = body.price if isinstance(body.price, dict) else {}
        product = self.use_cases.put_product(
            caller,
            center_id=center_id,
            product_id=product_id,
            code=body.code,
            name=body.name,
            description=body.description,
            amount=price.get("amount"),
            currency=price.get("currency"),
        )
        json_body(resp, ProductForSale.of(product))
