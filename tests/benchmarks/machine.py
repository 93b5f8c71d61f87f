"""The machine that is measured on, without anything that names it."""

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
    *("fastapi", "pydantic", "uvicorn", "uvloop", "httptools", "flask", "gunicorn", "sqlalchemy"),
)
SYNCS: Final = 200

_NUMBERS: Final = r"(\d[\d.]*\d)"


def describe(folder: Path, postgresql: str | None = None) -> Machine:
    """Describe the machine, and the disk that a folder is on."""
    memory = int(_found(r"MemTotal: +(\d+) kB", Path("/proc/meminfo").read_text())) * 1024
    versions = {
        "Python": platform.python_version(),
        "SQLite": pysqlite3.sqlite_version,
        **({"PostgreSQL": _postgresql_version(postgresql)} if postgresql else {}),
        "wrk": _found(r"wrk (?:debian/)?([\d.]+)", _printed("wrk", "--version")),
        "sqlite3": _found(_NUMBERS, _printed("sqlite3", "--version")),
        **{package: version(package) for package in PACKAGES},
    }
    return Machine(
        processor=_found(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text()),
        cores=os.cpu_count() or 0,
        memory_gb=round(memory / 1e9, 1),
        kernel=f"{platform.system()} {_found(_NUMBERS, platform.release())}",
        file_system=_file_system(folder),
        sync_ms=_sync_ms(folder),
        versions=versions,
    )


def _sync_ms(folder: Path) -> float:
    """Measure how long the disk takes to keep a page appended to a file."""
    taken = []
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(SYNCS):
            began = time.perf_counter()
            file.write(bytes(4096))
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - began)
    return round(statistics.median(taken) * 1000, 3)


def _file_system(folder: Path) -> str:
    device = folder.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mounted, _, kind = line.partition(" - ")
        if mounted.split()[2] == number:
            return kind.split()[0]
    return "unknown"


def _postgresql_version(address: str) -> str:
    with psycopg.connect(address) as connection:
        found = connection.info.parameter_status("server_version")
    return found or "unknown"


def _printed(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def _found(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found[1] if found else "unknown"
