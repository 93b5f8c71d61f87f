"""Databases on the server, and storages over them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from adapters.postgresql import connection
from adapters.postgresql.storage import PostgresqlStorage
from tests.adapters.postgresql.relay import Relay, relay_to
from tests.postgresql import empty_database, new_database
from tests.waiting import LIMIT_SECONDS


@pytest.fixture(autouse=True)
def long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for connections as long as for anything else in tests."""
    for name in ("CHECK_SECONDS", "CONNECT_SECONDS"):
        monkeypatch.setattr(connection, name, LIMIT_SECONDS)


@pytest.fixture
def url(postgresql_server: str) -> Iterator[str]:
    """Return the address of an empty database, whose schema and settings must stay as they are."""
    with empty_database(postgresql_server) as url:
        yield url


@pytest.fixture
def own_url(postgresql_server: str) -> Iterator[str]:
    """Return the address of a separate empty database, which a test may change."""
    with new_database(postgresql_server) as url:
        yield url


@pytest.fixture
def own_storage(own_url: str) -> Iterator[PostgresqlStorage]:
    """Return a storage over the database that a test may change."""
    with closing(PostgresqlStorage(own_url)) as storage:
        yield storage


@pytest.fixture
def storage(
    request: pytest.FixtureRequest, opened_postgresql: PostgresqlStorage
) -> PostgresqlStorage:
    """Return a storage over the database at `url`."""
    # The fixture `url` empties the database before anything is stored. The mark `usefixtures` has
    # no effect on fixtures.
    request.getfixturevalue("url")
    return opened_postgresql


@pytest.fixture
def relay(url: str) -> Iterator[Relay]:
    """Return a relay to the database."""
    with relay_to(url) as relay:
        yield relay


@pytest.fixture
def relayed(relay: Relay) -> Iterator[PostgresqlStorage]:
    """Return a storage that reaches the database over the relay."""
    with closing(PostgresqlStorage(relay.url)) as storage:
        yield storage


@pytest.fixture
def short_lock_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let write transactions hardly wait for locks."""
    lock_timeout = f"'{connection.LOCK_SECONDS}s'"
    assert lock_timeout in connection._BEGIN_IDENTIFIED
    monkeypatch.setattr(
        connection,
        "_BEGIN_IDENTIFIED",
        connection._BEGIN_IDENTIFIED.replace(lock_timeout, "'10ms'"),
    )
