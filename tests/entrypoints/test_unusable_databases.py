"""Database files that cannot be used: the error names the file and the reason."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.databases import make_database
from tests.entrypoints.conftest import ROOT, CommandLine
from tests.programs import SERVE, free_port
from tests.waiting import LIMIT_SECONDS

COMMANDS = [("migrate",), ("token", "list"), ("reconcile",)]


def complaint_of(*arguments: str, exit_code: int = 1, **environment: str) -> str:
    """Return the error of a command that fails, run without the privilege to override file modes."""
    bound = (
        ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all")
        if os.geteuid() == 0
        else ()
    )
    ended = subprocess.run(
        [*bound, sys.executable, "-W", "error", "-c", SERVE, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
    )
    assert (ended.returncode, ended.stdout) == (exit_code, "")
    assert ended.stderr.startswith("Error: ")
    assert ended.stderr.count("\n") == 1
    return ended.stderr.removeprefix("Error: ").rstrip("\n")


def test_a_folder_in_its_place(unmigrated: CommandLine) -> None:
    unmigrated.database.mkdir()

    for arguments in COMMANDS:
        assert unmigrated.refuses(*arguments) == (
            f"the database cannot be used ({unmigrated.database}: unable to open database file; "
            "it is a folder): see that it can be reached, has room and is not locked"
        )


def test_a_folder_in_place_of_the_database_of_the_fake_psp(cardonfile: CommandLine) -> None:
    file = cardonfile.database.with_name("cards-fake-psp.db")
    file.mkdir()

    complaint = cardonfile.fails_to_start("serve", "--port", str(free_port()))

    assert complaint.startswith(f"the database of the fake PSP cannot be used ({file}: ")


@pytest.mark.parametrize(
    ("mode", "folder_mode", "why"),
    [
        (0o400, 0o700, "attempt to write a readonly database; this user may not read and write it"),
        (0o600, 0o500, "; this user may not write in its folder"),
    ],
)
def test_one_without_permission_is_not_served(
    tmp_path: Path, mode: int, folder_mode: int, why: str
) -> None:
    folder = tmp_path / "records"
    folder.mkdir()
    database = folder / "cards.db"
    make_database(database)
    database.chmod(mode)
    folder.chmod(folder_mode)
    try:
        complaint = complaint_of(
            *("serve", "--port", str(free_port())),
            CARDONFILE_DATABASE_URL=f"sqlite:///{database}",
            CARDONFILE_FAKE_PSP_DATABASE=str(tmp_path / "fake-psp.db"),
        )
    finally:
        folder.chmod(0o700)

    assert complaint.startswith(f"the database cannot be used ({database}: ")
    assert f"{why}): see that" in complaint


@pytest.mark.parametrize(("exit_code", "command"), [(1, ("token", "list")), (3, ("status",))])
def test_one_in_a_folder_that_this_user_may_not_search_cannot_be_used(
    tmp_path: Path, exit_code: int, command: tuple[str, ...]
) -> None:
    database = tmp_path / "records" / "cards.db"
    database.parent.mkdir(mode=0)

    complaint = complaint_of(
        *command, exit_code=exit_code, CARDONFILE_DATABASE_URL=f"sqlite:///{database}"
    )

    assert complaint.startswith(f"the database cannot be used ({database}: ")
    assert "; there is no such file, or this user may not look): see that" in complaint
