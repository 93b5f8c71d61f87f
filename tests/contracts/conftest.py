"""The storages that the contract suite runs over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from adapters.postgresql import connection
from adapters.sqlite.storage import SqliteStorage
from domain.storage import Storage
from tests.databases import make_database
from tests.waiting import LIMIT_SECONDS


@pytest.fixture(params=["sqlite", "postgresql"])
def storage(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Storage]:
    """Return an empty storage of each adapter in turn. Its timeouts are long."""
    monkeypatch.setattr(connection, "CONNECT_SECONDS", LIMIT_SECONDS)
    if request.param == "sqlite":
        path = tmp_path / "cardonfile.db"
        make_database(path)
        with closing(SqliteStorage(path, busy_timeout_seconds=LIMIT_SECONDS)) as sqlite:
            yield sqlite
    else:
        yield request.getfixturevalue("postgresql_storage")
