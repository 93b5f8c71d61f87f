"""Fixtures: the command line with a separate database, and PSPs of other distributions."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner, Result

from adapters.sqlite.storage import SqliteStorage
from entrypoints.cli.main import main
from entrypoints.psps import _load
from tests.builders import a_center
from tests.databases import committed, make_database

PLUGIN: Final = """
from adapters.psp.plugin import PspPlugin
from adapters.psp.settings import AccountSettings
from domain.psps.capabilities import Capabilities

ACCOUNTS = AccountSettings(psp="acme", required=("API_KEY",))
PLUGIN = PspPlugin(
    interface=3,
    name="acme",
    capabilities=Capabilities(max_consent_length=1000),
    account_settings=ACCOUNTS,
    read=lambda here: ACCOUNTS.read(here.environment) or None,
    accounts=lambda settings: settings.keys(),
    how_to_set_up=ACCOUNTS.how_to_set,
    make=lambda settings, clock, ids: None,
)
"""


class Site:
    """A folder for distributions. Python imports modules from this folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, name: str, code: str = PLUGIN, *, psp: str = "acme") -> None:
        """Install a distribution whose plugin has this code."""
        module = name.replace("-", "_")
        (self.folder / f"{module}.py").write_text(code)
        information = self.folder / f"{module}-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        )
        (information / "entry_points.txt").write_text(
            f"[cardonfile.psps]\n{psp} = {module}:PLUGIN\n"
        )


class CommandLine:
    """Runs `cardonfile` with an SQLite file in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = folder / "cards.db"
        self.environment = {"CARDONFILE_DATABASE_URL": f"sqlite:///{self.database}"}
        self.storage = SqliteStorage(self.database)

    def run(self, *arguments: str, typed: str = "", **environment: str) -> Result:
        """Run a command in this process. All exceptions but SystemExit are raised."""
        result = CliRunner().invoke(
            main,
            arguments,
            input=typed,
            env=self.environment | environment,
            prog_name="cardonfile",
        )
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def succeeds(self, *arguments: str, **environment: str) -> str:
        """Run a command that must succeed, and return its output."""
        result = self.run(*arguments, **environment)
        assert (result.exit_code, result.stderr) == (0, "")
        return result.stdout

    def refuses(self, *arguments: str, **environment: str) -> str:
        """Run a command that must fail with one sentence, and return the sentence."""
        result = self.run(*arguments, **environment)
        return sentence_of(result.exit_code, result.stdout, result.stderr)


def sentence_of(status: int, stdout: str, stderr: str) -> str:
    """Return the only sentence in the output of a command that failed."""
    assert (status, stdout) == (1, "")
    assert stderr.startswith("Error: ")
    assert stderr.count("\n") == 1
    return stderr.removeprefix("Error: ").rstrip("\n")


@pytest.fixture
def unmigrated(tmp_path: Path) -> Iterator[CommandLine]:
    """Return the command line in an empty folder."""
    command_line = CommandLine(tmp_path)
    yield command_line
    command_line.storage.close()


@pytest.fixture
def cardonfile(unmigrated: CommandLine) -> CommandLine:
    """Return the command line with an empty, migrated database."""
    make_database(unmigrated.database)
    return unmigrated


@pytest.fixture
def with_center(cardonfile: CommandLine) -> CommandLine:
    """Return the command line on a database with one center."""
    with committed(cardonfile.storage) as unit:
        unit.centers.put_many([a_center()])
    return cardonfile


@pytest.fixture
def taken_port() -> Iterator[str]:
    """Return a port that is in use. A command that wrongly tries to serve fails there."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield str(taken.getsockname()[1])


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.syspath_prepend(tmp_path)
    _load.cache_clear()
    yield Site(tmp_path)
    _load.cache_clear()
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(path.stem, None)
