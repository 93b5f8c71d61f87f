from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from adapters.psp_suite.samples import NOW
from domain.storage import Storage
from tests.builders import an_access_token
from tests.contracts.storage.records import MINUTE, add


def test_all_access_tokens_are_listed_oldest_first(storage: Storage) -> None:
    late = an_access_token(token_hash="a", issued_at=NOW + MINUTE)
    with storage.write() as unit:
        add(unit, late, an_access_token(), an_access_token(token_hash="0"))
        listed = unit.access_tokens.all()
    assert list(listed) == [an_access_token(), an_access_token(token_hash="0"), late]


def test_active_tokens_that_expire_are_listed_in_order_of_expiry(storage: Storage) -> None:
    ends = {"late": 3 * MINUTE, "last": 2 * MINUTE, "next": MINUTE, "over": timedelta(0)}
    tokens = {
        name: an_access_token(token_hash=name, expires_at=NOW + wait) for name, wait in ends.items()
    }
    revoked = an_access_token(token_hash="revoked", expires_at=NOW + MINUTE, revoked_at=NOW)
    with storage.write() as unit:
        add(unit, *tokens.values(), revoked)
        found = unit.access_tokens.expiring(NOW, until=NOW + 2 * MINUTE)
    assert list(found) == [tokens["next"], tokens["last"]]


def test_revoking_a_token_twice_keeps_the_time_of_the_first_revocation(storage: Storage) -> None:
    token, other = an_access_token(), an_access_token(token_hash="other")
    with storage.write() as unit:
        add(unit, token, other)
        for time in (NOW + MINUTE, NOW, NOW + 2 * MINUTE):
            unit.access_tokens.revoke(token.token_hash, time)
        assert unit.access_tokens.get(token.token_hash) == replace(token, revoked_at=NOW + MINUTE)
        assert unit.access_tokens.get(other.token_hash) == other


def test_the_time_of_a_tokens_last_use_never_moves_back(storage: Storage) -> None:
    token, other = an_access_token(), an_access_token(token_hash="other")
    with storage.write() as unit:
        add(unit, token, other)
        for time in (NOW, NOW + MINUTE, NOW - MINUTE):
            unit.access_tokens.note_use(token.token_hash, time)
        assert unit.access_tokens.get(token.token_hash) == replace(token, used_at=NOW + MINUTE)
        assert unit.access_tokens.get(other.token_hash) == other
