"""A migrated database on the server, and storages over it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from adapters.postgresql import connection
from adapters.postgresql.connection import Connection
from adapters.postgresql.storage import PostgresqlStorage
from tests.adapters.postgresql.relay import Relay, relay_to
from tests.postgresql import new_database


@pytest.fixture
def url(postgresql_server: str) -> Iterator[str]:
    """Give the address of a migrated, empty database."""
    with new_database(postgresql_server) as url:
        yield url


@pytest.fixture
def storage(url: str) -> Iterator[PostgresqlStorage]:
    """Give a storage over the database."""
    with closing(PostgresqlStorage(url)) as storage:
        yield storage


@pytest.fixture
def relay(url: str) -> Iterator[Relay]:
    """Give a relay to the database."""
    with relay_to(url) as relay:
        yield relay


@pytest.fixture
def relayed(relay: Relay) -> Iterator[PostgresqlStorage]:
    """Give a storage that reaches the database over the relay."""
    with closing(PostgresqlStorage(relay.url)) as storage:
        yield storage


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have storages wait for nothing for long, but for a server to take a connection."""
    monkeypatch.setattr(connection, "CHECK_SECONDS", 0.2)
    monkeypatch.setattr(connection, "IN_DOUBT_SECONDS", 0.5)
    monkeypatch.setattr(Connection, "statement_seconds", 0.7)
    lock_timeout = f"'{connection.LOCK_SECONDS}s'"
    assert lock_timeout in connection._CONFIGURE
    monkeypatch.setattr(
        connection, "_CONFIGURE", connection._CONFIGURE.replace(lock_timeout, "'10ms'")
    )
