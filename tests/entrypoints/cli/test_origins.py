"""`cardonfile installation`, and other commands with a database of another origin."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from domain.installation.installation import Installation
from tests.builders import an_event_endpoint
from tests.databases import committed
from tests.entrypoints.conftest import CommandLine
from tests.programs import free_port

A = {"CARDONFILE_PUBLIC_BASE_URL": "https://a.example"}
B = {"CARDONFILE_PUBLIC_BASE_URL": "https://b.example"}
LOOPBACK = {"CARDONFILE_PUBLIC_BASE_URL": "http://127.0.0.1:8000"}
AN_ID = "6e000000-0000-4000-8000-000000000001"
COMPLAINT = (
    "this database belongs to https://a.example. If the installation has moved, run `cardonfile installation "
    "move`. If the database is a copy, run `cardonfile installation copy`"
)


@pytest.fixture
def at_a(cardonfile: CommandLine) -> CommandLine:
    """Return the command line on a database that works for an origin."""
    with committed(cardonfile.storage) as unit:
        unit.installations.put(Installation(origin="https://a.example"))
    return cardonfile


# Shows F49.
@pytest.mark.parametrize(
    "command",
    [
        ("serve", "--port", str(free_port())),
        ("work",),
        ("reconcile",),
        ("events", "test", AN_ID),
        ("events", "replay", AN_ID),
        ("events", "add", "https://c.example", "--type", "account.stored"),
        ("card", "remove", AN_ID),
        ("card", "compare", "--account", "spa"),
        ("guest", "erase", AN_ID),
        ("session", "cancel", "--caller", "web-store"),
    ],
)
def test_commands_that_may_call_psps_or_endpoints_refuse_a_database_from_another_origin(
    at_a: CommandLine, command: Sequence[str]
) -> None:
    for elsewhere in (B, LOOPBACK):
        assert at_a.refuses(*command, **elsewhere) == COMPLAINT


def test_installation_move_makes_the_database_usable_only_at_the_new_origin(
    at_a: CommandLine,
) -> None:
    assert at_a.succeeds("installation", "move", **B) == (
        "the database belongs to https://b.example\n"
    )

    at_a.succeeds("reconcile", CARDONFILE_LOG_LEVEL="error", **B)
    assert at_a.refuses("reconcile", **A) == COMPLAINT.replace("a.example", "b.example")
    listed = at_a.succeeds("audit", "list")
    assert "installation.moved" in listed
    assert at_a.refuses("installation", "move", **LOOPBACK).startswith("set CARDONFILE_PUBLIC")


@pytest.mark.parametrize("elsewhere", [B, LOOPBACK])
def test_installation_copy_deletes_the_event_endpoints_from_the_copied_database(
    at_a: CommandLine, elsewhere: dict[str, str]
) -> None:
    with committed(at_a.storage) as unit:
        unit.event_endpoints.add(an_event_endpoint())
    assert at_a.refuses("installation", "copy", **A).startswith(
        "this database belongs to https://a.example, and CARDONFILE_PUBLIC_BASE_URL is the same address"
    )

    printed = at_a.succeeds("installation", "copy", **elsewhere)

    assert printed.splitlines()[0].split() == ["endpoints", "1"]
    at_a.succeeds("reconcile", CARDONFILE_LOG_LEVEL="error", **elsewhere)
    with at_a.storage.read() as unit:
        assert unit.event_endpoints.all() == ()
        origin = None if elsewhere is LOOPBACK else "https://b.example"
        assert unit.installations.get() == Installation(origin=origin, is_copy=True)
    assert "installation.copied" in at_a.succeeds("audit", "list")
