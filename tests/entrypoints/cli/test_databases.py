"""`cardonfile migrate`, databases that cannot be used, and Ctrl-C during `cardonfile import`."""

from __future__ import annotations

import ctypes
import os
import sqlite3
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from signal import SIGINT, default_int_handler, getsignal, raise_signal, signal
from typing import Any

import pytest

from entrypoints.csv_import import CsvImport
from tests.builders import CENTER_ID
from tests.databases import make_database
from tests.entrypoints.conftest import CommandLine
from tests.programs import free_port

EACH_WAY_TO_OPEN_THE_DATABASE = [
    ("import", "centers", "centers.csv"),
    ("token", "list"),
    ("serve",),
    ("reconcile",),
]


class TestDatabase:
    def test_migrate_creates_the_database_and_can_be_repeated(
        self, unmigrated: CommandLine
    ) -> None:
        assert unmigrated.succeeds("migrate").startswith("applied m001_")
        assert unmigrated.succeeds("migrate") == "the database is up to date\n"
        unmigrated.succeeds("token", "list")
        complaint = unmigrated.refuses("migrate", CARDONFILE_DATABASE_URL="sqlite:////no/such.db")
        assert complaint == "/no/such.db: No such file or directory"

    @pytest.mark.parametrize("arguments", EACH_WAY_TO_OPEN_THE_DATABASE, ids=" ".join)
    def test_only_migrate_creates_a_missing_database(
        self, unmigrated: CommandLine, arguments: tuple[str, ...]
    ) -> None:
        assert "run `cardonfile migrate`" in unmigrated.refuses(*arguments)
        assert not unmigrated.database.exists()

    @pytest.mark.parametrize(
        ("arguments", "other_program"),
        [
            (("migrate",), "does not fit this release"),
            (("token", "list"), "run `cardonfile migrate`"),
        ],
    )
    def test_commands_refuse_a_file_that_is_not_a_database_of_this_release(
        self, unmigrated: CommandLine, arguments: tuple[str, ...], other_program: str
    ) -> None:
        unmigrated.database.write_bytes(b"This is a letter, and not a database. " * 100)
        assert unmigrated.refuses(*arguments) == (
            f"the database cannot be used ({unmigrated.database}: file is not a database): "
            "check that it can be reached, has free space and is not locked"
        )
        assert unmigrated.database.read_bytes().startswith(b"This is a letter")

        unmigrated.database.unlink()
        with closing(sqlite3.connect(unmigrated.database)) as db, db:
            db.execute("CREATE TABLE guests (guest TEXT)")
        assert other_program in unmigrated.refuses(*arguments)

        make_database(unmigrated.database)
        with closing(sqlite3.connect(unmigrated.database)) as db, db:
            db.execute(
                "INSERT INTO _sqlite_migrations (migration_set, name, applied_at) "
                "VALUES ('cardonfile', 'm999_later', '2027-01-01')"
            )
        assert "newer release" in unmigrated.refuses(*arguments)

    def test_a_damaged_database_can_be_replaced_by_a_backup(self, cardonfile: CommandLine) -> None:
        cardonfile.storage.close()
        with cardonfile.database.open("r+b") as file:
            file.seek(100)
            file.write(b"\xff" * 3_000)

        complaint = cardonfile.refuses("token", "list")
        assert complaint.endswith("database disk image is malformed): restore a backup")


def test_an_import_that_is_interrupted_by_ctrl_c_stores_nothing(
    cardonfile: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = cardonfile.folder / "centers.csv"
    file.write_text(f"id,name\n{CENTER_ID},Harbor Spa\n")
    check = CsvImport.check

    def check_until_ctrl_c(*arguments: Any, **options: Any) -> int:  # those of check
        count = check(*arguments, **options)
        raise_signal(SIGINT)
        return count

    monkeypatch.setattr(CsvImport, "check", check_until_ctrl_c)
    # Shells let programs in the background ignore Ctrl-C.
    before = signal(SIGINT, default_int_handler)
    try:
        result = cardonfile.run("import", "centers", str(file))
        assert getsignal(SIGINT) is default_int_handler
    finally:
        signal(SIGINT, before)

    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr == "interrupted: nothing was imported\n"
    with cardonfile.storage.read() as unit:
        assert unit.centers.get(CENTER_ID) is None


def stop_overriding_file_modes() -> None:
    """Take from root, in this thread, the two capabilities with which root overrides file modes."""
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    # From <linux/capability.h>: version 3, and effective, permitted and inheritable sets of 64 bits.
    header, sets = struct.pack("Ii", 0x20080522, 0), ctypes.create_string_buffer(24)
    assert libc.capget(header, sets) == 0
    fewer = [each & ~(1 << 1 | 1 << 2) for each in struct.unpack("6I", sets.raw)]
    assert libc.capset(header, struct.pack("6I", *fewer)) == 0


def test_a_folder_in_place_of_the_database_file_is_refused(unmigrated: CommandLine) -> None:
    unmigrated.database.mkdir()

    for arguments in (("migrate",), ("token", "list"), ("reconcile",)):
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


def test_the_refusal_of_an_inaccessible_database_file_states_the_reason(
    unmigrated: CommandLine,
) -> None:
    read_only, fixed, hidden = (unmigrated.folder / name / "cards.db" for name in ("a", "b", "c"))
    for database in (read_only, fixed):
        database.parent.mkdir()
        make_database(database)
    read_only.chmod(0o400)
    fixed.parent.chmod(0o500)
    hidden.parent.mkdir(mode=0)

    unmigrated.environment["CARDONFILE_FAKE_PSP_DATABASE"] = str(unmigrated.folder / "fake-psp.db")
    serve, token_list = ("serve", "--port", str(free_port())), ("token", "list")
    reasons = (
        (serve, read_only, "a readonly database; this user may not read and write the file"),
        (serve, fixed, "this user may not write in its folder"),
        (token_list, hidden, "the file does not exist, or this user may not search its folder"),
    )
    with ThreadPoolExecutor(1, initializer=stop_overriding_file_modes) as thread:
        for command, database, reason in reasons:
            settings = {"CARDONFILE_DATABASE_URL": f"sqlite:///{database}"}
            complaint = thread.submit(unmigrated.refuses, *command, **settings).result()
            assert complaint.startswith(f"the database cannot be used ({database}: ")
            assert f"{reason}): check that" in complaint
    fixed.parent.chmod(0o700)
    hidden.parent.chmod(0o700)


def test_files_in_a_folder_that_may_not_be_searched_do_not_count_as_missing(
    cardonfile: CommandLine,
) -> None:
    hidden = cardonfile.folder / "hidden"
    hidden.mkdir(mode=0)
    fake_psp, erasures = hidden / "fake-psp.db", hidden / "folder" / "erasures"
    backup = ("backup", str(cardonfile.folder / "backups"))
    with ThreadPoolExecutor(1, initializer=stop_overriding_file_modes) as thread:
        for command, setting, file, complaint in (
            (backup, "FAKE_PSP_DATABASE", fake_psp, f"{fake_psp}: Permission denied"),
            (("reconcile",), "ERASURES_FILE", hidden / "erasures", f"{hidden / 'erasures'}: Per"),
            (("reconcile",), "ERASURES_FILE", erasures, f"{erasures.parent}: Permission denied"),
        ):
            settings = {f"CARDONFILE_{setting}": str(file)}
            refused = thread.submit(cardonfile.refuses, *command, **settings).result()
            assert refused.startswith(complaint)
    hidden.chmod(0o700)
