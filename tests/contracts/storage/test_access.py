from __future__ import annotations

from adapters.psp.contract.samples import NOW
from domain.storage import Storage
from tests.builders import an_access_token
from tests.contracts.storage.records import MINUTE


def test_all_access_tokens_are_listed_oldest_first(storage: Storage) -> None:
    late = an_access_token(token_hash="a", issued_at=NOW + MINUTE)
    with storage.write() as unit:
        for token in (late, an_access_token(), an_access_token(token_hash="0")):
            unit.access_tokens.add(token)
        listed = unit.access_tokens.all()
    assert list(listed) == [an_access_token(), an_access_token(token_hash="0"), late]
