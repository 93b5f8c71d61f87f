"""Create or update a product of a center under the client's own id."""

from __future__ import annotations

from dataclasses import dataclass

from domain.centers.center import parse_center_id
from domain.errors import InvalidProductId
from domain.identifiers import plain_uuid
from domain.permissions import MAY_EDIT_PRODUCTS, Caller
from domain.products.own_center import require_own_center
from domain.products.product import Product
from domain.storage import AlreadyStored, Storage, WriteUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class PutProduct:
    """Use case: create the product with this id at a center, or update it.

    A repeated request changes nothing. A new product comes last in its center's list. Raises
    UserNotAuthorized, InvalidCenterId or InvalidField. Raises InvalidProductId if the id is not a
    UUID, or if the product belongs to another center.
    """

    needs = MAY_EDIT_PRODUCTS

    storage: Storage

    def __call__(
        self,
        caller: Caller,
        *,
        center_id: str,
        product_id: str,
        code: object,
        name: object,
        description: object,
        amount: object,
        currency: object,
    ) -> Product:
        """Store the product, and return it as stored."""
        caller.require(self.needs)
        center = parse_center_id(center_id)
        caller.require_center(center)
        if plain_uuid(product_id) is None:
            raise InvalidProductId
        product = Product.parse(
            id=product_id,
            center_id=center,
            code=code,
            name=name,
            description=description,
            amount=amount,
            currency=currency,
        )

        def put(unit: WriteUnit) -> None:
            require_own_center(unit, product)
            unit.products.put_many([product])
            unit.commit()

        try:
            self.storage.transact(put)
        except AlreadyStored as error:
            # Another center has stored the product since `require_own_center` was called.
            raise InvalidProductId from error
        return product
