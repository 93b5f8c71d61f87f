"""Fixtures for all tests, and settings of the test run."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import hypothesis
import pytest
import structlog
from typing_extensions import override
from xdist import is_xdist_worker
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from adapters.postgresql import connection
from adapters.postgresql.storage import PostgresqlStorage
from tests.databases import change_by_hand
from tests.fuzzing import TIMES
from tests.installation import Installation
from tests.postgresql import (
    DELETE_ALL,
    PostgresqlServer,
    empty_database,
    initialized,
    own_server,
    shared_server,
)
from tests.shared import NotInstalled, Run, Shared, running, share
from tests.waiting import LIMIT_SECONDS

# Before the first test, there is no garbage to collect: imported modules and collected tests stay
# in use until the end.
gc.disable()

# Files in memory are fast. On a disk, tests would mostly wait for it: SQLite syncs each commit,
# most tests make databases, and each PostgreSQL server copies 40 MB. Only a crash of the machine
# could lose the files.
MEMORY = Path("/dev/shm")  # noqa: S108 - each makes a folder of its own there
if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4e9:
    tempfile.tempdir = os.environ.setdefault("TMPDIR", str(MEMORY))

# One process runs all tests whose ids begin with a prefix of the same group. It starts one server,
# browser or build for them. A test belongs to the first group that matches.
TOGETHER: Final = (
    # The demo's tests often wait for its worker, so two processes run the browser tests, each with
    # its own browser. Sharing one browser over a socket would delay each test. This would take more
    # time than starting a second browser.
    ("tests/browser/test_demo.py",),
    ("tests/browser/",),
    # Schemathesis takes seconds to import, and to read the OpenAPI document.
    ("tests/adapters/http/test_fuzz.py",),
    ("tests/adapters/http/test_rate_limits.py",),
    ("tests/entrypoints/test_integrating.py",),
    ("tests/entrypoints/test_wsgi.py",),
    ("tests/outside/",),
    (  # These tests stop or change a PostgreSQL server.
        "tests/adapters/postgresql/test_commits.py",
        "tests/adapters/postgresql/test_connection.py::TestReasons",
        "tests/entrypoints/test_doctor.py::TestReplication",
        "tests/entrypoints/test_documented_commands.py",
        "tests/entrypoints/test_several_machines.py",
    ),
)

RUN: Final = pytest.StashKey[Run]()

# No deadline, because other tests slow the machine down. `make test` tries the same examples each
# time, and `make fuzz` tries other examples.
hypothesis.settings.register_profile(
    "cardonfile", deadline=None, max_examples=100 * TIMES, derandomize=TIMES == 1
)
hypothesis.settings.load_profile("cardonfile")


class Scheduling(LoadScopeScheduling):
    """Lets one process run all tests of a group, so that what they share is prepared only once.

    The mark of pytest-xdist for this, `xdist_group`, has no effect with pytest 9.2.
    """

    @override
    def _split_scope(self, nodeid: str) -> str:
        return next((group[0] for group in TOGETHER if nodeid.startswith(group)), nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    """Keep the groups of TOGETHER together. Any free process runs the other tests."""
    return Scheduling(config, log)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Let the processes of this run share what takes long to start."""
    if is_xdist_worker(session):
        return
    ends = ExitStack()
    starts = {Shared.INITIALIZED: initialized, Shared.POSTGRESQL: shared_server}
    session.config.stash[RUN] = ends.enter_context(running(starts))
    session.config.add_cleanup(ends.close)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Say in the last line what was started."""
    run, reporter = config.stash.get(RUN, None), config.pluginmanager.getplugin("terminalreporter")
    if run is not None and reporter is not None and (started := run.started()):
        reporter.write_line(f"Started: {started}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, object, object]:
    """If a program is missing, say what to install instead of showing a traceback."""
    try:
        return (yield)
    except NotInstalled as missing:
        raise pytest.fail.Exception(str(missing), pytrace=False) from None


pytest_runtest_call = pytest_runtest_setup


def pytest_collection_finish() -> None:
    """Exclude what was imported and collected from garbage collection."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Undo the changes that commands in this process have made to the logging.

    Log entries are dropped before they are rendered, because rendering one traceback takes a
    second. Tests that check the log capture the entries.
    """
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    structlog.reset_defaults()
    structlog.configure(processors=[], logger_factory=structlog.ReturnLoggerFactory())
    yield
    root.handlers, root.level = handlers, level


@pytest.fixture
def installation(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Installation]:
    """A new installation with one center, one guest and the fake PSP.

    The mark `installed` of a test or its module contains further arguments, such as settings.
    """
    mark = request.node.get_closest_marker("installed")
    installed = Installation(tmp_path, **mark.kwargs if mark else {})
    yield installed
    installed.close()


@pytest.fixture(scope="session")
def postgresql_server() -> str:
    """The address of a PostgreSQL server, which all tests of the run share."""
    return share(Shared.POSTGRESQL)


@pytest.fixture(scope="session")
def stoppable_postgresql() -> Iterator[PostgresqlServer]:
    """A PostgreSQL server that tests may stop, but must start again.

    It asks the role judy for the password `right`. Each process has its own server.
    `TOGETHER` lists the tests that need such a server.
    """
    with own_server() as server:
        server.ask_for_password("judy", "right")
        yield server


@pytest.fixture(scope="session")
def opened_postgresql(postgresql_server: str) -> Iterator[PostgresqlStorage]:
    """A storage whose connections the tests of a process share, because connecting takes long."""
    with empty_database(postgresql_server) as url, closing(PostgresqlStorage(url)) as storage:
        yield storage


@pytest.fixture
def postgresql_storage(
    opened_postgresql: PostgresqlStorage, monkeypatch: pytest.MonkeyPatch
) -> PostgresqlStorage:
    """An empty storage. A test must not change its schema or settings."""
    monkeypatch.setattr(connection, "CONNECT_SECONDS", LIMIT_SECONDS)
    change_by_hand(opened_postgresql, DELETE_ALL)
    return opened_postgresql
