"""`cardonfile audit list` as an operator reads it."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import click
import pytest

from adapters.system import operating_system_user
from tests.builders import CENTER_ID, an_audit_entry
from tests.databases import committed
from tests.entrypoints.conftest import CommandLine


def test_audit_list_describes_each_entry_completely(with_center: CommandLine) -> None:
    cardonfile, me = with_center, operating_system_user()
    assert me.startswith("user:")
    cardonfile.succeeds("configure-payments", CENTER_ID, "--provider", "fake")
    token = cardonfile.succeeds("token", "issue", "--caller", "kiosk", "--permission", "guests:add")

    latest, first = cardonfile.succeeds("audit", "list").splitlines()[1:]
    assert latest.split(None, 4)[1:] == [
        *(me, "token.issued", token[:12], "caller: kiosk, permissions: guests:add")
    ]
    assert first.split(None, 4)[1:4] == [me, "payments.configured", CENTER_ID]
    assert "session_minutes: none → 30" in first

    asked = ("audit", "list", "--since", "1h", "--about", token[:12], "--json")
    (shown,) = json.loads(cardonfile.succeeds(*asked))
    assert datetime.fromisoformat(shown.pop("time")).utcoffset() == timedelta()
    assert shown == {
        "actor": me,
        "action": "token.issued",
        "about": token[:12],
        "details": {"caller": "kiosk", "permissions": "guests:add"},
    }
    by_me = json.loads(cardonfile.succeeds("audit", "list", "--by", me.partition(":")[2], "--json"))
    assert [each["actor"] for each in by_me] == [me, me]
    assert json.loads(cardonfile.succeeds("audit", "list", "--by", "kiosk", "--json")) == []
    cut = cardonfile.run("audit", "list", "--limit", "1")
    assert [line.split() for line in cut.stdout.splitlines()[1:]] == [latest.split()]
    assert cut.stderr == "only 1 are listed, and there may be more; see --limit\n"
    assert json.loads(cardonfile.succeeds("audit", "list", "--since", "0s", "--json")) == []
    since_ever = cardonfile.succeeds("audit", "list", "--since", "999999999d", "--json")
    assert len(json.loads(since_ever)) == 2


def test_a_slow_reader_of_the_audit_list_does_not_delay_an_erasure(
    cardonfile: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with committed(cardonfile.storage) as unit:
        unit.audit_trail.add(an_audit_entry())
    overwritten: list[bool] = []
    monkeypatch.setattr(
        click, "echo", lambda *_: overwritten.append(cardonfile.storage.overwrite_deleted())
    )
    cardonfile.succeeds("audit", "list")

    assert overwritten == [True, True]
