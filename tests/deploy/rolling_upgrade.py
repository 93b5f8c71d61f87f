"""The release before this one, replaced while clients add cards, on one database and fake PSP.

`make test-upgrade` runs it, and no other target: it takes the earlier code from git's history, which a
shallow clone lacks, and runs it with the packages of today. 0.1.0 had SQLite only.
"""

from __future__ import annotations

import io
import subprocess
import zipfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any, Final

from domain.permissions import Permission
from tests.builders import CENTER_ID
from tests.entrypoints.load import (
    CLIENTS,
    GUESTS,
    Aftermath,
    Clients,
    Machine,
    Machines,
    look_at,
    own_guests,
)
from tests.installation import Installation
from tests.programs import ROOT, RUNTIME, free_port
from tests.waiting import wait_until

RELEASE: Final = "e295e9937c71922e4aa617311e3a99ca0ed2a8ef"
"""The last commit of 0.1.0."""

PROGRAM: Final = RUNTIME + 'from entrypoints.cli import main; main(prog_name="cardonfile")'
ANSWERS: Final = 100
"""How many requests a machine answers in each step."""


class UpgradedMachines(Machines):
    """A machine with the earlier release, and one with this, on the database that the first made."""

    def __init__(self, folder: Path) -> None:
        tree, file = folder / "release", folder / "upgraded.db"
        archive = subprocess.run(
            ["git", "archive", "--format=zip", RELEASE],
            cwd=ROOT,
            capture_output=True,
            check=False,
        )
        assert archive.returncode == 0, f"this needs git's history: {archive.stderr!r}"
        with zipfile.ZipFile(io.BytesIO(archive.stdout)) as files:
            files.extractall(tree)
        self.url = f"sqlite:///{file}"
        self.psp_database = folder / "fake-psp.db"
        ports = [free_port(), free_port()]
        self._folder = folder
        self._environment: dict[str, Any] = {  # Any, because they are keywords too
            "CARDONFILE_DATABASE_URL": self.url,
            "CARDONFILE_FAKE_PSP_DATABASE": str(self.psp_database),
            "CARDONFILE_PUBLIC_BASE_URL": f"http://127.0.0.1:{ports[0]}",
            "CARDONFILE_LOG_FORMAT": "json",
        }
        today = {**self._environment, "CARDONFILE_CARD_TESTING_LIMITS": "off"}
        earlier = {**self._environment, "PYTHONPATH": str(tree)}
        self.each = [Machine(folder, ports[0], earlier), Machine(folder, ports[1], today)]
        self._fill(self.each[0])

    def _fill(self, machine: Machine) -> None:
        """Have the earlier release make the database, a center, guests and a token."""
        guests = {*GUESTS, *(each for number in range(CLIENTS) for each in own_guests(number))}
        centers_file, guests_file = self._folder / "centers.csv", self._folder / "guests.csv"
        centers_file.write_text(f"id,name\n{CENTER_ID},Harbor Spa\n")
        rows = "".join(f"{guest_id},Ada,Sample,ada@example.com\n" for guest_id in guests)
        guests_file.write_text(f"id,first_name,last_name,email\n{rows}")
        allowed = (Permission.GUESTS_ADD, Permission.GUESTS_EDIT, Permission.GUESTS_VIEW)
        permissions = [f"--permission={each}" for each in (*allowed, Permission.GUESTS_DELETE)]
        for command in (
            ("migrate",),
            ("import", "centers", str(centers_file)),
            ("import", "guests", str(guests_file)),
            ("configure-payments", CENTER_ID, "--provider", "fake"),
        ):
            machine.command(*command, program=PROGRAM)
        self.token = machine.command(
            "token", "issue", "--caller", "web", *permissions, program=PROGRAM
        )

    def look_inside(self) -> None:
        """Open what this release has migrated. All machines must have stopped."""
        self.installation = Installation(self._folder, **self._environment)


# Shows F10.
def test_a_rolling_upgrade_refuses_no_request(tmp_path: Path) -> None:
    machines = UpgradedMachines(tmp_path)
    earlier, today = machines.each
    with closing(Clients(machines, "upgrade", CLIENTS // 2)) as clients:
        stop = Event()

        def goes_on(*numbers: int) -> None:
            enough = {number: clients.answered_by(number) + ANSWERS for number in numbers}
            wait_until(lambda: all(clients.answered_by(each) >= enough[each] for each in enough))

        earlier.start(PROGRAM)
        earlier.wait_until_ready()
        with clients.doing(lambda each: each.add_cards_until(stop.is_set, chooses=False), stop):
            goes_on(0)
            today.command("migrate")
            goes_on(0)
            today.start()
            today.wait_until_ready()
            goes_on(0, 1)
            assert earlier.stop() == 0
            goes_on(1)
        again = earlier.start(PROGRAM)
        assert again.ends() == 1
        assert "made by a newer release" in again.log.read_text()
    assert today.stop() == 0

    assert (clients.unexpected, clients.fates["refused"]) == ([], 0)
    assert (earlier.faults(), today.faults()) == ([], [])
    machines.look_inside()
    with closing(machines):
        # 0.1.0 chooses no default card.
        assert replace(look_at(machines, clients), without_one_default=()) == Aftermath()
