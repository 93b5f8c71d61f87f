from __future__ import annotations

from datetime import timedelta

from adapters.psp_suite.concurrency import at_once
from adapters.psp_suite.samples import NOW, TOKEN_ID, a_uuid
from domain.identifiers import CallerName, TokenId
from domain.sessions.session import CardSession
from domain.storage import Storage, WriteUnit
from tests.builders import CALLER, a_session
from tests.contracts.storage.records import DAY, OTHER_TOKEN_ID


def claim(unit: WriteUnit, token_id: TokenId, hours: int = 0) -> TokenId:
    now = NOW + timedelta(hours=hours)
    return unit.idempotency_keys.claim(CALLER, "key", token_id, now=now, since=now - DAY)


# Shows F1.
def test_an_idempotency_key_belongs_to_the_session_that_claimed_it_first(storage: Storage) -> None:
    with storage.write() as unit:
        assert claim(unit, TOKEN_ID) == TOKEN_ID
        assert claim(unit, OTHER_TOKEN_ID, hours=23) == TOKEN_ID
        keys = unit.idempotency_keys
        assert keys.get(CALLER, "key", since=NOW - DAY) == TOKEN_ID
        assert keys.get(CallerName("kiosk"), "key", since=NOW - DAY) is None
        assert keys.get(CALLER, "KEY", since=NOW - DAY) is None
    with storage.read() as reading:
        assert reading.idempotency_keys.get(CALLER, "key", since=NOW - DAY) is None


def test_concurrent_claims_of_an_idempotency_key_all_return_the_same_session(
    storage: Storage,
) -> None:
    def add(number: int) -> CardSession | None:
        mine = a_session(token_id=TokenId(a_uuid(number)))

        def claim_and_add(unit: WriteUnit) -> CardSession | None:
            winner = claim(unit, mine.token_id)
            if winner != mine.token_id:
                return unit.sessions.get(winner)
            unit.sessions.add(mine)
            unit.commit()
            return mine

        return storage.transact(claim_and_add)

    first, *others = at_once(4, add)
    assert first is not None
    assert others == [first] * 3


def test_an_expired_idempotency_key_can_be_claimed_again(storage: Storage) -> None:
    with storage.write() as unit:
        claim(unit, TOKEN_ID)
        assert unit.idempotency_keys.get(CALLER, "key", since=NOW) is None
        assert claim(unit, OTHER_TOKEN_ID, hours=24) == OTHER_TOKEN_ID
        assert unit.idempotency_keys.get(CALLER, "key", since=NOW) == OTHER_TOKEN_ID
