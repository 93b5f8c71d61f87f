"""The service and its peers as processes, each with a database of its own that is filled alike."""

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
from dataclasses import dataclass, field, replace
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from random import Random
from typing import Final

from tests.programs import ROOT, SERVE, free_port

OURS: Final = "cardonfile, granian"
ON_WAITRESS: Final = "cardonfile, waitress"
FLOOR: Final = "floor"
FASTAPI: Final = "FastAPI"
FLASK: Final = "Flask"
WITH_LOCK: Final = ", write lock"

PEERS: Final = (FASTAPI, FLASK)
"""As their documentation teaches."""
LOCKED_PEERS: Final = (FASTAPI + WITH_LOCK, FLASK + WITH_LOCK)
"""The same, with one lock around writes."""
OWN: Final = (OURS, ON_WAITRESS, FLOOR)
"""What runs with the dependencies of the service alone."""
ALL: Final = (*OWN, *PEERS, *LOCKED_PEERS)

GUESTS: Final = 10_000
FLASK_THREADS: Final = 16
START_SECONDS: Final = 30
STOP_SECONDS: Final = 10

RUNTIME: Final = ROOT / "build" / "runtime" / "bin" / "python"
"""Python with what the service itself needs and nothing else, which `make` installs.

Some libraries import what they find beside them, and the tests and peers bring a lot.
"""

ADD_CARD_LIMIT: Final = "100000000/day"
"""High enough to be met by nobody, and counted all the same."""

_PEER_TOKEN: Final = "cof_" + "p" * 43

GRANIAN: Final = """
import subprocess, sys
if {with_worker}:
    from tests.programs import SERVE
    subprocess.Popen([sys.executable, "-c", SERVE, "work"])
from granian.cli import entrypoint
entrypoint()
"""
"""granian, with `cardonfile work` below it so that what both use is counted together."""
GRANIAN_THREADS: Final = 8

_COMMANDS: Final = """
import json, sys
from entrypoints.cli import main
for arguments in json.loads(sys.argv[1]):
    main(arguments, standalone_mode=False)
"""

Program = Callable[[int, int], Sequence[str]]
"""The arguments for Python that serve on a port with so many processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The records that every database has: one center, and guests."""

    center_id: str
    guest_ids: Sequence[str]
    centers: Path
    guests: Path


def make_sample(folder: Path, guests: int = GUESTS) -> Sample:
    """Write the records as CSV files, the same each time."""
    random = Random(1)

    def new_id() -> str:
        return str(uuid.UUID(int=random.getrandbits(128), version=4))

    sample = Sample(
        center_id=new_id(),
        guest_ids=[new_id() for _ in range(guests)],
        centers=folder / "centers.csv",
        guests=folder / "guests.csv",
    )
    _write(sample.centers, ["id", "name"], [[sample.center_id, "Harbor Spa"]])
    _write(
        sample.guests,
        ["id", "first_name", "last_name", "email"],
        (
            [guest_id, f"First {number}", f"Last {number}", f"guest.{number}@guests.example"]
            for number, guest_id in enumerate(sample.guest_ids)
        ),
    )
    return sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that runs, and what it takes to ask it."""

    name: str
    process: subprocess.Popen[bytes]
    port: int
    token: str
    sample: Sample

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def add_card(self, body: str | None = None, **changes: str) -> tuple[int, str]:
        """Send one request to add a card; give status and body of the answer."""
        asked = {"guest": self.sample.guest_ids[0], "token": self.token, **changes}
        connection = HTTPConnection("127.0.0.1", self.port, timeout=START_SECONDS)
        try:
            connection.request(
                "POST",
                f"/api/v1/guests/{asked['guest']}/accounts",
                body or self.good_body,
                {
                    "Authorization": f"Bearer {asked['token']}",
                    "Content-Type": "application/json",
                },
            )
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    @property
    def good_body(self) -> str:
        """What to send to add a card."""
        return (
            f'{{"center_id": "{self.sample.center_id}", '
            '"redirect_uri": "https://shop.example/cards"}'
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A server that may be started, as often as wanted, with its database filled."""

    name: str
    folder: Path
    program: Program
    token: str
    sample: Sample
    python: str = sys.executable
    environment: Mapping[str, str] = field(default_factory=dict)

    @contextmanager
    def running(self, processes: int = 1) -> Iterator[Server]:
        """Start it, and wait until it has added a card; stop it at the end."""
        port = free_port()
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [self.python, *self.program(port, processes)],
                cwd=self.folder,
                env=_environment(
                    {
                        **self.environment,
                        "CARDONFILE_PUBLIC_BASE_URL": f"http://127.0.0.1:{port}",
                    }
                ),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        server = Server(
            name=self.name, process=process, port=port, token=self.token, sample=self.sample
        )
        try:
            self._wait_for_answer(server)
            yield server
        finally:
            _stop(process)

    def _wait_for_answer(self, server: Server) -> None:
        give_up_at = time.monotonic() + START_SECONDS
        while True:
            with suppress(OSError, HTTPException):
                status, text = server.add_card()
                if status == 200:
                    return
                raise NotServing(f"{self.name} answers {status}: {text}")
            if server.process.poll() is not None or time.monotonic() > give_up_at:
                raise NotServing(f"{self.name} does not start: {(self.folder / 'log').read_text()}")
            time.sleep(0.002)


class NotServing(Exception):
    """A server that does not do what is to be measured; the text says what it does."""


def make_site(name: str, folder: Path, sample: Sample, postgresql: str | None = None) -> Site:
    """Fill the database of a server: a file in the folder, or an empty one in PostgreSQL."""
    folder.mkdir()
    if name in OWN:
        return _own_site(name, folder, sample, postgresql)
    return _peer_site(name, folder, sample, postgresql)


def as_installed(site: Site) -> Site:
    """Have a site of the own stack run with what the service needs and nothing else."""
    return replace(site, python=str(RUNTIME)) if site.name in OWN else site


def _own_site(name: str, folder: Path, sample: Sample, postgresql: str | None) -> Site:
    database = folder / "cards.db"
    environment = {
        "CARDONFILE_DATABASE_URL": postgresql or f"sqlite:///{database}",
        "CARDONFILE_ADD_CARD_LIMIT": ADD_CARD_LIMIT,
        # The floor reads it.
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
            *("-c", GRANIAN.format(with_worker=name == OURS)),
            *("--interface", "wsgi", "--factory", "--log-level", "error", "--port", str(port)),
            *("--workers", str(processes), "--blocking-threads", str(GRANIAN_THREADS)),
            f"{application}:create_application",
        )

    return Site(
        name=name,
        folder=folder,
        program=waitress if name == ON_WAITRESS else granian,
        environment=environment,
        token=token,
        sample=sample,
    )


def _peer_site(
    name: str, folder: Path, sample: Sample, postgresql: str | None, threads: int = FLASK_THREADS
) -> Site:
    environment = {"DATABASE_URL": f"sqlite:///{folder / 'cards.db'}"}
    if postgresql:
        environment["DATABASE_URL"] = postgresql.replace("postgresql:", "postgresql+psycopg:", 1)
    if name.endswith(WITH_LOCK):
        environment["WRITE_LOCK"] = "1"
    peer = "fastapi_peer" if name.startswith(FASTAPI) else "flask_peer"
    run(
        *(folder, environment, "-m", "tests.benchmarks.peers.fill"),
        *(peer, str(sample.guests), sample.center_id, _PEER_TOKEN),
    )
    application = f"tests.benchmarks.peers.{peer}:app"

    def uvicorn(port: int, processes: int) -> Sequence[str]:
        workers = ("--workers", str(processes)) if processes > 1 else ()
        return ("-m", "uvicorn", application, "--port", str(port), *workers)

    def gunicorn(port: int, processes: int) -> Sequence[str]:
        return (
            *("-m", "gunicorn", application, "--bind", f"127.0.0.1:{port}"),
            *("--workers", str(processes), "--threads", str(threads)),
        )

    return Site(
        name=name,
        folder=folder,
        program=uvicorn if peer == "fastapi_peer" else gunicorn,
        environment=environment,
        token=_PEER_TOKEN,
        sample=sample,
    )


def run(folder: Path, environment: Mapping[str, str], *arguments: str) -> str:
    """Run Python to its end; give what it printed. Raises NotServing when it fails."""
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


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    # Those that it started are in its group.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _write(path: Path, header: Sequence[str], rows: Iterator[list[str]] | list[list[str]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
