"""A running service while its disk is full or fails, or while another process writes."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from adapters.psp_suite.samples import GUEST_ID
from tests.adapters.http.api import ACCOUNTS, GOOD_BODY
from tests.entrypoints.load import (
    Added,
    Aftermath,
    Client,
    Clients,
    Machine,
    Machines,
    look_at,
    one_machine_on_sqlite,
    records_of,
)
from tests.entrypoints.syncs import calls_on_sqlite, syncs_on_postgresql
from tests.entrypoints.torture import damage_of
from tests.installation import REDIRECT_URI
from tests.programs import SERVE
from tests.system_calls import SYNCS, WRITES, SystemCalls

UNAVAILABLE = {
    "success": False,
    "error": {"code": 503, "message": "Service temporarily unavailable"},
}


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    """Return a machine on an SQLite file, not started yet."""
    with closing(one_machine_on_sqlite(tmp_path)) as machines:
        yield machines


def add_cards(client: Client, number: int) -> None:
    """Add `number` cards, some of them through the whole flow."""
    enough = len(client.added) + number
    client.add_cards_until(lambda: len(client.added) >= enough)


def try_to_add_card(machines: Machines) -> tuple[int, object]:
    """Send a valid add-card request. Return the status and the body of the response."""
    machine = machines.each[0]
    headers = {"Authorization": f"bearer {machines.token}", "Content-Type": "application/json"}
    with closing(machine.connect()) as connection:
        connection.request("POST", ACCOUNTS, json.dumps(GOOD_BODY), headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())


def statuses(machine: Machine) -> tuple[int, int]:
    """Return the statuses of the liveness check and the readiness check."""
    return machine.status("/healthz"), machine.status("/readyz")


# Shows F7.
def test_each_response_is_sent_after_its_commit_was_synced_to_disk(tmp_path: Path) -> None:
    calls = calls_on_sqlite(tmp_path, writes=20)

    # Write, sync, respond, in this order for each request. A thread that serves no request may write
    # at any time.
    responders = {call.thread for call in calls if call.name == "sendto"}
    story = "".join(
        "a" if call.name == "sendto" else "s" if call.name in SYNCS else "w"
        for call in calls
        if call.name == "sendto" or (call.file == "cards.db-wal" and call.thread in responders)
    )
    assert re.fullmatch("((w+s)+a+){20}", story)


# Shows F7.
def test_postgresql_syncs_its_log_to_disk_before_each_response(tmp_path: Path) -> None:
    assert syncs_on_postgresql(tmp_path, writes=20) >= 20


# Shows F8.
def test_requests_get_the_status_503_while_the_disk_is_full_or_fails(machines: Machines) -> None:
    (machine,), clients = machines.each, Clients(machines, "disk", 1)
    (client,) = clients.each
    with closing(clients):
        with SystemCalls() as calls:
            program = machine.start(calls.source(SERVE))
            calls.attach()
            machine.wait_until_ready()
            add_cards(client, 4)

            for failing, error in ((WRITES, errno.ENOSPC), (SYNCS, errno.EIO)):
                with calls.failing(failing, error):
                    assert try_to_add_card(machines) == (503, UNAVAILABLE)
                    # Webhooks may have stored a card until this response.
                    before = records_of(machines.url)
                    assert try_to_add_card(machines) == (503, UNAVAILABLE)
                    # All earlier sessions can be read, also by their idempotency key.
                    for added in client.added:
                        client.ask_again(added)
                    assert statuses(machine) == (200, 503)
                    assert records_of(machines.url) == before
                # The same process recovers without a restart.
                assert statuses(machine) == (200, 200)
                add_cards(client, 4)
            told = {str(line["cause"]) for line in program.lines("service_unavailable")}
            assert {each.rpartition("cards.db: ")[2] for each in told} == {
                "database or disk is full",
                "disk I/O error",
            }
            assert "Traceback" not in program.log.read_text()

            # A crash during the failure.
            with calls.failing(SYNCS, errno.EIO):
                assert try_to_add_card(machines) == (503, UNAVAILABLE)
                machine.kill()
            # A commit that could not be synced may have reached the disk all the same, as a whole.
            client.given_up.append(Added(guest_id=GUEST_ID, key=None, redirect_uri=REDIRECT_URI))
        machine.start()
        machine.wait_until_ready()
        for added in client.added:
            client.ask_again(added)
        add_cards(client, 4)
        files = (machines.installation.database, machines.psp_database)
        assert [each for file in files for each in damage_of(file)] == []
        assert machine.stop() == 0
    assert clients.unexpected == []
    assert machine.faults() == []
    assert look_at(machines, clients) == Aftermath()
