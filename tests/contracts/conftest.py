"""The adapters that each contract suite runs over."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

import pytest

from adapters.sqlite.storage import SqliteStorage
from domain.ports import Storage
from tests.databases import make_database


@contextmanager
def _in_sqlite(folder: Path) -> Iterator[Storage]:
    path = folder / "cardonfile.db"
    make_database(path)
    storage = SqliteStorage(path)
    try:
        yield storage
    finally:
        storage.close()


STORAGES: Final[Mapping[str, Callable[[Path], AbstractContextManager[Storage]]]] = {
    "sqlite": _in_sqlite,
}
"""Each adapter by its name: given an empty folder, it lends an empty storage."""


@pytest.fixture(params=STORAGES)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    """Give an empty storage of each adapter in turn."""
    with STORAGES[request.param](tmp_path) as storage:
        yield storage
