"""Many writers store events while a reader follows the list. Both are killed.

`make torture` does it for two minutes on SQLite and on PostgreSQL, and prints the result.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from threading import Event, Lock
from typing import Final, NamedTuple
from uuid import uuid4

import click
import structlog

from domain.errors import ServiceUnavailable
from domain.events.event_list import EventFilter
from domain.identifiers import EventId
from domain.storage import WriteUnit
from entrypoints.container import build
from entrypoints.settings import Settings
from tests.builders import an_event_delivery
from tests.entrypoints.load import Machine
from tests.entrypoints.torture import STORAGES, Storage
from tests.programs import ROOT

WRITERS: Final = 50
KILLS: Final = 2
OPEN_FOR_SECONDS: Final = 0.02
"""The longest time that a writer keeps its event uncommitted."""
PAUSE_SECONDS: Final = 0.2
"""The longest pause of a writer."""
ALL: Final = 10_000_000


def write(path: str, writers: int) -> None:
    """Store events in `writers` threads until a kill. Record each committed event in a file."""
    storage = build(Settings.read(os.environ)).storage()
    lock = Lock()

    def write_on(_: int) -> None:
        chance = random.Random()
        while True:
            event = replace(an_event_delivery().event, event_id=EventId(f"evt_{uuid4()}"))

            def note(unit: WriteUnit) -> None:
                unit.events.add(event)  # noqa: B023 - called at once
                time.sleep(chance.uniform(0, OPEN_FOR_SECONDS))
                unit.commit()

            with suppress(ServiceUnavailable):
                storage.transact(note)
                with lock:
                    acknowledged.write(f"{event.event_id}\n")
                    acknowledged.flush()
            time.sleep(chance.uniform(0, PAUSE_SECONDS))

    with Path(path).open("a") as acknowledged, ThreadPoolExecutor(writers) as pool:
        list(pool.map(write_on, range(writers)))


class Followed(NamedTuple):
    """The ids of the events that the reader read, in order, and the faults in this list."""

    read: Sequence[str]
    missed: set[str]
    twice: int
    is_in_one_order: bool


def follow_under_kills(
    storage: Storage, folder: Path, wait: Callable[[Path], None], *, writers: int = WRITERS
) -> Followed:
    """Kill the writers and the service once each, and wait before and after each kill.

    `wait` is called with the file that contains a line for each stored event.
    """
    machines, path, stop = storage.machines, folder / "acknowledged", Event()
    (machine,) = machines.each
    path.touch()
    machines.start()
    writing = _start_writers(machines.url, path, writers)
    try:
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(_follow, machine, machines.token, stop)
            try:
                wait(path)
                writing.kill()
                writing.wait()
                writing = _start_writers(machines.url, path, writers)
                wait(path)
                machine.kill()
                machine.start()
                machine.wait_until_ready()
                wait(path)
            finally:
                writing.kill()
                writing.wait()
                stop.set()
            read = reading.result()
        again = _follow(machine, machines.token, stop)
    finally:
        machine.stop()
    with machines.installation.storage.read() as unit:
        last = unit.events.ends().last.number
        listed = unit.events.between(0, last, EventFilter(), limit=ALL)
    stored = {*path.read_text().split(), *(each.event.event_id for each in listed)}
    return Followed(read, stored - {*read}, len(read) - len({*read}), read == again)


def _start_writers(url: str, path: Path, writers: int) -> subprocess.Popen[bytes]:
    source = f"from tests.entrypoints.reading_events import write; write({str(path)!r}, {writers})"
    environment = {
        "PYTHONPATH": str(ROOT),
        "CARDONFILE_DATABASE_URL": url,
        "CARDONFILE_DATABASE_CONNECTIONS": str(writers),
    }
    return subprocess.Popen([sys.executable, "-c", source], env={**os.environ, **environment})


def _follow(machine: Machine, token: str, stop: Event) -> Sequence[str]:
    """Read from the beginning until the writers have stopped and there are no further events."""
    read: list[str] = []
    after, size = "0", random.Random(1)
    while True:
        is_last = stop.is_set()
        path = f"/api/v1/events?after={after}&size={size.randint(1, 100)}"
        with suppress(OSError, http.client.HTTPException), closing(machine.connect()) as connection:
            connection.request("GET", path, headers={"Authorization": f"bearer {token}"})
            response = connection.getresponse()
            body = json.loads(response.read())
            if response.status == 200:
                read += [each["id"] for each in body["events"]]
                if is_last and body["next"] == after:
                    return read
                after = body["next"]
            elif response.status != 503:
                raise AssertionError(body)


@click.command()
@click.option(
    "--seconds", default=120, show_default=True, help="How many seconds to read on each storage."
)
def main(seconds: int) -> None:
    """Read events while they are written, on each storage, and print the result."""
    structlog.configure(processors=[], logger_factory=structlog.ReturnLoggerFactory())
    is_broken = False
    for name, storage in STORAGES.items():
        with tempfile.TemporaryDirectory() as folder, storage(Path(folder)) as lent:
            followed = follow_under_kills(
                lent, Path(folder), lambda _: time.sleep(seconds / (KILLS + 1))
            )
        click.echo(
            f"{name}: {WRITERS} writers, 1 reader, {KILLS} kills; {len(followed.read)} events read, "
            f"{len(followed.missed)} missed, {followed.twice} twice, "
            f"{'one order' if followed.is_in_one_order else 'another order when read again'}"
        )
        is_broken |= bool(followed.missed or followed.twice or not followed.is_in_one_order)
    raise SystemExit(is_broken)


if __name__ == "__main__":
    main()
