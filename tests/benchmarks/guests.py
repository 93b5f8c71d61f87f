"""Compares the import of guests with `.import` of the SQLite shell into the same table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pysqlite3

from adapters.sqlite.migrations import migrate
from tests.benchmarks.results import Row
from tests.benchmarks.servers import RUNTIME, NotServing, make_sample, run
from tests.programs import SERVE

ROWS: Final = 1_000_000
FEWER_ROWS: Final = 100_000
"""The rows of a smaller file, which shows whether memory grows with the size of the file."""

OURS: Final = "cardonfile import guests"
SHELL: Final = "sqlite3 .import"

# Linux counts the memory of the starting process as memory of the program that it starts. Therefore
# this small process starts the programs.
_RUN: Final = """
import json, resource, subprocess, sys, time
began = time.perf_counter()
subprocess.run(sys.argv[1:], check=True, stdout=sys.stderr)
seconds = time.perf_counter() - began
print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024]))
"""


def measure(folder: Path, *, rounds: int, say: Callable[[str], None]) -> Iterator[Row]:
    """Import the same guests with both programs, each time into a new database."""
    for rows, times in ((FEWER_ROWS, 1), (ROWS, rounds)):
        files = folder / f"import-{rows}"
        files.mkdir()
        guests = make_sample(files, rows).guests
        database = files / "guests.db"
        commands = {
            OURS: [RUNTIME, "-c", SERVE, "import", "guests", str(guests)],
            SHELL: [
                *("sqlite3", "-cmd", "PRAGMA synchronous=FULL", str(database)),
                f".import --csv --skip 1 {guests} guests",
            ],
        }
        for number in range(1, times + 1):
            say(f"import of {rows:,} guests, round {number} of {times}")
            for how, command in commands.items():
                migrate(database)
                environment = {"CARDONFILE_DATABASE_URL": f"sqlite:///{database}"}
                seconds, peak = json.loads(run(files, environment, "-c", _RUN, *command))
                with closing(pysqlite3.connect(database)) as db:
                    (stored,) = db.execute("SELECT count(*) FROM guests").fetchone()
                if stored != rows:
                    raise NotServing(f"{stored} of {rows} guests were imported")
                for each in files.glob("guests.db*"):
                    each.unlink()
                yield {
                    "how": how,
                    "rows": rows,
                    "round": number,
                    "seconds": round(seconds, 3),
                    "peak_mb": round(peak / 1e6, 1),
                }
