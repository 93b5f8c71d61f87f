"""Make a consistent copy of a database file that is in use."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import Final

from adapters.sql.errors import DatabaseUnusable
from adapters.sqlite.connection import connect, translated

WAIT_SECONDS: Final = 60
"""How long to wait for another program that has locked the file."""


class CopyDamaged(DatabaseUnusable):
    """SQLite reports that the copy is damaged. Most likely, the original is damaged too."""

    def __init__(self, path: Path, finding: str) -> None:
        super().__init__(
            f"the copy of {path} is damaged, and the original may be damaged too: {finding}"
        )


def copy(path: Path, to: Path) -> None:
    """Copy the database at `path` to the empty file `to`, sync the copy to disk, and check it.

    The service may run meanwhile and does not have to wait. Raises ServiceUnavailable or
    CopyDamaged.
    """
    with translated(path), closing(connect(path, busy_timeout_seconds=WAIT_SECONDS)) as db:
        db.execute("PRAGMA query_only=OFF")
        db.execute("VACUUM INTO ?", [str(to)])
    with translated(to), closing(connect(to, busy_timeout_seconds=0)) as db:
        (finding,) = db.execute("PRAGMA integrity_check(1)").fetchone()
    if finding != "ok":
        raise CopyDamaged(path, finding)
    with to.open("rb") as file:
        os.fsync(file.fileno())
