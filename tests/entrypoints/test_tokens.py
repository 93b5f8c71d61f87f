"""Access tokens through the command line: issued, listed, revoked."""

from __future__ import annotations

import re
from datetime import timedelta

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.identity.opaque_tokens import OpaqueTokens
from adapters.psp.contract.clock import SettableClock
from adapters.psp.contract.ids import SeededIds
from adapters.psp.contract.samples import GUEST_ID
from adapters.system.clock import SystemClock
from domain.identifiers import CallerName
from domain.permissions import Caller, Permission
from entrypoints import cli
from tests.builders import CENTER_ID, OTHER_CENTER_ID, a_center
from tests.entrypoints.conftest import CommandLine

ISSUE = ("token", "issue", "--caller", "web-store", "--permission", "guests:add")


def identity(cardonfile: CommandLine, *, clock: SettableClock | None = None) -> OpaqueTokens:
    return OpaqueTokens(storage=cardonfile.storage, clock=clock or SystemClock(), ids=SeededIds())


def issue(cardonfile: CommandLine, *options: str) -> str:
    printed = cardonfile.succeeds(*ISSUE, *options)
    assert re.fullmatch(r"cof_[A-Za-z0-9_-]{22,}\n", printed)
    return printed.strip()


def listed(cardonfile: CommandLine) -> list[list[str]]:
    lines = cardonfile.succeeds("token", "list").splitlines()
    assert lines[0].split() == [
        *("PREFIX", "CALLER", "PERMISSIONS", "CENTERS", "ISSUED", "EXPIRES", "STATE")
    ]
    return [line.split() for line in lines[1:]]


def test_an_issued_token_lets_its_caller_in(cardonfile: CommandLine) -> None:
    token = issue(cardonfile, "--permission", "payments:use")

    assert identity(cardonfile).authenticate(token) == Caller(
        name=CallerName("web-store"),
        permissions=frozenset({Permission.GUESTS_ADD, Permission.PAYMENTS_USE}),
    )


def test_a_token_may_be_limited_to_centers(cardonfile: CommandLine) -> None:
    with cardonfile.storage.write() as unit:
        unit.centers.put_many([a_center(), a_center(id=OTHER_CENTER_ID)])
        unit.commit()

    token = issue(cardonfile, "--center", CENTER_ID.upper(), "--center", OTHER_CENTER_ID)

    caller = identity(cardonfile).authenticate(token)
    assert caller is not None
    assert caller.centers == frozenset({CENTER_ID, OTHER_CENTER_ID})
    assert listed(cardonfile)[0][3] == f"{CENTER_ID},{OTHER_CENTER_ID}"


@pytest.mark.parametrize(
    ("options", "lifetime"),
    [
        ((), timedelta(hours=24)),
        (("--ttl", "60s"), timedelta(minutes=1)),
        (("--ttl", "1m"), timedelta(minutes=1)),
        (("--ttl", "36h"), timedelta(hours=36)),
        (("--ttl", "3650d"), timedelta(days=3650)),
    ],
)
def test_a_token_lives_as_long_as_it_was_told(
    cardonfile: CommandLine, options: tuple[str, ...], lifetime: timedelta
) -> None:
    issue(cardonfile, *options)

    (token,) = identity(cardonfile).all()
    assert token.expires_at - token.issued_at == lifetime


@pytest.mark.parametrize(
    "ttl",
    [
        "",
        "24",
        "h",
        "59s",
        "0d",
        "-1h",
        "1.5h",
        "24H",
        " 24h",
        "3651d",
        "1w",
        "\u0662\u0664h",
        "9" * 99 + "d",
        "9" * 12 + "d",
        "9" * 9 + "d",
    ],
)
def test_a_ttl_of_another_form_is_refused(cardonfile: CommandLine, ttl: str) -> None:
    assert cardonfile.refuses(*ISSUE, f"--ttl={ttl}") == (
        "--ttl must look like 90m, 24h or 30d, from 1m to 3650d"
    )
    assert listed(cardonfile) == []


@pytest.mark.parametrize("name", ["", "  ", "x" * 101, "web\nstore", "web\x1b[2J", "\u2028"])
def test_a_caller_needs_a_name_that_can_be_shown(cardonfile: CommandLine, name: str) -> None:
    complaint = cardonfile.refuses(*ISSUE, "--caller", name)

    assert complaint.startswith("--caller must be 1 to 100 characters")
    assert listed(cardonfile) == []


@pytest.mark.parametrize(
    ("center", "expected"),
    [
        ("harbor", "--center must be a UUID"),
        (GUEST_ID, f"--center: there is no center {GUEST_ID}"),
    ],
)
def test_a_token_is_not_limited_to_centers_that_do_not_exist(
    cardonfile: CommandLine, center: str, expected: str
) -> None:
    assert cardonfile.refuses(*ISSUE, "--center", center).startswith(expected)
    assert listed(cardonfile) == []


def test_the_list_shows_every_token_and_never_its_hash(cardonfile: CommandLine) -> None:
    long_ago = identity(cardonfile, clock=SettableClock())
    caller = Caller(name=CallerName("kiosk"), permissions=frozenset(Permission))
    expired = long_ago.issue(caller, ttl=timedelta(minutes=1))
    token = issue(cardonfile)

    assert [(row[0], row[1], row[3], row[-1]) for row in listed(cardonfile)] == [
        (expired[:12], "kiosk", "all", "expired"),
        (token[:12], "web-store", "all", "active"),
    ]
    printed = cardonfile.succeeds("token", "list")
    assert token not in printed
    for each in identity(cardonfile).all():
        assert each.token_hash not in printed
        assert f"{each.issued_at:%Y-%m-%dT%H:%M:%SZ}" in printed


def test_a_revoked_token_lets_nobody_in_and_others_do(cardonfile: CommandLine) -> None:
    revoked, kept = issue(cardonfile), issue(cardonfile)

    for _ in range(2):
        printed = cardonfile.succeeds("token", "revoke", revoked[:12])
        assert printed == f"revoked {revoked[:12]} of web-store\n"

    assert identity(cardonfile).authenticate(revoked) is None
    assert identity(cardonfile).authenticate(kept) is not None
    assert [row[-1] for row in listed(cardonfile)] == ["revoked", "active"]


def test_a_whole_token_can_be_revoked(cardonfile: CommandLine) -> None:
    token = issue(cardonfile)

    cardonfile.succeeds("token", "revoke", token)

    assert identity(cardonfile).authenticate(token) is None


@pytest.mark.parametrize("prefix", ["", "c", "cof_"])
def test_what_every_token_begins_with_names_none(cardonfile: CommandLine, prefix: str) -> None:
    token = issue(cardonfile)

    complaint = cardonfile.refuses("token", "revoke", prefix)

    assert complaint == "PREFIX must be longer than cof_, which begins them all"
    assert identity(cardonfile).authenticate(token) is not None


def test_a_prefix_of_no_token_is_refused(cardonfile: CommandLine) -> None:
    assert cardonfile.refuses("token", "revoke", "cof_none") == "no token begins like this"


def test_a_prefix_of_several_tokens_is_refused(cardonfile: CommandLine) -> None:
    # There are 64 characters to begin with, so two of 65 tokens share theirs.
    caller = Caller(name=CallerName("kiosk"), permissions=frozenset(Permission))
    tokens = OpaqueTokens(storage=cardonfile.storage, clock=SystemClock(), ids=SeededIds())
    beginnings = [tokens.issue(caller, ttl=timedelta(hours=1))[:5] for _ in range(65)]
    shared = next(each for each in beginnings if beginnings.count(each) > 1)

    complaint = cardonfile.refuses("token", "revoke", shared)

    assert complaint == "several tokens begin like this; give more of it"
    assert {row[-1] for row in listed(cardonfile)} == {"active"}


UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


@given(
    st.builds("".join, st.tuples(st.integers(0, 10**10).map(str), st.sampled_from("smhdMw ")))
    | st.text(st.sampled_from("0123456789smhd-+_. \u0663\n"), max_size=6)
)
def test_a_ttl_is_read_if_and_only_if_it_is_a_number_and_a_unit_within_bounds(text: str) -> None:
    number, unit = text[:-1], text[-1:]
    seconds = (
        int(number) * UNITS[unit]
        if number.isascii() and number.isdecimal() and len(number) < 10 and unit in UNITS
        else 0
    )
    if 60 <= seconds <= 3650 * 86_400:
        assert cli._read_ttl(text) == timedelta(seconds=seconds)
    else:
        with pytest.raises(click.ClickException, match="--ttl must look like"):
            cli._read_ttl(text)
