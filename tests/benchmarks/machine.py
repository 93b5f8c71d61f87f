"""Describes the machine on which the benchmarks run, without its name."""

from __future__ import annotations

import os
import platform
import re
import statistics
import subprocess
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Final

import psycopg
import pysqlite3

from tests.benchmarks.results import Machine

PACKAGES: Final = (
    *("falcon", "waitress", "msgspec", "structlog", "psycopg"),
    *("pydantic", "flask", "gunicorn", "sqlalchemy"),
)
SYNCS: Final = 200

_NUMBERS: Final = r"(\d[\d.]*\d)"


def describe(folder: Path, postgresql: str | None = None) -> Machine:
    """Return a description of the machine and of the disk that contains the folder."""
    versions = {"Python": platform.python_version(), "SQLite": pysqlite3.sqlite_version}
    if postgresql:
        with psycopg.connect(postgresql) as connection:
            found = connection.info.parameter_status("server_version")
            versions["PostgreSQL"] = found or "unknown"
    versions["wrk"] = _find(r"wrk (?:debian/)?([\d.]+)", _output("wrk", "--version"))
    versions["sqlite3"] = _find(_NUMBERS, _output("sqlite3", "--version"))
    versions |= {package: version(package) for package in PACKAGES}
    memory = int(_find(r"MemTotal: +(\d+) kB", Path("/proc/meminfo").read_text())) * 1024
    return Machine(
        processor=_find(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text()),
        cores=os.cpu_count() or 0,
        memory_gb=round(memory / 1e9, 1),
        kernel=f"{platform.system()} {_find(_NUMBERS, platform.release())}",
        file_system=_output("findmnt", "-no", "FSTYPE", "-T", str(folder)).strip(),
        sync_ms=_sync_ms(folder),
        versions=versions,
    )


def _sync_ms(folder: Path) -> float:
    taken = []
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(SYNCS):
            began = time.perf_counter()
            file.write(bytes(4096))
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - began)
    return round(statistics.median(taken) * 1000, 3)


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def _find(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found[1] if found else "unknown"
