"""Dump a database with PostgreSQL's own programs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from adapters.postgresql.address import require_readable
from adapters.sql.errors import DatabaseUnusable


class DumpFailed(DatabaseUnusable):
    """pg_dump or pg_restore is missing, or failed."""


def dump(url: str, to: Path) -> None:
    """Dump the database to the file `to`, in pg_dump's custom format, and check the file.

    The service may run meanwhile. Raises AddressInvalid or DumpFailed.
    """
    require_readable(url)
    address = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    # Other users of the machine can read the arguments of a process.
    password = {"PGPASSWORD": address.pop("password")} if "password" in address else {}
    _run(
        "pg_dump",
        "--format=custom",
        f"--file={to}",
        f"--dbname={make_conninfo(**address)}",
        **password,
    )
    _run("pg_restore", f"--file={os.devnull}", str(to))


def _run(*command: str, **environment: str) -> None:
    try:
        subprocess.run(  # noqa: S603 - our own commands, without a shell
            command,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
    except FileNotFoundError as error:
        raise DumpFailed(
            f"{command[0]} is not installed: install the client programs of PostgreSQL in the "
            "version of the server"
        ) from error
    except subprocess.CalledProcessError as error:
        said = str(error.stderr).strip().splitlines() or [f"exit status {error.returncode}"]
        raise DumpFailed(f"{command[0]} failed: {said[0]}") from None
