"""The products of a center: `/v1/centers/{center_id}/products`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from msgspec import Struct

from adapters.http.centers import CENTER_ID, CENTERS
from adapters.http.examples import CENTER_IDS, PRODUCT_IDS, sample
from adapters.http.operations import Operation, Tag, parameter
from adapters.http.requests import RequestBody, field, text
from adapters.http.responses import PageInfo, Uuid, example, uuid_example
from adapters.thread_safe_types import prepare
from domain import errors
from domain.fields import invalid_line
from domain.pagination import Page, PageRequest
from domain.permissions import Caller
from domain.products.product import (
    MAX_CODE_LENGTH,
    MAX_DESCRIPTION_LENGTH,
    MAX_NAME_LENGTH,
    Product,
)
from domain.products.put_product import PutProduct
from domain.products.queries import ListProducts

_CENTER_OF_PRODUCT: Final = {**CENTER_ID, "examples": {"spa": CENTER_IDS["spa"]}}

_PRODUCT_ID: Final = parameter("product_id", "path", "The product.", known=PRODUCT_IDS)


class ProductBody(RequestBody, frozen=True, kw_only=True):
    """The body that creates or updates a product. Unknown fields are ignored and never stored."""

    required: ClassVar[tuple[str, ...]] = ("code", "name", "price")

    code: Annotated[object, text(MAX_CODE_LENGTH, "OIL-50")] = None
    name: Annotated[object, text(MAX_NAME_LENGTH, "Massage oil, 50 ml")] = None
    description: Annotated[
        object,
        field(
            "The description may be empty, and may contain line breaks.",
            type="string",
            maxLength=MAX_DESCRIPTION_LENGTH,
            examples=["Almond and lavender"],
        ),
    ] = ""
    price: Annotated[
        object,
        field(
            "A decimal number in major units, and a currency (ISO 4217).",
            type="object",
            properties={
                "amount": {"type": "string", "pattern": "^[0-9]+([.][0-9]{1,4})?$"},
                "currency": {"type": "string", "pattern": "^[A-Z]{3}$"},
            },
            required=["amount", "currency"],
            examples=[{"amount": "49.90", "currency": "EUR"}],
        ),
    ] = None


class Price(Struct, frozen=True):
    """An amount of money."""

    amount: Annotated[str, example("49.90", "A decimal number in major units.")]
    currency: Annotated[str, example("EUR", "ISO 4217.")]


class ProductForSale(Struct, frozen=True, kw_only=True):
    """A product of a center."""

    id: Annotated[Uuid, uuid_example("The product.")]
    code: Annotated[str, example("OIL-50")]
    name: Annotated[str, example("Massage oil, 50 ml")]
    description: Annotated[str, example("Almond and lavender")]
    price: Price

    @classmethod
    def of(cls, product: Product) -> ProductForSale:
        """Return the response for a product."""
        return cls(
            id=product.id,
            code=product.code,
            name=product.name,
            description=product.description,
            price=Price(amount=str(product.amount), currency=product.currency),
        )


class ProductsForSale(Struct, frozen=True, kw_only=True):
    """A page of a center's products."""

    products: list[ProductForSale]
    page_info: PageInfo

    @classmethod
    def of(cls, page: Page[Product]) -> ProductsForSale:
        """Return the response for a page of products."""
        products = [ProductForSale.of(product) for product in page.items]
        return cls(products=products, page_info=PageInfo.of(page))


prepare(ProductBody)


@dataclass(frozen=True, kw_only=True)
class ProductResource:
    """List, create and update the products of a center."""

    list_products: ListProducts
    put_product: PutProduct

    @Operation(
        method="get",
        path=CENTERS + "/{center_id}/products",
        name="listProducts",
        tag=Tag.PRODUCTS,
        summary="List the products of a center",
        description="In the order of their creation.",
        parameters=(CENTER_ID,),
        calls=ListProducts,
        ignores_unknown=True,
        refusals=(errors.InvalidCenterId(),),
    )
    def list(self, caller: Caller, center_id: str, page: PageRequest) -> ProductsForSale:
        """List a page of the center's products."""
        return ProductsForSale.of(self.list_products(caller, center_id=center_id, page=page))

    @Operation(
        method="put",
        path=CENTERS + "/{center_id}/products/{product_id}",
        name="putProduct",
        tag=Tag.PRODUCTS,
        summary="Create or update a product under an id that you choose",
        description="A new product comes last in the list. A repeated request changes nothing.",
        parameters=(_CENTER_OF_PRODUCT, _PRODUCT_ID),
        body_examples=lambda _: {
            "massage": sample(
                "Swedish massage, without changes",
                {
                    "code": "SWEDISH",
                    "name": "Swedish massage",
                    "description": "Long, firm strokes for back and legs",
                    "price": {"amount": "84.00", "currency": "USD"},
                },
            ),
        },
        calls=PutProduct,
        refusals=(
            errors.InvalidCenterId(),
            errors.InvalidProductId(),
            invalid_line("code", max_length=MAX_CODE_LENGTH),
        ),
    )
    def put(
        self, caller: Caller, center_id: str, product_id: str, body: ProductBody
    ) -> ProductForSale:
        """Create or update a product."""
        price = body.price if isinstance(body.price, dict) else {}
        product = self.put_product(
            caller,
            center_id=center_id,
            product_id=product_id,
            code=body.code,
            name=body.name,
            description=body.description,
            amount=price.get("amount"),
            currency=price.get("currency"),
        )
        return ProductForSale.of(product)
