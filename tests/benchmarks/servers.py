"""Runs the service, the Flask peer and the floor, each on its own copy of the same records."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from random import Random
from typing import Final

from tests.programs import ROOT, SERVE, free_port

OURS: Final = "cardonfile, granian"
ON_WAITRESS: Final = "cardonfile, waitress"
FLOOR: Final = "floor"
FLASK: Final = "Flask"

OWN: Final = (OURS, ON_WAITRESS, FLOOR)
"""The servers that need only the dependencies of the service."""
ALL: Final = (*OWN, FLASK)

SQLITE: Final = "SQLite"
POSTGRESQL: Final = "PostgreSQL"

GUESTS: Final = 10_000
FLASK_THREADS: Final = 16
GRANIAN_THREADS: Final = 8
"""The fastest number of threads from 1 to 8 on two cores."""
START_SECONDS: Final = 30
STOP_SECONDS: Final = 10

WRITE_LIMIT: Final = "100000000/day"
"""A write limit that is never reached, so that the service counts every request."""

RUNTIME: Final = str(ROOT / "build" / "runtime" / "bin" / "python")
"""A Python with only the dependencies of the service. `make` installs it.

Some libraries import whatever optional packages they find, and the tests install many packages.
"""

_PEER_TOKEN: Final = "cof_" + "p" * 43

# `cardonfile work` is a child of granian, so that the CPU time and memory of both are counted.
_GRANIAN: Final = """
import subprocess, sys
if {with_worker}:
    from tests.programs import SERVE
    subprocess.Popen([sys.executable, "-c", SERVE, "work"])
from granian.cli import entrypoint
entrypoint()
"""

_COMMANDS: Final = """
import json, sys
from entrypoints.cli.main import main
for arguments in json.loads(sys.argv[1]):
    main(arguments, standalone_mode=False)
"""


class NotServing(Exception):
    """A program did not do the work to be measured. The message is the output of the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The records in every database: a center and its guests.

    `centers` and `guests` are CSV files.
    """

    center_id: str
    guest_ids: Sequence[str]
    centers: Path
    guests: Path


def make_sample(folder: Path, guests: int = GUESTS) -> Sample:
    """Write the CSV files. Their content is always the same."""
    random = Random(1)
    new_ids = (str(uuid.UUID(int=random.getrandbits(128), version=4)) for _ in range(guests + 1))
    center_id, *guest_ids = new_ids
    sample = Sample(
        center_id=center_id,
        guest_ids=guest_ids,
        centers=folder / "centers.csv",
        guests=folder / "guests.csv",
    )
    sample.centers.write_text(f"id,name\n{center_id},Harbor Spa\n")
    with sample.guests.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "first_name", "last_name", "email"])
        writer.writerows(
            [guest_id, f"First {number}", f"Last {number}", f"guest.{number}@guests.example"]
            for number, guest_id in enumerate(guest_ids)
        )
    return sample


@dataclass(slots=True, kw_only=True)
class Server:
    """A program that serves add-card, with its database. `port` and `pid` are set while it runs.

    `command` takes a port and a number of processes. It returns the arguments of Python.
    """

    name: str
    folder: Path
    sample: Sample
    token: str
    environment: Mapping[str, str]
    command: Callable[[int, int], Sequence[str]]
    python: str = sys.executable
    port: int = 0
    pid: int = 0

    @contextmanager
    def running(self, processes: int = 1) -> Iterator[None]:
        """Start the program, wait until add-card works, and stop the program at the end."""
        self.port = free_port()
        log = self.folder / "log"
        base_url = {"CARDONFILE_PUBLIC_BASE_URL": f"http://127.0.0.1:{self.port}"}
        with log.open("ab") as output:
            process = subprocess.Popen(
                [self.python, *self.command(self.port, processes)],
                cwd=self.folder,
                env=_environment({**self.environment, **base_url}),
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.pid = process.pid
        try:
            give_up_at = time.monotonic() + START_SECONDS
            while not self._is_ready():
                if process.poll() is not None or time.monotonic() > give_up_at:
                    raise NotServing(f"{self.name} does not start: {log.read_text()}")
                time.sleep(0.002)
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
            # The children of the program are in its process group.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _is_ready(self) -> bool:
        with suppress(OSError, HTTPException):
            status, text = self._add_card()
            if status != 200:
                raise NotServing(f"{self.name} responds {status}: {text}")
            return True
        return False

    def _add_card(self) -> tuple[int, str]:
        redirect_uri = "https://shop.example/cards"
        body = {"center_id": self.sample.center_id, "redirect_uri": redirect_uri}
        connection = HTTPConnection("127.0.0.1", self.port, timeout=START_SECONDS)
        try:
            connection.request(
                "POST",
                f"/api/v1/guests/{self.sample.guest_ids[0]}/accounts",
                json.dumps(body),
                {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
            )
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()


def with_metrics(server: Server, memory: str) -> Server:
    """Switch on the metrics of the service. Under granian, they are stored in `memory`."""
    files = {} if server.name == ON_WAITRESS else {"CARDONFILE_METRICS_FOLDER": memory}
    address = {"CARDONFILE_METRICS": f"127.0.0.1:{free_port()}"}
    server.environment = {**server.environment, **address, **files}
    return server


def make_server(name: str, folder: Path, sample: Sample, postgresql: str | None = None) -> Server:
    """Return a server with a filled database.

    The database is a file in a new folder, or the empty PostgreSQL database that is given.
    """
    folder.mkdir()
    make = _make_own if name in OWN else _make_peer
    return make(name, folder, sample, postgresql)


def _make_own(name: str, folder: Path, sample: Sample, postgresql: str | None) -> Server:
    database = folder / "cards.db"
    environment = {
        "CARDONFILE_DATABASE_URL": postgresql or f"sqlite:///{database}",
        "CARDONFILE_WRITE_LIMIT": WRITE_LIMIT,
        "CARDONFILE_CARD_TESTING_LIMITS": "off",
        "FLOOR_DATABASE": str(database),
    }
    commands = (
        ["migrate"],
        ["import", "centers", str(sample.centers)],
        ["import", "guests", str(sample.guests)],
        ["configure-payments", sample.center_id, "--provider", "fake"],
        [
            *("token", "issue", "--caller", "web-store"),
            *("--permission", "guests:add", "--permission", "guests:view"),
        ],
    )
    token = run(folder, environment, "-c", _COMMANDS, json.dumps(commands)).split()[-1]

    def waitress(port: int, _: int) -> Sequence[str]:
        return ("-c", SERVE, "serve", "--port", str(port))

    def granian(port: int, processes: int) -> Sequence[str]:
        application = "tests.benchmarks.peers.floor" if name == FLOOR else "entrypoints.wsgi"
        return (
            *("-c", _GRANIAN.format(with_worker=name == OURS)),
            *("--interface", "wsgi", "--factory", "--log-level", "error", "--port", str(port)),
            *("--workers", str(processes), "--blocking-threads", str(GRANIAN_THREADS)),
            f"{application}:create_application",
        )

    return Server(
        name=name,
        folder=folder,
        sample=sample,
        token=token,
        environment=environment,
        command=waitress if name == ON_WAITRESS else granian,
    )


def _make_peer(name: str, folder: Path, sample: Sample, postgresql: str | None) -> Server:
    environment = {"DATABASE_URL": f"sqlite:///{folder / 'cards.db'}"}
    if postgresql:
        environment["DATABASE_URL"] = postgresql.replace("postgresql:", "postgresql+psycopg:", 1)
    run(
        *(folder, environment, "-m", "tests.benchmarks.peers.models"),
        *(str(sample.guests), sample.center_id, _PEER_TOKEN),
    )

    def gunicorn(port: int, processes: int) -> Sequence[str]:
        return (
            *("-m", "gunicorn", "tests.benchmarks.peers.flask_peer:app"),
            *("--bind", f"127.0.0.1:{port}"),
            *("--workers", str(processes), "--threads", str(FLASK_THREADS)),
        )

    return Server(
        name=name,
        folder=folder,
        sample=sample,
        token=_PEER_TOKEN,
        environment=environment,
        command=gunicorn,
    )


def run(folder: Path, environment: Mapping[str, str], *arguments: str) -> str:
    """Run Python until it ends. Return its output. Raises NotServing if the program fails."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=_environment(environment),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise NotServing(done.stderr)
    return done.stdout


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    kept = {name: each for name, each in os.environ.items() if "CARDONFILE" not in name}
    return {**kept, "PYTHONPATH": str(ROOT), **more}
