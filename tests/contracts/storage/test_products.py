from __future__ import annotations

from decimal import Decimal

import pytest

from adapters.psp_suite.concurrency import at_once
from domain.identifiers import CenterId
from domain.pagination import PageRequest
from domain.products.product import Product
from domain.storage import AlreadyStored, Storage
from tests.builders import CENTER_ID, OTHER_CENTER_ID, a_center, a_product
from tests.contracts.storage.records import store


def put_products(storage: Storage, *products: Product) -> None:
    store(storage, a_center(), a_center(id=OTHER_CENTER_ID), *products)


def products_of(
    storage: Storage, center_id: CenterId = CENTER_ID, *, page: int = 1, size: int = 100
) -> tuple[Product, ...]:
    with storage.read() as unit:
        return unit.products.page(center_id, PageRequest(page=page, size=size)).items


def test_an_import_with_a_product_at_another_center_is_refused(storage: Storage) -> None:
    put_products(storage, a_product(0))
    with pytest.raises(AlreadyStored):
        put_products(storage, a_product(1), a_product(0, center_id=OTHER_CENTER_ID))
    assert products_of(storage) == (a_product(0),)
    assert products_of(storage, OTHER_CENTER_ID) == ()


def test_the_products_of_a_center_are_listed_in_order_of_creation(storage: Storage) -> None:
    sold_elsewhere = a_product(2, center_id=OTHER_CENTER_ID)
    put_products(storage, *map(a_product, [7, 3, 9]), sold_elsewhere, *map(a_product, [1, 5]))
    put_products(storage, a_product(8))
    pages = [products_of(storage, page=page, size=4) for page in (1, 2, 3)]
    assert pages == [tuple(map(a_product, [7, 3, 9, 1])), tuple(map(a_product, [5, 8])), ()]
    assert products_of(storage, OTHER_CENTER_ID, size=1) == (sold_elsewhere,)


def test_updating_a_product_keeps_its_position_in_the_list(storage: Storage) -> None:
    put_products(storage, a_product(1), a_product(2))
    renamed = a_product(2, name="Sauna", amount=Decimal(9))
    put_products(storage, a_product(4), renamed, a_product(3))
    assert products_of(storage, size=2) == (a_product(1), renamed)
    assert products_of(storage, page=2, size=2) == (a_product(4), a_product(3))


def test_pages_of_products_have_no_gaps_during_concurrent_imports(storage: Storage) -> None:
    # No importer writes this product, so no importer waits for a row that another has locked.
    put_products(storage, a_product(0))
    importers, imports, of_each = 3, 3, 10
    importing = set(range(1, importers + 1))

    def import_some(importer: int) -> None:
        for number in range(imports):
            first = (importer * imports + number) * of_each
            # One product of each later import exists already, and keeps its position.
            known = [] if number == 0 else [first - 1]
            store(storage, *map(a_product, [*range(first, first + of_each), *known]))

    def read_pages() -> list[Product]:
        with storage.read() as unit:
            total = unit.products.page(CENTER_ID, PageRequest(size=7)).total
            pages = [
                unit.products.page(CENTER_ID, PageRequest(page=number, size=7)).items
                for number in range(1, total // 7 + 2)
            ]
        assert [len(page) for page in pages] == [*[7] * (total // 7), total % 7]
        return [product for page in pages for product in page]

    def import_or_read(number: int) -> None:
        seen: list[Product] = []
        while number == 0 and importing:
            products = read_pages()
            assert products[: len(seen)] == seen
            seen = products
        try:
            if number:
                import_some(number)
        finally:
            importing.discard(number)

    at_once(importers + 1, import_or_read)

    lowest, highest = imports * of_each, (importers + 1) * imports * of_each
    numbers = {0, *range(lowest, highest)}
    products = read_pages()
    assert len(products) == len(numbers)
    assert set(products) == set(map(a_product, numbers))
