"""The commands that issue, list and revoke access tokens."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from adapters.identity import OpaqueTokens
from adapters.system import SystemClock
from domain.identifiers import CallerName
from domain.permissions import Caller, Permission
from tests.builders import CENTER_ID, OTHER_CENTER_ID, a_center, an_access_token
from tests.databases import committed
from tests.entrypoints.conftest import CommandLine

ISSUE = ("token", "issue", "--caller", "web-store", "--permission", "guests:add")


def caller_of(cardonfile: CommandLine, token: str) -> Caller | None:
    """Return the caller of a token after the use of the token was written."""
    with ThreadPoolExecutor() as writer:
        identity = OpaqueTokens(storage=cardonfile.storage, clock=SystemClock(), writer=writer)
        found = identity.authenticate(token)
    return found if isinstance(found, Caller) else None


def issue(cardonfile: CommandLine, *options: str) -> str:
    return cardonfile.succeeds(*ISSUE, *options).removesuffix("\n")


def listed(cardonfile: CommandLine) -> list[list[str]]:
    lines = cardonfile.succeeds("token", "list").splitlines()
    assert lines[0].split() == [
        *("PREFIX", "CALLER", "PERMISSIONS", "CENTERS", "ISSUED", "EXPIRES", "USED", "STATE")
    ]
    return [line.split() for line in lines[1:]]


def test_a_token_can_be_limited_to_the_given_centers(cardonfile: CommandLine) -> None:
    with committed(cardonfile.storage) as unit:
        unit.centers.put_many([a_center(), a_center(id=OTHER_CENTER_ID)])

    token = issue(cardonfile, "--center", CENTER_ID, "--center", OTHER_CENTER_ID)

    caller = caller_of(cardonfile, token)
    assert caller is not None
    assert caller.centers == frozenset({CENTER_ID, OTHER_CENTER_ID})
    assert listed(cardonfile)[0][3] == f"{CENTER_ID},{OTHER_CENTER_ID}"
    (shown,) = json.loads(cardonfile.succeeds("token", "list", "--json"))
    assert shown["centers"] == [CENTER_ID, OTHER_CENTER_ID]
    assert datetime.fromisoformat(shown["expires"]).utcoffset() == timedelta()


@pytest.mark.parametrize(
    ("options", "lifetime"),
    [
        ((), timedelta(hours=24)),
        (("--ttl", "60s"), timedelta(minutes=1)),
        (("--ttl", "90m"), timedelta(minutes=90)),
        (("--ttl", "3650d"), timedelta(days=3650)),
    ],
)
def test_an_issued_token_expires_after_the_given_ttl(
    cardonfile: CommandLine, options: tuple[str, ...], lifetime: timedelta
) -> None:
    issue(cardonfile, *options)

    with cardonfile.storage.read() as unit:
        (token,) = unit.access_tokens.all()
    assert token.expires_at - token.issued_at == lifetime


def test_the_token_list_shows_every_token_without_its_hash(cardonfile: CommandLine) -> None:
    expired = an_access_token(expires_at=datetime(2021, 1, 1, tzinfo=UTC))
    with committed(cardonfile.storage) as unit:
        unit.access_tokens.add(expired)
    token = issue(cardonfile, "--permission", "payments:use")
    assert caller_of(cardonfile, token) == Caller(
        name=CallerName("web-store"),
        permissions=frozenset({Permission.GUESTS_ADD, Permission.PAYMENTS_USE}),
    )

    with cardonfile.storage.read() as unit:
        _, stored = unit.access_tokens.all()
    assert stored.used_at is not None
    used = f"{stored.used_at:%Y-%m-%dT%H}:00:00Z"
    assert [(row[0], row[1], *row[-2:]) for row in listed(cardonfile)] == [
        (expired.prefix, expired.caller.name, "-", "expired"),
        (token[:12], "web-store", used, "active"),
    ]
    printed = cardonfile.succeeds("token", "list")
    assert f"{expired.issued_at:%Y-%m-%dT%H:%M:%SZ}" in printed
    for each in (expired, stored):
        assert each.token_hash not in printed


def test_any_unique_prefix_of_a_token_revokes_only_that_token(cardonfile: CommandLine) -> None:
    revoked, kept = issue(cardonfile), issue(cardonfile)
    prefix = revoked[:12]
    only = f"only the prefix {prefix} was compared, because the rest of a token is not stored\n"

    for given, note in ((prefix, ""), (revoked[:14], only), (revoked, "")):
        result = cardonfile.run("token", "revoke", given)
        assert result.stdout == f"revoked {prefix} of web-store\n"
        assert result.stderr == note

    assert caller_of(cardonfile, revoked) is None
    assert caller_of(cardonfile, kept) is not None
    assert [row[-1] for row in listed(cardonfile)] == ["revoked", "active"]


def test_the_token_list_can_be_limited_to_tokens_that_expire_soon(cardonfile: CommandLine) -> None:
    lasting, unused = issue(cardonfile, "--ttl", "15d"), issue(cardonfile, "--ttl", "13d")

    (soon,) = json.loads(cardonfile.succeeds("token", "list", "--expires-within", "14d", "--json"))
    assert (soon["prefix"], soon["used"]) == (unused[:12], None)
    ever = cardonfile.succeeds("token", "list", "--expires-within", "999999999d", "--json")
    assert [each["prefix"] for each in json.loads(ever)] == [unused[:12], lasting[:12]]
