"""The command line on an installation of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner, Result

from adapters.sqlite.storage import SqliteStorage
from entrypoints.cli import main
from tests.databases import make_database

ROOT: Final = Path(__file__).resolve().parents[2]

# A process started from a shell's background job would ignore SIGINT, and hand that down.
PROGRAM: Final = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from entrypoints.cli import main
from tests.databases import make_database
from tests.databases import make_database
main(prog_name="cardonfile")
"""


class CommandLine:
    """Runs `cardonfile` with a database in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = folder / "cards.db"
        self.environment = {"CARDONFILE_DATABASE_URL": f"sqlite:///{self.database}"}
        self.storage = SqliteStorage(self.database)

    def run(self, *arguments: str, **environment: str) -> Result:
        """Run a command in this process; any exception but the end of it is the test's."""
        result = CliRunner().invoke(
            main, arguments, env=self.environment | environment, prog_name="cardonfile"
        )
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def succeeds(self, *arguments: str, **environment: str) -> str:
        """Run a command that has to succeed; gives what it prints."""
        result = self.run(*arguments, **environment)
        assert (result.exit_code, result.stderr) == (0, "")
        return result.stdout

    def refuses(self, *arguments: str, **environment: str) -> str:
        """Run a command that has to end in one sentence; gives the sentence."""
        result = self.run(*arguments, **environment)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith("Error: ")
        assert result.stderr.count("\n") == 1
        return result.stderr.removeprefix("Error: ").rstrip("\n")

    def fails_to_start(self, *arguments: str, **environment: str) -> str:
        """Run a command in a process of its own, which has to end in one sentence; gives it.

        It is for commands that would go on for ever if they did not refuse.
        """
        ended = subprocess.run(
            [sys.executable, "-W", "error", "-c", PROGRAM, *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": str(ROOT)} | self.environment | environment,
        )
        assert (ended.returncode, ended.stdout) == (1, "")
        assert ended.stderr.startswith("Error: ")
        assert ended.stderr.count("\n") == 1
        return ended.stderr.removeprefix("Error: ").rstrip("\n")

    def start(self, *arguments: str, stderr: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
        """Start a command in a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-W", "error", "-c", PROGRAM, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": str(ROOT)} | self.environment,
        )


@pytest.fixture
def unmigrated(tmp_path: Path) -> Iterator[CommandLine]:
    """Give the command line on a folder with nothing in it."""
    command_line = CommandLine(tmp_path)
    yield command_line
    command_line.storage.close()


@pytest.fixture
def cardonfile(unmigrated: CommandLine) -> CommandLine:
    """Give the command line on an empty database."""
    make_database(unmigrated.database)
    return unmigrated
