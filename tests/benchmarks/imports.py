"""Importing guests, validated, beside the `.import` of SQLite's shell into the same table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import pysqlite3

from adapters.sqlite.migrations import migrate
from tests.benchmarks.results import Import
from tests.benchmarks.servers import RUNTIME, NotServing, make_sample, run
from tests.programs import SERVE

ROWS: Final = 1_000_000
FEWER_ROWS: Final = 100_000
"""To see whether memory grows with the file."""

OURS: Final = "cardonfile import guests"
SHELL: Final = "sqlite3 .import"


def measure(folder: Path, *, rounds: int, say: Callable[[str], None]) -> Iterator[Import]:
    """Import the same guests in both ways, each into a new database."""
    for rows, times in ((FEWER_ROWS, 1), (ROWS, rounds)):
        files = folder / f"import-{rows}"
        files.mkdir()
        guests = make_sample(files, rows).guests
        # The shell fills every column of the table from the file.
        with_import_id = files / "guests-with-import-id.csv"
        with guests.open() as read, with_import_id.open("w") as written:
            header = next(read)
            written.write(header.replace("email", "email,import_id"))
            written.writelines(line.rstrip() + ",1\n" for line in read)
        for number in range(1, times + 1):
            say(f"import of {rows:,} guests, round {number} of {times}")
            for how in (OURS, SHELL):
                database = files / f"{number}-{how.split()[0]}.db"
                migrate(database)
                if how == OURS:
                    environment = {"CARDONFILE_DATABASE_URL": f"sqlite:///{database}"}
                    command = [str(RUNTIME), "-c", SERVE, "import", "guests", str(guests)]
                else:
                    environment = {}
                    command = _shell(database, with_import_id)
                seconds, peak_mb = _run(command, files, environment)
                _require(database, rows)
                database.unlink()
                yield Import(how=how, rows=rows, round=number, seconds=seconds, peak_mb=peak_mb)


def _shell(database: Path, guests: Path) -> list[str]:
    return [
        *("sqlite3", "-cmd", "PRAGMA synchronous=FULL", str(database)),
        f".import --csv --skip 1 {guests} guests",
    ]


_RUN: Final = """
import json, resource, subprocess, sys, time
began = time.perf_counter()
subprocess.run(sys.argv[1:], check=True, stdout=sys.stderr)
seconds = time.perf_counter() - began
print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024]))
"""


def _run(
    command: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> tuple[float, float]:
    """Run a command to its end; give how long it took, and the most memory that it had.

    A small process starts it, because Linux counts the memory of the one that it is forked from.
    """
    seconds, peak_bytes = json.loads(run(folder, environment, "-c", _RUN, *command))
    return round(seconds, 3), round(peak_bytes / 1e6, 1)


def _require(database: Path, rows: int) -> None:
    with closing(pysqlite3.connect(database)) as db:
        (stored,) = db.execute("SELECT count(*) FROM guests").fetchone()
    if stored != rows:
        raise NotServing(f"{stored} of {rows} guests were imported")
