"""Database files that cannot be used. The error names the file and the reason."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.databases import make_database
from tests.entrypoints.conftest import ROOT, CommandLine
from tests.programs import RUNTIME, free_port
from tests.waiting import LIMIT_SECONDS

COMMANDS = [("migrate",), ("token", "list"), ("reconcile",)]
# Each command with its settings, one after the other.
RUN: Final = f"""
import json, os, sys
{RUNTIME}
from entrypoints.cli.main import main
for arguments, settings in json.loads(sys.argv[1]):
    os.environ.update(settings)
    try:
        main(arguments, prog_name="cardonfile")
    except SystemExit as end:
        print(end.code)
"""


def test_a_folder_in_place_of_the_database_file_is_refused(unmigrated: CommandLine) -> None:
    unmigrated.database.mkdir()

    for arguments in COMMANDS:
        assert unmigrated.refuses(*arguments) == (
            f"the database cannot be used ({unmigrated.database}: unable to open database file; "
            "this path is a folder): check that it can be reached, has free space and is not locked"
        )


def test_a_folder_in_place_of_the_fake_psps_database_file_is_refused(
    cardonfile: CommandLine,
) -> None:
    file = cardonfile.database.with_name("cards-fake-psp.db")
    file.mkdir()

    complaint = cardonfile.refuses("reconcile")

    assert complaint.startswith(f"the fake PSP cannot use its database ({file}: ")


def test_the_refusal_of_an_inaccessible_database_file_states_the_reason(tmp_path: Path) -> None:
    read_only, fixed, hidden = (tmp_path / name / "cards.db" for name in ("a", "b", "c"))
    for database in (read_only, fixed):
        database.parent.mkdir()
        make_database(database)
    read_only.chmod(0o400)
    fixed.parent.chmod(0o500)
    hidden.parent.mkdir(mode=0)
    serve = ["serve", "--port", str(free_port())]
    commands = [
        (serve, read_only),
        (serve, fixed),
        (["token", "list"], hidden),
        (["status"], hidden),
    ]
    settings = {"CARDONFILE_FAKE_PSP_DATABASE": str(tmp_path / "fake-psp.db")}
    given = [
        (arguments, {**settings, "CARDONFILE_DATABASE_URL": f"sqlite:///{database}"})
        for arguments, database in commands
    ]
    # Without the privilege of root to override file modes.
    bound = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all")

    ended = subprocess.run(
        [
            *(bound if os.geteuid() == 0 else ()),
            *(sys.executable, "-W", "error", "-c", RUN, json.dumps(given)),
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )

    fixed.parent.chmod(0o700)
    assert ended.stdout.split() == ["1", "1", "1", "3"]
    reasons = (
        "attempt to write a readonly database; this user may not read and write the file",
        "; this user may not write in its folder",
        *["; the file does not exist, or this user may not search its folder"] * 2,
    )
    for line, (_, database), reason in zip(
        ended.stderr.splitlines(), commands, reasons, strict=True
    ):
        assert line.startswith(f"Error: the database cannot be used ({database}: ")
        assert f"{reason}): check that" in line
