from __future__ import annotations

from datetime import timedelta

import pytest

from adapters.identity.opaque_tokens import OpaqueTokens, TokenAmbiguous, TokenNotFound
from domain.permissions import Permission
from tests.builders import CENTER_ID
from tests.installation import Installation

DAY = timedelta(days=1)


@pytest.fixture
def tokens(installation: Installation) -> OpaqueTokens:
    return installation.container.identity()


def test_a_token_brings_its_caller_back(installation: Installation, tokens: OpaqueTokens) -> None:
    caller = installation.a_caller(Permission.GUESTS_ADD, centers=frozenset({CENTER_ID}))
    token = tokens.issue(caller, ttl=DAY)

    assert tokens.authenticate(token) == caller
    assert tokens.authenticate(token + "x") is None
    assert tokens.authenticate(token[:-1]) is None
    assert tokens.authenticate("") is None


def test_a_token_dies_with_its_time(installation: Installation, tokens: OpaqueTokens) -> None:
    token = tokens.issue(installation.caller, ttl=DAY)
    installation.clock.advance(DAY - timedelta(microseconds=1))
    assert tokens.authenticate(token) is not None
    installation.clock.advance(timedelta(microseconds=1))
    assert tokens.authenticate(token) is None


def test_a_caller_may_have_several_tokens(installation: Installation, tokens: OpaqueTokens) -> None:
    old = tokens.issue(installation.caller, ttl=DAY)
    new = tokens.issue(installation.caller, ttl=DAY)
    tokens.revoke(old)

    assert tokens.authenticate(old) is None
    assert tokens.authenticate(new) is not None


@pytest.mark.parametrize("length", [8, 12, 999])
def test_a_token_is_revoked_by_its_beginning_or_the_whole_of_it(
    installation: Installation, tokens: OpaqueTokens, length: int
) -> None:
    token = tokens.issue(installation.caller, ttl=DAY)

    revoked = tokens.revoke(token[:length])

    assert revoked.revoked_at == installation.clock.now()
    assert tokens.authenticate(token) is None
    installation.clock.advance(DAY)
    assert tokens.revoke(token).revoked_at == revoked.revoked_at


def test_what_names_no_token_or_several_revokes_none(
    installation: Installation, tokens: OpaqueTokens
) -> None:
    issued = [tokens.issue(installation.caller, ttl=DAY) for _ in range(2)]

    with pytest.raises(TokenAmbiguous):
        tokens.revoke("cof_")
    for unknown in ("cof_unknown", issued[0][:20]):
        with pytest.raises(TokenNotFound):
            tokens.revoke(unknown)
    assert all(tokens.authenticate(token) for token in issued)
