"""Runs commands of other programs as the docs give them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import psycopg

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


def test_the_documented_commands_create_a_postgresql_database_with_its_role(
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
