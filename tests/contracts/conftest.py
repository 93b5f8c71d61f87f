"""The storages that the contract suite runs over."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Final

import pytest

from adapters.postgresql.storage import PostgresqlStorage
from adapters.sqlite.storage import SqliteStorage
from domain.ports import Storage
from tests.databases import make_database
from tests.postgresql import empty_database


@contextmanager
def _in_sqlite(folder: Path, _: str) -> Iterator[Storage]:
    path = folder / "cardonfile.db"
    make_database(path)
    with closing(SqliteStorage(path)) as storage:
        yield storage


@contextmanager
def _in_postgresql(_: Path, server: str) -> Iterator[Storage]:
    with empty_database(server) as url, closing(PostgresqlStorage(url)) as storage:
        yield storage


STORAGES: Final[Mapping[str, Callable[[Path, str], AbstractContextManager[Storage]]]] = {
    "sqlite": _in_sqlite,
    "postgresql": _in_postgresql,
}
"""Each adapter by its name: given an empty folder and a server, it lends an empty storage."""


@pytest.fixture(
    params=[
        pytest.param(name, marks=[pytest.mark.slow] if name == "postgresql" else [])
        for name in STORAGES
    ]
)
def storage(
    request: pytest.FixtureRequest, tmp_path: Path, postgresql_server: str
) -> Iterator[Storage]:
    """Give an empty storage of each adapter in turn."""
    with STORAGES[request.param](tmp_path, postgresql_server) as storage:
        yield storage
