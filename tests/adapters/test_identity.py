from __future__ import annotations

from datetime import timedelta

import pytest

from domain.access.token import Identity
from domain.permissions import Permission
from tests.builders import CENTER_ID
from tests.installation import Installation

DAY = timedelta(days=1)


@pytest.fixture
def identity(installation: Installation) -> Identity:
    return installation.container.identity()


def test_a_token_brings_its_caller_back(installation: Installation, identity: Identity) -> None:
    caller = installation.a_caller(Permission.GUESTS_ADD, centers=frozenset({CENTER_ID}))
    token = installation.token_for(caller)

    assert identity.authenticate(token) == caller
    assert identity.authenticate(token + "x") is None
    assert identity.authenticate(token[:-1]) is None
    assert identity.authenticate("") is None


def test_a_token_dies_with_its_time(installation: Installation, identity: Identity) -> None:
    token = installation.token_for(installation.caller, ttl=DAY)
    installation.clock.advance(DAY - timedelta(microseconds=1))
    assert identity.authenticate(token) is not None
    installation.clock.advance(timedelta(microseconds=1))
    assert identity.authenticate(token) is None


def test_of_two_tokens_of_a_caller_only_the_revoked_one_is_refused(
    installation: Installation, identity: Identity
) -> None:
    old, new = (installation.token_for(installation.caller) for _ in range(2))
    installation.container.revoke_token()(old)

    assert identity.authenticate(old) is None
    assert identity.authenticate(new) == installation.caller
