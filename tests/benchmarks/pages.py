"""Pages of a million products: the service's storage, and OFFSET as users of SQLAlchemy write it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pysqlite3
from sqlalchemy import create_engine, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from adapters.sqlite.migrations import migrate
from adapters.sqlite.storage import SqliteStorage
from domain.identifiers import CenterId
from domain.pagination import PageRequest
from tests.benchmarks.results import Page
from tests.builders import CENTER_ID

PRODUCTS: Final = 1_000_000
SIZE: Final = 10
PAGES: Final = (1, 10, 100, 1_000, 10_000, 100_000)

OURS: Final = "cardonfile"
OFFSET: Final = "OFFSET with SQLAlchemy"

RANDOM_UUID: Final = (
    "lower(printf('%s-%s-4%s-8%s-%s', hex(randomblob(4)), hex(randomblob(2)), "
    "substr(hex(randomblob(2)), 2), substr(hex(randomblob(2)), 2), hex(randomblob(6))))"
)
"""SQL that makes one up."""

REPEATS: Final = {OURS: 100, OFFSET: 3}
"""How often a page is read in a round, of which the median counts."""


class Base(DeclarativeBase):
    """The tables."""


class Product(Base):
    """A product, in the table that the service keeps."""

    __tablename__ = "products"

    id: Mapped[str] = mapped_column(primary_key=True)
    center_id: Mapped[str]
    position: Mapped[int]
    code: Mapped[str]
    name: Mapped[str]
    description: Mapped[str]
    amount: Mapped[str]
    currency: Mapped[str]


def measure(folder: Path, *, rounds: int, say: Callable[[str], None]) -> Iterator[Page]:
    """Read the same pages in both ways, from the same file."""
    say("a million products")
    database = folder / "products.db"
    fill(database, PRODUCTS)
    engine = create_engine(f"sqlite:///{database}", module=pysqlite3)
    with closing(SqliteStorage(database)) as storage:
        ways: dict[str, Callable[[int], int]] = {
            OURS: lambda page: _by_position(storage, page),
            OFFSET: lambda page: _by_offset(Session(engine), page),
        }
        for number in range(1, rounds + 1):
            say(f"pages of products, round {number} of {rounds}")
            for page in PAGES:
                for how, read in ways.items():
                    yield Page(how=how, page=page, round=number, ms=_median_ms(how, read, page))
    engine.dispose()


def fill(database: Path, products: int) -> None:
    """Make a database with one center and so many products of it."""
    migrate(database)
    with closing(pysqlite3.connect(database)) as db:
        db.execute("INSERT INTO centers VALUES (?, 'Harbor Spa', 1)", (CENTER_ID,))
        db.execute(
            "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers "
            "WHERE n < ?) INSERT INTO products (id, center_id, position, code, name, "
            f"description, amount, currency, import_id) SELECT {RANDOM_UUID}, ?, n, 'P' || n, "
            "'Massage ' || n, 'An hour of rest', (n % 200) || '.50', 'EUR', 1 FROM numbers",
            (products, CENTER_ID),
        )
        db.commit()


def _by_position(storage: SqliteStorage, page: int) -> int:
    with storage.read() as unit:
        found = unit.products.page(CenterId(CENTER_ID), PageRequest(page=page, size=SIZE))
    assert len(found.items) == SIZE
    return found.total


def _by_offset(session: Session, page: int) -> int:
    with session:
        of_center = Product.center_id == CENTER_ID
        total = session.scalar(select(func.count()).select_from(Product).where(of_center))
        products = session.scalars(
            select(Product)
            .where(of_center)
            .order_by(Product.position)
            .limit(SIZE)
            .offset((page - 1) * SIZE)
        ).all()
    assert len(products) == SIZE
    return total or 0


def _median_ms(how: str, read: Callable[[int], int], page: int) -> float:
    taken = []
    for _ in range(REPEATS[how]):
        began = time.perf_counter()
        total = read(page)
        taken.append(time.perf_counter() - began)
        assert total >= page * SIZE
    return round(statistics.median(taken) * 1000, 4)
