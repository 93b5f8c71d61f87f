"""Runs commands of other programs as the docs give them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from tests.databases import make_database
from tests.postgresql import PostgresqlServer, pg_dump
from tests.programs import ROOT
from tests.waiting import LIMIT_SECONDS


def test_the_documented_commands_create_a_postgresql_database_with_its_role(
    tmp_path: Path, stoppable_postgresql: PostgresqlServer
) -> None:
    page = (ROOT / "docs/scaling.md").read_text()
    (commands,) = re.findall(r"(?ms)^createuser .*?^cardonfile copy-database .*?$", page)
    address, server = commands.split()[-1], urlsplit(stoppable_postgresql.url)
    make_database(tmp_path / "cardonfile.db")
    programs = [str(Path(sys.executable).parent), str(pg_dump().parent), os.environ["PATH"]]

    # Without a terminal, so that passwords are read from what is typed.
    subprocess.run(
        ["sh", "-e", "-c", commands],
        check=True,
        cwd=tmp_path,
        env={
            **os.environ,
            "PATH": os.pathsep.join(programs),
            "PYTHONPATH": str(ROOT),
            "CARDONFILE_DATABASE_URL": address,
            # libpq takes from these what an address lacks.
            "PGHOST": "localhost",
            "PGPORT": str(server.port),
            "PGUSER": "postgres",
        },
        input="secret\n" * 2,
        text=True,
        timeout=LIMIT_SECONDS,
        start_new_session=True,
    )

    made = server._replace(path=urlsplit(address).path).geturl()
    with psycopg.connect(made) as connection:
        owners = connection.execute(
            "SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'public'"
        ).fetchall()
    assert owners == [(urlsplit(address).username,)]
