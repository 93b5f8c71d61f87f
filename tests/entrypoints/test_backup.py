"""What `cardonfile backup` writes, and what happens after a backup is restored (F11)."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from pysqlite3 import dbapi2
from structlog.testing import capture_logs

from adapters.psp_suite.samples import NOW
from adapters.system import operating_system_user
from domain.sessions.end import SessionStatus
from entrypoints.backup import BackupExists, back_up
from tests.adapters.http.api import ACCOUNTS, Api
from tests.adapters.postgresql.by_hand import execute
from tests.builders import CENTER_ID
from tests.entrypoints.conftest import CommandLine
from tests.installation import GOOD_CARD, OTHER_GOOD_CARD, Installation
from tests.postgresql import new_database, pg_dump

PUBLIC: Final = {"CARDONFILE_PUBLIC_BASE_URL": "https://pay.example"}
"""Settings under which there is no fake PSP."""


class Backup:
    """A copy of a database in use, and its restoration."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._copy, _ = back_up(installation.settings, installation.database.parent, NOW)

    def restore(self) -> None:
        """Replace the database by this copy, an hour later."""
        self._installation.storage.close()
        for beside in ("cards.db-wal", "cards.db-shm"):
            self._installation.database.with_name(beside).unlink(missing_ok=True)
        self._copy.replace(self._installation.database)
        self._installation.clock.advance(timedelta(hours=1))
        self._installation.reconcile()


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    installation = Installation(tmp_path)
    yield Api(installation)
    installation.close()


# Shows F11.
def test_a_session_that_settled_after_the_backup_settles_again_after_the_restore(api: Api) -> None:
    installation = api.installation
    session = installation.opened_session()
    backup = Backup(installation)
    installation.type_card_and_return(session)

    backup.restore()

    assert installation.session(session.token_id).status is SessionStatus.COMPLETED
    (account,) = installation.accounts()
    assert {account.token} == installation.tokens_at_psp()


# Shows F11.
def test_a_removed_card_is_not_stored_again_by_restoring_a_backup_with_its_open_session(
    api: Api,
) -> None:
    installation = api.installation
    session = installation.opened_session()
    backup = Backup(installation)
    installation.type_card_and_return(session)
    (account,) = installation.accounts()
    assert api.send("DELETE", f"{ACCOUNTS}/{account.account_id}").status_code == 200
    installation.reconcile()
    assert installation.tokens_at_psp() == frozenset()

    backup.restore()

    assert installation.session(session.token_id).status is SessionStatus.EXPIRED
    assert installation.accounts() == ()


# Shows F11.
def test_a_card_that_was_removed_after_the_backup_can_be_removed_again_after_the_restore(
    api: Api,
) -> None:
    installation = api.installation
    kept = installation.stored_card(GOOD_CARD)
    removed = installation.stored_card(OTHER_GOOD_CARD)
    backup = Backup(installation)
    request = ("DELETE", f"{ACCOUNTS}/{removed.account_id}")
    with capture_logs() as lines:
        assert api.send(*request).status_code == 200
    (line,) = (line for line in lines if line["event"] == "card_removed")
    assert f"/api/v1/guests/{line['guest_id']}/accounts" == ACCOUNTS
    assert line["account_id"] == removed.account_id
    installation.reconcile()

    backup.restore()

    assert installation.tokens_at_psp() == {kept.token}
    assert api.send(*request).status_code == 200
    installation.reconcile()
    assert installation.accounts() == (kept,)


@pytest.fixture
def cardonfile(api: Api, tmp_path: Path) -> CommandLine:
    """Return the command line of an installation in use, with a card on file."""
    api.installation.stored_card(GOOD_CARD)
    return CommandLine(tmp_path)


def names_in(folder: Path) -> list[str]:
    mark_and_time = re.compile("[0-9a-f]{8}-[0-9]{8}T[0-9]{6}Z")
    return sorted(mark_and_time.sub("MARK-TIME", file.name) for file in folder.iterdir())


def test_backup_copies_every_database_file_and_lets_only_the_owner_read_the_copies(
    cardonfile: CommandLine, tmp_path: Path
) -> None:
    folder = tmp_path / "backups"
    output = cardonfile.succeeds("backup", str(folder))

    assert names_in(folder) == ["cardonfile-MARK-TIME.db", "fake-MARK-TIME.db"]
    files = sorted(folder.iterdir())
    assert output == "".join(f"wrote {file}\n" for file in files)
    assert {stat.S_IMODE(file.stat().st_mode) for file in (folder, *files)} == {0o600, 0o700}
    for file, table in zip(files, ("payment_accounts", "pages"), strict=True):
        with closing(dbapi2.connect(str(file))) as copy:
            assert copy.execute(f"SELECT count(*) FROM {table}").fetchone() == (1,)
    (entry,) = json.loads(cardonfile.succeeds("audit", "list", "--about", "backup", "--json"))
    assert (entry["actor"], entry["action"]) == (operating_system_user(), "backup.completed")
    assert entry["details"] == {"folder": str(folder), "files": 2}
    begun = datetime.fromisoformat(files[0].stem.rpartition("-")[2])
    assert datetime.fromisoformat(entry["time"]) >= begun


def test_backup_creates_no_copy_of_a_damaged_or_missing_database(
    cardonfile: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "cards-fake-psp.db"
    with closing(dbapi2.connect(str(file))) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with file.open("r+b") as opened:
        opened.seek(4096)
        opened.write(b"\xff" * 4096 * 3)

    sentence = cardonfile.refuses("backup", str(tmp_path / "backups"))

    assert str(file) in sentence
    assert names_in(tmp_path / "backups") == []

    file.unlink()
    _, missing = cardonfile.succeeds("backup", str(tmp_path / "backups")).splitlines()
    assert missing == f"not copied, because the file does not exist: {file}"


def test_an_existing_backup_is_never_replaced(api: Api, tmp_path: Path) -> None:
    first, _ = back_up(api.installation.settings, tmp_path, NOW)
    before = first.read_bytes()
    with pytest.raises(BackupExists, match=re.escape(f"{first} exists")):
        back_up(api.installation.settings, tmp_path, NOW)
    assert first.read_bytes() == before
    # Another command has begun to write it.
    under_way = first.rename(tmp_path / f".{first.name}.partial")
    with pytest.raises(FileExistsError):
        back_up(api.installation.settings, tmp_path, NOW)
    assert under_way.exists()


def test_backup_deletes_all_but_the_newest_backups(
    cardonfile: CommandLine, api: Api, tmp_path: Path
) -> None:
    folder = tmp_path / "backups"
    now = datetime.now(UTC)
    days = [NOW - timedelta(days=3), NOW - timedelta(days=2), NOW, now + timedelta(days=9)]
    oldest, second, third, ahead = (back_up(api.installation.settings, folder, day) for day in days)
    left_by_a_killed_command = folder / f".{oldest[0].name}.partial"
    left_by_a_killed_command.touch()

    output = cardonfile.succeeds("backup", str(folder), "--keep", "2")

    deleted = sorted((*oldest, *second, left_by_a_killed_command))
    assert output.splitlines()[2:] == [f"deleted {file}" for file in deleted]
    # A backup of a clock that was ahead is not counted.
    written = {Path(line.removeprefix("wrote ")) for line in output.splitlines()[:2]}
    assert set(folder.iterdir()) == {*third, *ahead, *written}


def test_deleting_old_backups_keeps_files_of_other_installations_or_programs(
    cardonfile: CommandLine, api: Api, tmp_path: Path
) -> None:
    folder = tmp_path / "backups"
    settings = api.installation.settings
    old = NOW - timedelta(days=3)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (ours, _) = back_up(settings, elsewhere, old)
    names = (
        *("billing-20240101T000000Z.dump", "cardonfile-20240101T000000Z.db"),
        *(f"copy-of-{ours.name}", f"{ours.name}.gz", ours.name.replace("Z", "")),
    )
    other_installation = replace(settings, public_base_url="https://other.example")
    others = [*back_up(other_installation, folder, old), *(folder / name for name in names)]
    for other in others:
        other.touch()
    link = folder / ours.name
    link.symlink_to(ours)

    output = cardonfile.succeeds("backup", str(folder), "--keep", "1")

    assert "deleted" not in output
    assert set(folder.iterdir()) > {*others, link}


@pytest.mark.parametrize("open_folder", ["above/backups", "above"])
def test_a_backup_folder_that_others_can_write_to_is_reported(
    cardonfile: CommandLine, tmp_path: Path, open_folder: str
) -> None:
    folder, theirs = tmp_path / "above" / "backups", tmp_path / open_folder
    folder.mkdir(mode=0o755, parents=True)
    theirs.chmod(0o770)
    result = cardonfile.run("backup", str(folder))
    assert result.exit_code == 0
    assert result.stderr == (
        f"Warning: other users may write to {theirs}, and could replace or delete the backups: "
        f"run `chmod go-w {theirs}`\n"
    )


class TestPostgresql:
    """Backups of a PostgreSQL database by PostgreSQL's own programs."""

    @pytest.fixture
    def url(self, postgresql_server: str) -> Iterator[str]:
        with new_database(postgresql_server) as url:
            execute(url, f"INSERT INTO centers VALUES ('{CENTER_ID}', 'Harbor Spa')")
            yield url

    def test_backups_of_postgresql_can_be_restored_by_pg_restore(
        self, url: str, cardonfile: CommandLine, tmp_path: Path, postgresql_server: str
    ) -> None:
        folder = tmp_path / "backups"
        programs = f"{pg_dump().parent}{os.pathsep}{os.environ['PATH']}"

        cardonfile.succeeds(
            *("backup", str(folder)), PATH=programs, CARDONFILE_DATABASE_URL=url, **PUBLIC
        )

        assert names_in(folder) == ["cardonfile-MARK-TIME.dump"]
        (file,) = folder.iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        with new_database(postgresql_server, migrated=False) as restored:
            subprocess.run(
                [pg_dump().with_name("pg_restore"), f"--dbname={restored}", file], check=True
            )
            assert execute(restored, "SELECT name FROM centers") == [("Harbor Spa",)]

    def test_backing_up_postgresql_does_not_show_the_password_to_other_users(
        self, url: str, cardonfile: CommandLine, tmp_path: Path
    ) -> None:
        program = tmp_path / "pg_dump"
        program.write_text('#!/bin/sh\necho "$PGPASSWORD $*" > "$0.log"\nexit 1\n')
        program.chmod(0o700)
        with_password = url.replace("postgres@", "postgres:s3cret@")
        command = ("backup", str(tmp_path / "backups"))
        settings = {**PUBLIC, "CARDONFILE_DATABASE_URL": with_password}
        path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"

        sentence = cardonfile.refuses(*command, PATH=path, **settings)

        assert sentence == "pg_dump failed: exit status 1"
        missing = cardonfile.refuses(*command, PATH="", **settings)
        assert missing.startswith("pg_dump is not installed: install the client programs")
        password, arguments = (tmp_path / "pg_dump.log").read_text().split(maxsplit=1)
        assert password == "s3cret"
        assert "s3cret" not in arguments
        assert names_in(tmp_path / "backups") == []
