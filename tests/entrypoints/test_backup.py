"""Backups are made and restored as docs/operations.md says (F11)."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from pysqlite3 import dbapi2
from structlog.testing import capture_logs

from adapters.fake_psp.plugin import NAME as FAKE
from domain.sessions.session import SessionStatus
from tests.adapters.http.api import ACCOUNTS, Api
from tests.installation import GOOD_CARD, OTHER_GOOD_CARD, Installation
from tests.postgresql import new_database, pg_dump
from tests.waiting import wait_until

_PAGE: Final = (Path(__file__).resolve().parents[2] / "docs/operations.md").read_text()
RECIPES: Final = re.findall(
    r"^```sh\n(.*?)^```$",
    _PAGE.partition("## Backup and restore\n")[2].partition("\n## ")[0],
    re.MULTILINE | re.DOTALL,
)
"""The commands to back up SQLite, and PostgreSQL."""
PROGRAMS: Final = Path(sys.executable).parent
"""The command line of SQLite is in the same folder as Python."""


class Backup:
    """A copy of a database in use, and its restoration."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._copy = installation.database.with_name("backup.db")
        database = dbapi2.connect(str(installation.database))
        database.execute(f"VACUUM INTO '{self._copy}'")
        database.close()

    def restore(self) -> None:
        """Replace the database by it, an hour later."""
        self._installation.storage.close()
        for beside in ("cards.db-wal", "cards.db-shm"):
            self._installation.database.with_name(beside).unlink(missing_ok=True)
        self._copy.replace(self._installation.database)
        self._installation.clock.advance(timedelta(hours=1))
        self._installation.reconcile_until_idle()


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    installation = Installation(tmp_path)
    yield Api(installation)
    installation.close()


# Shows F11.
def test_a_session_in_it_settles_again(api: Api) -> None:
    installation = api.installation
    session = installation.opened_session()
    backup = Backup(installation)
    installation.type_card(session)
    installation.return_to_shop(session)

    backup.restore()

    assert installation.session(session.token_id).status is SessionStatus.COMPLETED
    (account,) = installation.accounts()
    assert {account.token} == installation.tokens_at_psp()


# Shows F11.
def test_a_card_that_was_stored_and_removed_since_stays_removed(api: Api) -> None:
    installation = api.installation
    session = installation.opened_session()
    backup = Backup(installation)
    installation.type_card(session)
    installation.return_to_shop(session)
    (account,) = installation.accounts()
    assert api.send("DELETE", f"{ACCOUNTS}/{account.account_id}").status_code == 200
    installation.reconcile_until_idle()
    assert installation.tokens_at_psp() == frozenset()

    backup.restore()

    assert installation.session(session.token_id).status is SessionStatus.EXPIRED
    assert installation.accounts() == ()


# Shows F11.
def test_a_card_in_it_that_was_removed_since_can_be_removed_again(api: Api) -> None:
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
    installation.reconcile_until_idle()

    backup.restore()

    assert installation.tokens_at_psp() == {kept.token}
    assert api.send(*request).status_code == 200
    installation.reconcile_until_idle()
    assert installation.accounts() == (kept,)


# Shows F11.
def test_a_lost_session_is_found_at_the_psp_by_its_token_id(api: Api) -> None:
    installation = api.installation
    backup = Backup(installation)
    session = installation.opened_session()
    installation.type_card(session)
    page = installation.psp.page(installation.page_reference(session))

    backup.restore()

    response = api.get(f"{ACCOUNTS}/sessions/{session.token_id}")
    assert response.status_code == 404
    assert page.request.token_id == session.token_id
    assert page.card is not None
    assert installation.tokens_at_psp() == {page.card.token}


def wait_for_the_next_second() -> None:
    now = int(time.time())
    wait_until(lambda: int(time.time()) > now)


def run_twice(recipe: str, folder: Path, *programs: Path, **environment: str) -> list[Path]:
    """Run documented commands in a shell twice, a second apart; return the backups."""
    before = set(folder.iterdir())
    path = os.pathsep.join((*map(str, programs), os.environ["PATH"]))
    for _ in range(2):
        subprocess.run(
            ["sh", "-e", "-c", recipe],
            check=True,
            cwd=folder,
            timeout=60,
            env={**os.environ, "PATH": path, **environment},
        )
        wait_for_the_next_second()
    backups = sorted(set(folder.iterdir()) - before)
    assert {stat.S_IMODE(each.stat().st_mode) for each in backups} == {0o600}
    return backups


@pytest.mark.parametrize("of_fake_psp", [2, 0], ids=["with the fake PSP", "without it"])
def test_the_commands_for_sqlite_make_one_each_time_for_its_owner_only(
    tmp_path: Path, of_fake_psp: int
) -> None:
    installation = Installation(tmp_path)
    installation.stored_card(GOOD_CARD)
    (tmp_path / "cardonfile.db").symlink_to(installation.database)
    if of_fake_psp:
        fake_psp = installation.settings.psps[FAKE].settings.database
        (tmp_path / "cardonfile-fake-psp.db").symlink_to(fake_psp)
    recipe, _ = RECIPES

    backups = run_twice(recipe, tmp_path, PROGRAMS)
    installation.close()

    assert [re.sub("[0-9]{8}T[0-9]{6}", "TIME", each.name) for each in backups] == [
        *["backup-TIME.db"] * 2,
        *["backup-fake-psp-TIME.db"] * of_fake_psp,
    ]
    with closing(dbapi2.connect(str(backups[0]))) as copy:
        assert copy.execute("SELECT count(*) FROM payment_accounts").fetchone() == (1,)


def test_the_commands_for_sqlite_fail_when_the_database_is_missing(tmp_path: Path) -> None:
    (tmp_path / "cardonfile-fake-psp.db").touch()
    recipe, _ = RECIPES

    with pytest.raises(subprocess.CalledProcessError):
        run_twice(recipe, tmp_path, PROGRAMS)

    assert [each.name for each in tmp_path.iterdir()] == ["cardonfile-fake-psp.db"]


def test_the_commands_for_postgresql_make_one_each_time_for_its_owner_only(
    tmp_path: Path, postgresql_server: str
) -> None:
    _, recipe = RECIPES
    with new_database(postgresql_server) as url:
        backups = run_twice(recipe, tmp_path, pg_dump().parent, CARDONFILE_DATABASE_URL=url)

    assert len(backups) == 2
    listed = subprocess.check_output(
        [pg_dump().with_name("pg_restore"), "--list", backups[0]], text=True
    )
    assert "TABLE DATA public payment_accounts" in listed
