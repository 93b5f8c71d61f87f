"""Compares ways to read pages of a million products: the service's storage and OFFSET."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pysqlite3

from adapters.sqlite.migrations import migrate
from adapters.sqlite.storage import SqliteStorage
from domain.identifiers import CenterId
from domain.pagination import PageRequest
from tests.benchmarks.results import Row
from tests.builders import CENTER_ID

PRODUCTS: Final = 1_000_000
SIZE: Final = 10
PAGES: Final = (1, 100_000)

OURS: Final = "cardonfile"
OFFSET: Final = "OFFSET with SQLAlchemy"

REPEATS: Final = {OURS: 100, OFFSET: 3}
"""How often each page is read in a round. The figure of a round is the median."""

RANDOM_UUID: Final = (
    "lower(printf('%s-%s-4%s-8%s-%s', hex(randomblob(4)), hex(randomblob(2)), "
    "substr(hex(randomblob(2)), 2), substr(hex(randomblob(2)), 2), hex(randomblob(6))))"
)
"""An SQL expression that returns a random UUID."""


def measure(folder: Path, *, rounds: int, say: Callable[[str], None]) -> Iterator[Row]:
    """Read the same pages in both ways from the same database file."""
    # Import SQLAlchemy only here, because it takes long, and tests import names from this module.
    from sqlalchemy import create_engine, func, select
    from sqlalchemy.ext.automap import automap_base
    from sqlalchemy.orm import Session

    say(f"{PRODUCTS:,} products")
    database = folder / "products.db"
    _fill(database)
    engine = create_engine(f"sqlite:///{database}", module=pysqlite3)
    tables: Any = automap_base()  # Its classes are created at run time.
    tables.prepare(autoload_with=engine, reflection_options={"only": ["products"]})
    product = tables.classes.products
    of_center = product.center_id == CENTER_ID

    def ours(page: int) -> int:
        with storage.read() as unit:
            found = unit.products.page(CenterId(CENTER_ID), PageRequest(page=page, size=SIZE))
        assert len(found.items) == SIZE
        return found.total

    def offset(page: int) -> int:
        with Session(engine) as session:
            total = session.scalar(select(func.count()).select_from(product).where(of_center))
            skipped = (page - 1) * SIZE
            products = select(product).where(of_center).order_by(product.position)
            assert len(session.scalars(products.limit(SIZE).offset(skipped)).all()) == SIZE
        return total or 0

    with closing(SqliteStorage(database)) as storage:
        for number in range(1, rounds + 1):
            say(f"pages of products, round {number} of {rounds}")
            for page in PAGES:
                for how, read in ((OURS, ours), (OFFSET, offset)):
                    taken = []
                    for _ in range(REPEATS[how]):
                        began = time.perf_counter()
                        total = read(page)
                        taken.append(time.perf_counter() - began)
                        assert total == PRODUCTS
                    ms = round(statistics.median(taken) * 1000, 4)
                    yield {"how": how, "page": page, "round": number, "ms": ms}
    engine.dispose()


def _fill(database: Path) -> None:
    migrate(database)
    with closing(pysqlite3.connect(database)) as db:
        db.execute("INSERT INTO centers VALUES (?, 'Harbor Spa')", (CENTER_ID,))
        db.execute(
            "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers "
            "WHERE n < ?) INSERT INTO products (id, center_id, position, code, name, "
            f"description, amount, currency) SELECT {RANDOM_UUID}, ?, n, 'P' || n, "
            "'Massage ' || n, 'An hour of rest', (n % 200) || '.50', 'EUR' FROM numbers",
            (PRODUCTS, CENTER_ID),
        )
        db.commit()
