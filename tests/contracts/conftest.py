"""The adapters that each contract suite runs over."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Final

import pytest

from adapters.postgresql.storage import PostgresqlStorage
from adapters.sqlite.storage import SqliteStorage
from domain.ports import Storage
from tests.adapters.fake_psp.under_test import FakePspUnderTest
from tests.adapters.stripe.in_test_mode import StripeInTestMode
from tests.adapters.stripe.under_test import StripeUnderTest
from tests.contracts.providers import PspUnderTest
from tests.databases import make_database
from tests.postgresql import new_database


@contextmanager
def _in_sqlite(folder: Path, _: str) -> Iterator[Storage]:
    path = folder / "cardonfile.db"
    make_database(path)
    with closing(SqliteStorage(path)) as storage:
        yield storage


@contextmanager
def _in_postgresql(_: Path, server: str) -> Iterator[Storage]:
    with new_database(server) as url, closing(PostgresqlStorage(url)) as storage:
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


PROVIDERS: Final[Mapping[str, type[PspUnderTest]]] = {
    "fake": FakePspUnderTest,
    "stripe": StripeUnderTest,
    # `make test-stripe` sets it; nothing else may go out to the network.
    **({"stripe_in_test_mode": StripeInTestMode} if "ASK_STRIPE" in os.environ else {}),
}
"""Each adapter of a PSP by its name: the PSP that its adapter is tested with."""


@pytest.fixture(params=PROVIDERS)
def psp(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PspUnderTest]:
    """Give each PSP in turn, as on its first day."""
    psp = PROVIDERS[request.param](tmp_path)
    yield psp
    psp.close()
