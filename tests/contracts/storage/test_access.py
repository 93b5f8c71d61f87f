from __future__ import annotations

from dataclasses import replace

from adapters.psp_suite.samples import NOW
from domain.storage import Storage
from tests.builders import an_access_token
from tests.contracts.storage.records import MINUTE, add


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
