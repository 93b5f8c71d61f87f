"""Tests that every way to authenticate must pass."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias

import pytest
from typing_extensions import override

from domain.access.token import Identity
from domain.identifiers import CenterId
from domain.permissions import Caller, Permission
from tests.builders import CENTER_ID, OTHER_CENTER_ID, a_center
from tests.identity_provider import IdentityProvider, identity_provider
from tests.installation import Installation

EVERY_PERMISSION = tuple(Permission)
Permissions: TypeAlias = Collection[Permission]
Centers: TypeAlias = Collection[CenterId] | None


class Way(ABC):
    """One way to authenticate: the `identity` under test, and the tokens that it accepts."""

    def __init__(self, installation: Installation, provider: IdentityProvider) -> None:
        self.installation, self.provider = installation, provider

    @property
    def identity(self) -> Identity:
        return self.installation.container.identity()

    @abstractmethod
    def token(self, permissions: Permissions = EVERY_PERMISSION, centers: Centers = None) -> str:
        """Return a valid token of a caller."""

    @abstractmethod
    def expired_token(self) -> str:
        """Return an expired token."""


class Opaque(Way):
    @override
    def token(self, permissions: Permissions = EVERY_PERMISSION, centers: Centers = None) -> str:
        named = None if centers is None else frozenset(centers)
        return self.installation.token_for(self.installation.a_caller(*permissions, centers=named))

    @override
    def expired_token(self) -> str:
        token = self.token()
        self.installation.clock.advance(timedelta(hours=24))
        return token


class JsonWeb(Way):
    @override
    def token(self, permissions: Permissions = EVERY_PERMISSION, centers: Centers = None) -> str:
        named = ["*"] if centers is None else list(centers)
        return self.provider.token({"permissions": list(permissions), "centers": named})

    @override
    def expired_token(self) -> str:
        return self.provider.token({"exp": int(time.time()) - 60})


@pytest.fixture(params=[Opaque, JsonWeb])
def way(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Way]:
    with identity_provider() as provider:
        installation = provider.installation(tmp_path, CARDONFILE_JWT_CENTERS_CLAIM="centers")
        installation.has_center(a_center(id=OTHER_CENTER_ID))
        yield request.param(installation, provider)
        installation.close()


def test_a_caller_has_exactly_the_permissions_of_its_token(way: Way) -> None:
    for permissions in ((Permission.GUESTS_ADD,), EVERY_PERMISSION):
        caller = way.identity.authenticate(way.token(permissions=permissions))
        assert isinstance(caller, Caller)
        assert caller.permissions == frozenset(permissions)


def test_a_caller_is_limited_to_the_centers_of_its_token(way: Way) -> None:
    for centers in (None, (CENTER_ID,), (CENTER_ID, OTHER_CENTER_ID)):
        caller = way.identity.authenticate(way.token(centers=centers))
        assert isinstance(caller, Caller)
        assert caller.centers == (None if centers is None else frozenset(centers))


def test_a_caller_has_the_same_name_with_each_of_its_tokens(way: Way) -> None:
    callers = [way.identity.authenticate(way.token(centers=each)) for each in (None, (CENTER_ID,))]
    names = {caller.name for caller in callers if isinstance(caller, Caller)}

    assert len(names) == 1


def test_an_expired_token_is_refused(way: Way) -> None:
    assert way.identity.authenticate(way.expired_token()) == "expired"


def test_a_token_with_one_changed_character_is_refused(way: Way) -> None:
    token = way.token()
    for at in (0, len(token) // 2, -6):
        other = "A" if token[at] != "A" else "B"
        changed = token[:at] + other + token[at + 1 if at >= 0 else len(token) + at + 1 :]
        assert isinstance(way.identity.authenticate(changed), str)


@pytest.mark.parametrize(
    "text",
    ["", "..", "a.b.c", "cof_", "\0", "e30.e30.e30", "a" * 16_000, "é.ü.ß"],
)
def test_refusing_a_malformed_token_does_not_reveal_the_token(way: Way, text: str) -> None:
    why = way.identity.authenticate(text)

    assert isinstance(why, str)
    assert len(text) < 3 or text not in why
