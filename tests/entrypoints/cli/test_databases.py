"""`cardonfile migrate`, and Ctrl-C during `cardonfile import`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from signal import SIGINT, default_int_handler, getsignal, raise_signal, signal
from typing import Any

import pytest

from entrypoints.csv_import import CsvImport
from tests.builders import CENTER_ID
from tests.databases import make_database
from tests.entrypoints.conftest import CommandLine

EACH_WAY_TO_OPEN_THE_DATABASE = [
    ("import", "centers", "centers.csv"),
    ("token", "list"),
    ("serve",),
    ("reconcile",),
]


class TestDatabase:
    def test_migrate_creates_the_database_once(self, unmigrated: CommandLine) -> None:
        assert unmigrated.succeeds("migrate").startswith("applied m001_")
        assert unmigrated.succeeds("migrate") == "the database is up to date\n"
        unmigrated.succeeds("token", "list")

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

    def test_migrate_names_a_missing_folder(self, unmigrated: CommandLine) -> None:
        complaint = unmigrated.refuses("migrate", CARDONFILE_DATABASE_URL="sqlite:////no/such.db")

        assert complaint == "/no/such.db: No such file or directory"


@pytest.fixture
def _ctrl_c_interrupts() -> Iterator[None]:
    """Make Ctrl-C interrupt. Shells let programs in the background ignore Ctrl-C."""
    before = signal(SIGINT, default_int_handler)
    yield
    signal(SIGINT, before)


@pytest.mark.usefixtures("_ctrl_c_interrupts")
class TestImport:
    def test_ctrl_c_interrupts_as_usual_after_an_import_has_finished(
        self, cardonfile: CommandLine
    ) -> None:
        file = cardonfile.folder / "centers.csv"
        file.write_text("id,name\n")
        cardonfile.succeeds("import", "centers", str(file))

        assert getsignal(SIGINT) is default_int_handler

    def test_an_import_that_is_interrupted_by_ctrl_c_stores_nothing(
        self, cardonfile: CommandLine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = cardonfile.folder / "centers.csv"
        file.write_text(f"id,name\n{CENTER_ID},Harbor Spa\n")
        check = CsvImport.check

        def check_until_ctrl_c(*arguments: Any, **options: Any) -> int:  # those of check
            count = check(*arguments, **options)
            raise_signal(SIGINT)
            return count

        monkeypatch.setattr(CsvImport, "check", check_until_ctrl_c)
        result = cardonfile.run("import", "centers", str(file))

        assert (result.exit_code, result.stdout) == (130, "")
        assert result.stderr == "interrupted: nothing was imported\n"
        with cardonfile.storage.read() as unit:
            assert unit.centers.get(CENTER_ID) is None
