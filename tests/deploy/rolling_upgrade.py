"""Earlier releases run beside this release and are replaced by it, on one database.

Only `make test-upgrade` runs these tests, because they take the earlier code from git's history,
which a shallow clone lacks. The earlier code runs with the current packages. 0.1.0 supports only
SQLite.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import zipfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any, Final

from domain.permissions import Permission
from domain.sessions.end import SessionStatus
from tests.builders import CENTER_ID
from tests.domain.agreements.bookings import agree, agreements, started, takes_agreements
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
from tests.programs import ROOT, RUNTIME, SERVE, free_port
from tests.waiting import wait_until

RELEASE: Final = "e295e9937c71922e4aa617311e3a99ca0ed2a8ef"
"""The last commit of 0.1.0."""
RELEASE_0_2: Final = "c7d62bf0ccbe70be8c0a1d50f669fde148c5aa99"
"""The last commit of 0.2.0."""

PROGRAM: Final = RUNTIME + 'from entrypoints.cli import main; main(prog_name="cardonfile")'
ANSWERS: Final = 100
"""How many requests a machine answers in each step."""


SETTLE: Final = (
    RUNTIME
    + """
import os
from entrypoints.container import build
from entrypoints.settings import Settings

container = build(Settings.read(os.environ))
container.storage().check()
print("ready", flush=True)
container.settle_session()(input())
"""
)
"""Opens the database, reads the token of a session from standard input, and settles the session."""


def code_of(release: str, folder: Path) -> str:
    """Write the code of an earlier release into a new folder, and return its path."""
    archive = subprocess.run(
        ["git", "archive", "--format=zip", release], cwd=ROOT, capture_output=True, check=False
    )
    assert archive.returncode == 0, f"this needs git's history: {archive.stderr!r}"
    with zipfile.ZipFile(io.BytesIO(archive.stdout)) as files:
        files.extractall(folder)
    return str(folder)


def settings_of(folder: Path, port: int) -> dict[str, Any]:  # Any, because they are keywords too
    """Return the settings of a service whose database is in a folder."""
    return {
        "CARDONFILE_DATABASE_URL": f"sqlite:///{folder / 'upgraded.db'}",
        "CARDONFILE_FAKE_PSP_DATABASE": str(folder / "fake-psp.db"),
        "CARDONFILE_PUBLIC_BASE_URL": f"http://127.0.0.1:{port}",
    }


class UpgradedMachines(Machines):
    """A machine with the earlier release and a machine with this release, on one database."""

    def __init__(self, folder: Path) -> None:
        tree = code_of(RELEASE, folder / "release")
        ports = [free_port(), free_port()]
        self._folder = folder
        self._environment = {**settings_of(folder, ports[0]), "CARDONFILE_LOG_FORMAT": "json"}
        self.url = self._environment["CARDONFILE_DATABASE_URL"]
        self.psp_database = Path(self._environment["CARDONFILE_FAKE_PSP_DATABASE"])
        today = {**self._environment, "CARDONFILE_CARD_TESTING_LIMITS": "off"}
        earlier = {**self._environment, "PYTHONPATH": tree}
        self.each = [Machine(folder, ports[0], earlier), Machine(folder, ports[1], today)]
        self._fill(self.each[0])

    def _fill(self, machine: Machine) -> None:
        """Let the earlier release create the database, a center, guests and a token."""
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
        """Open the database that this release has migrated. All machines must have stopped."""
        self.installation = Installation(self._folder, **self._environment)


# Shows F10.
def test_no_request_fails_during_a_rolling_upgrade(tmp_path: Path) -> None:
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


def test_this_release_completes_the_agreement_of_a_booking_that_release_0_2_settled(
    tmp_path: Path,
) -> None:
    environment = settings_of(tmp_path, 8000)
    earlier = {**environment, "PYTHONPATH": code_of(RELEASE_0_2, tmp_path / "release")}
    migrated = Machine(tmp_path, free_port(), earlier).command("migrate", program=SERVE)
    assert "m006" in migrated
    with subprocess.Popen(
        [sys.executable, "-c", SETTLE],
        cwd=tmp_path,
        env={**os.environ, **earlier},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        Machine(tmp_path, free_port(), environment).command("migrate")
        installation = Installation(tmp_path, **environment)
        takes_agreements(installation)
        session = started(installation)
        agree(installation, session)
        installation.type_card(session)
        process.communicate(session.token_id)
    assert process.returncode == 0

    settled = installation.session(session.token_id)
    (account,) = installation.accounts()
    assert (settled.status, account.keep_until) == (SessionStatus.COMPLETED, None)
    assert settled.agreement == session.agreement
    assert agreements(installation, account) == []
    assert installation.container.complete_agreements()() == []
    (agreement,) = agreements(installation, account)
    (account,) = installation.accounts()
    assert account.keep_until == agreement.kept_until
    (consent,) = installation.consents(account)
    assert consent.text == agreement.shown.text
    installation.close()
