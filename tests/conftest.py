"""Fixtures for all tests, and settings of the test run."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import hypothesis
import pytest
import structlog
from typing_extensions import override
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from adapters.postgresql.storage import PostgresqlStorage
from tests.databases import change_by_hand
from tests.fuzzing import TIMES
from tests.installation import Installation
from tests.postgresql import DELETE_ALL, empty_database, shared_server
from tests.waiting import LIMIT_SECONDS

# Imported modules and collected tests stay until the end: no garbage to look for before the first test.
gc.disable()

# SQLite syncs each commit, most tests make databases, and each PostgreSQL server copies 40 MB: on a
# disk tests wait for that most of the time. No test ends the machine, which alone would lose anything.
MEMORY = Path("/dev/shm")  # noqa: S108 - each makes a folder of its own there
if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4e9:
    tempfile.tempdir = os.environ.setdefault("TMPDIR", str(MEMORY))

# The tests under each of these share a browser, a server or a build; the first that fits counts. The
# demo's tests wait for its worker: they and all others of a browser take turns on two browsers.
TOGETHER: Final = (
    "tests/browser/test_demo.py",
    "tests/browser/",
    "tests/entrypoints/test_integrating.py",
    "tests/entrypoints/test_wsgi.py",
    "tests/outside/",
)
# Of these, the tests with the same parameters share what these are prepared with.
TOGETHER_BY_PARAMETERS: Final = "tests/simulation/test_nth_call.py"

# No deadline, because other tests slow the machine down. `make test` tries the same examples each
# time, `make fuzz` others.
hypothesis.settings.register_profile(
    "cardonfile", deadline=None, max_examples=100 * TIMES, derandomize=TIMES == 1
)
hypothesis.settings.load_profile("cardonfile")


class Scheduling(LoadScopeScheduling):
    """Has one process run the tests that share something, so that it is started or prepared once."""

    @override
    def _split_scope(self, nodeid: str) -> str:
        path, _, parameters = nodeid.partition("[")
        if path.startswith(TOGETHER_BY_PARAMETERS):
            return parameters or path
        return next((shared for shared in TOGETHER if path.startswith(shared)), nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    """Give all other tests to whichever process is free."""
    return Scheduling(config, log)


def pytest_collection_finish() -> None:
    """Spare the garbage collector what was imported and collected."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Undo what a command in this process does to the logs, also in a fixture of a module.

    Log entries are dropped unrendered: rendering one traceback takes a second. Tests that check the
    log capture the entries.
    """
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    structlog.reset_defaults()
    structlog.configure(processors=[], logger_factory=structlog.ReturnLoggerFactory())
    yield
    root.handlers, root.level = handlers, level


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    """A new installation with one center, one guest and the fake PSP."""
    installed = Installation(tmp_path)
    yield installed
    installed.close()


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    """The address of a PostgreSQL server, which starts when the first test needs it."""
    with shared_server() as server:
        yield server


@pytest.fixture(scope="session")
def opened_postgresql(postgresql_server: str) -> Iterator[PostgresqlStorage]:
    """A storage with connections that the tests of a process share: to connect takes long."""
    with (
        empty_database(postgresql_server) as url,
        closing(PostgresqlStorage(url)) as storage,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr("adapters.postgresql.connection.CONNECT_SECONDS", LIMIT_SECONDS)
        storage.check()
        yield storage


@pytest.fixture
def postgresql_storage(opened_postgresql: PostgresqlStorage) -> PostgresqlStorage:
    """An empty storage. A test must leave its schema and its settings as they are."""
    change_by_hand(opened_postgresql, DELETE_ALL)
    return opened_postgresql
