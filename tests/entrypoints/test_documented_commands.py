"""Commands of other programs, run as the docs give them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import psycopg

from adapters.sqlite.storage import SqliteStorage
from domain.identifiers import MerchantAccount, ProviderName
from tests.databases import make_database
from tests.postgresql import PostgresqlServer, pg_dump
from tests.programs import ROOT
from tests.waiting import LIMIT_SECONDS

PATH: Final = os.pathsep.join(
    [str(Path(sys.executable).parent), str(pg_dump().parent), os.environ["PATH"]]
)
MAKE_DATABASE: Final = re.search(
    r"^createuser .*?^cardonfile copy-database .*?$",
    (ROOT / "docs/scaling.md").read_text(),
    re.MULTILINE | re.DOTALL,
)
FORGET_IDENTITY: Final = re.search(
    r"`(sqlite\S* cardonfile\.db [^`]*)`", (ROOT / "docs/providers/stripe.md").read_text()
)


def run(commands: str, folder: Path, *, typed: str = "", **environment: str) -> None:
    # Without a terminal, so that passwords are read from what is typed.
    subprocess.run(
        ["sh", "-e", "-c", commands],
        check=True,
        cwd=folder,
        env={**os.environ, "PATH": PATH, "PYTHONPATH": str(ROOT), **environment},
        input=typed,
        text=True,
        timeout=LIMIT_SECONDS,
        start_new_session=True,
    )


def test_the_commands_for_postgresql_make_a_database_for_a_role_of_its_own(
    tmp_path: Path, stoppable_postgresql: PostgresqlServer
) -> None:
    assert MAKE_DATABASE is not None
    commands = MAKE_DATABASE[0]
    address = commands.split()[-1]
    make_database(tmp_path / "cardonfile.db")

    server = stoppable_postgresql.url
    # libpq takes from these what an address lacks.
    place = {"PGHOST": "localhost", "PGPORT": str(urlsplit(server).port)}
    run(
        commands,
        tmp_path,
        typed="secret\n" * 2,
        PGUSER="postgres",
        CARDONFILE_DATABASE_URL=address,
        **place,
    )
    made = urlsplit(server)._replace(path=urlsplit(address).path).geturl()
    with psycopg.connect(made) as connection:
        owners = connection.execute(
            "SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'public'"
        ).fetchall()

    assert owners == [(urlsplit(address).username,)]


def test_the_command_for_stripe_forgets_the_identity_of_its_default_account(
    tmp_path: Path,
) -> None:
    assert FORGET_IDENTITY is not None
    make_database(tmp_path / "cardonfile.db")
    of = [
        (ProviderName(provider), MerchantAccount(account))
        for provider in ("stripe", "acme")
        for account in ("default", "harbor_spa")
    ]
    with closing(SqliteStorage(tmp_path / "cardonfile.db")) as storage:
        with storage.write() as unit:
            for each in of:
                unit.merchant_identities.claim(*each, "acct_1 test")
            unit.commit()

        run(FORGET_IDENTITY[1], tmp_path)

        with storage.read() as reader:
            kept = [each for each in of if reader.merchant_identities.get(*each)]
    assert FORGET_IDENTITY[1].startswith("sqlite-utils ")
    assert kept == of[1:]
