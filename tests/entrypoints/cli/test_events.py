"""`cardonfile events` as an operator uses it, with a receiver that verifies signatures."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from standardwebhooks import WebhookVerificationError

from adapters.system import RandomIds
from adapters.traces import TracesOfThreads
from domain.cards.note_account_event import note_account_event
from domain.events.event import EventType
from domain.events.note_event import NoteEvent
from tests.adapters.events.receiver import read_event
from tests.builders import a_center, an_account
from tests.databases import audit_trail, change_by_hand, committed
from tests.entrypoints.conftest import CommandLine
from tests.event_receiver import EventReceiver

LOOPBACK = {"CARDONFILE_EVENT_NETWORKS": "127.0.0.0/8"}


def a_card_is_stored(cardonfile: CommandLine) -> None:
    with committed(cardonfile.storage) as unit:
        unit.centers.put_many([a_center()])
        note_account_event(
            unit,
            NoteEvent(ids=RandomIds(), traces=TracesOfThreads(), psps={}),
            EventType.ACCOUNT_STORED,
            an_account(),
            now=datetime.now(UTC),
        )


def row(cardonfile: CommandLine, *command: str) -> list[str]:
    """Return the cells of the only row that a list shows."""
    _, only = cardonfile.succeeds("events", *command).splitlines()
    return only.split()


def test_events_list_shows_other_endpoints_if_one_endpoint_is_unreadable(
    cardonfile: CommandLine,
) -> None:
    for host in ("a", "b"):
        cardonfile.run("events", "add", f"https://{host}.example", "--type", "account.stored")
    with cardonfile.storage.read() as unit:
        unreadable, readable = (each.endpoint_id for each in unit.event_endpoints.all())
    change_by_hand(
        cardonfile.storage,
        f"UPDATE event_endpoints SET secrets = '{{}}' WHERE endpoint_id = '{unreadable}'",
    )

    listed = cardonfile.run("events", "list")
    assert [line.split()[0] for line in listed.stdout.splitlines()[1:]] == [readable]
    assert f"event='record_unreadable' table='event_endpoints' key='{unreadable}'" in listed.stderr
    assert cardonfile.refuses("events", "remove", unreadable) == (
        f"a record cannot be decoded (event_endpoints {unreadable}): use the release that wrote it"
    )


# Shows S25.
def test_an_endpoint_that_is_added_receives_events_until_it_is_removed(
    cardonfile: CommandLine,
) -> None:
    with EventReceiver() as receiver:
        added = cardonfile.run(
            "events", "add", receiver.url, "--type", "account.stored", **LOOPBACK
        )
        secret = added.stdout.strip()
        endpoint, url, *_, state = row(cardonfile, "list")
        assert (url, state) == (receiver.url, "active")
        assert row(cardonfile, "list")[-4:-1] == ["0", "0", "-"]
        assert added.stderr == f"added {endpoint}; its secret is not shown again:\n"
        a_card_is_stored(cardonfile)
        assert row(cardonfile, "list")[-4:-1] == ["1", "0", "-"]

        done = cardonfile.run("reconcile", **LOOPBACK)
        assert done.stdout.splitlines()[0].endswith(" delivered 1 events")
        (first,) = receiver.received
        assert read_event(secret, first.body, dict(first.headers))["type"] == "account.stored"

        event = row(cardonfile, "deliveries")
        assert [event[0], event[4:]] == [first.event_id, ["delivered", "1", "-", "204"]]
        (listed,) = json.loads(cardonfile.succeeds("events", "list", "--json"))
        assert (listed["pending"], listed["failed"]) == (0, 0)
        assert listed["last_success"] > listed["added"]
        rolled = cardonfile.succeeds("events", "roll-secret", endpoint).strip()
        replayed = cardonfile.succeeds("events", "replay", first.event_id)
        assert replayed == f"{first.event_id} will be sent to 1 endpoint\n"
        cardonfile.run("reconcile", **LOOPBACK)
        second = receiver.received[1]
        for each in (secret, rolled):
            assert read_event(each, second.body, dict(second.headers))
        with pytest.raises(WebhookVerificationError):
            read_event(rolled, first.body, dict(first.headers))

    removed = cardonfile.succeeds("events", "remove", endpoint)
    assert removed == f"removed {endpoint}, {receiver.url}\n"


def test_events_test_shows_the_response_from_the_endpoint(cardonfile: CommandLine) -> None:
    with EventReceiver() as receiver:
        cardonfile.run("events", "add", receiver.url, "--type", "account.stored", **LOOPBACK)
        endpoint, *_ = row(cardonfile, "list")
        sent = cardonfile.run("events", "test", endpoint, **LOOPBACK)
        assert sent.stdout.startswith("the endpoint responded with 204 after ")
        receiver.status = 401
        refused = cardonfile.refuses("events", "test", endpoint, **LOOPBACK)
        assert refused.startswith("the endpoint responded with 401 after ")
        assert refused.endswith("; expected a 2xx status")
        not_public = "the event was not delivered: not a public address: 127.0.0.1 (see CARDONFILE_EVENT_NETWORKS)"
        assert cardonfile.refuses("events", "test", endpoint) == not_public


def test_earlier_events_can_be_replayed_to_an_endpoint_that_subscribed_later(
    cardonfile: CommandLine,
) -> None:
    a_card_is_stored(cardonfile)
    cardonfile.run("events", "add", "https://a.example", "--type", "session.failed")
    cardonfile.run("events", "add", "https://b.example", "--type", "account.stored")
    a_card_is_stored(cardonfile)
    first, second = json.loads(cardonfile.succeeds("events", "list", "--json"))
    updated = cardonfile.succeeds("events", "update", first["endpoint"], "--type", "account.stored")
    assert updated == f"{first['endpoint']} receives account.stored\n"

    replayed = cardonfile.succeeds("events", "replay", "--since", "1h")
    assert replayed == "stored events: 1, deliveries that are due now: 2\n"
    only = ("events", "replay", "--since", "1h", "--endpoint")
    assert cardonfile.succeeds(*only, second["endpoint"]).endswith("are due now: 1\n")
    actions = [each.action for each in audit_trail(cardonfile.storage)]
    assert actions[:3] == ["events.replayed", "events.replayed", "endpoint.updated"]
    # Now no endpoint is subscribed.
    for each in (first, second):
        cardonfile.succeeds("events", "update", each["endpoint"], "--type", "session.failed")
    (event, *_) = json.loads(cardonfile.succeeds("events", "deliveries", "--json"))
    refused = cardonfile.refuses("events", "replay", event["event"])
    assert refused.startswith("no endpoint receives events of this type now, so evt_")


def test_no_event_is_sent_to_an_endpoint_at_a_private_address(cardonfile: CommandLine) -> None:
    with EventReceiver() as receiver:
        added = cardonfile.run("events", "add", receiver.url, "--type", "account.stored")
        not_public = "not a public address: 127.0.0.1 (see CARDONFILE_EVENT_NETWORKS)"
        assert added.stderr.splitlines()[1:] == [
            f"Warning: with the current settings, events cannot be sent there: {not_public}"
        ]
        a_card_is_stored(cardonfile)
        cardonfile.run("reconcile")
        assert receiver.received == []
    (_, listed) = cardonfile.succeeds("events", "deliveries").splitlines()
    assert listed.endswith(not_public)
    assert cardonfile.succeeds("events", "deliveries", "--failed").count("\n") == 1


def test_adding_an_invalid_endpoint_is_refused_in_one_sentence(cardonfile: CommandLine) -> None:
    cardonfile.run("events", "add", "https://shop.example", "--type", "session.failed")
    public = {"CARDONFILE_PUBLIC_BASE_URL": "https://cards.example"}
    for url, said in (
        ("https://shop.example", "URL must be a URL that has not been added yet"),
        ("https://user:secret@shop.example", "URL must be an https address in ASCII, without "),
        ("http://shop.example", "URL must be an https address in ASCII, without user name, "),
    ):
        refused = cardonfile.refuses("events", "add", url, "--type", "session.failed", **public)
        assert refused.startswith(said)
        assert "secret" not in refused
