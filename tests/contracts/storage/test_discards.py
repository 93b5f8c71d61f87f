from __future__ import annotations

from functools import partial

from adapters.psp_suite.concurrency import at_once
from adapters.psp_suite.samples import MERCHANT_ACCOUNT, NOW
from domain.identifiers import CardToken, MerchantAccount, ProviderName
from domain.storage import Storage, WriteUnit
from tests.builders import PROVIDER, a_discard, an_account
from tests.contracts.storage.records import DAY, add


def test_adding_a_second_discard_of_a_token_does_not_change_the_first_discard(
    storage: Storage,
) -> None:
    begun = a_discard(begun_at=NOW, unanswered_since=NOW, due_at=NOW + DAY)
    with storage.write() as unit:
        add(unit, begun, a_discard())
        assert unit.discards.get(PROVIDER, MERCHANT_ACCOUNT, CardToken("token-1")) == begun


def test_removing_a_discard_keeps_the_discards_of_other_tokens(storage: Storage) -> None:
    others = [
        a_discard(token=CardToken("token-2")),
        a_discard(merchant_account=MerchantAccount("other")),
        a_discard(provider=ProviderName("other")),
    ]
    with storage.write() as unit:
        add(unit, *[a_discard(), *others])
        unit.discards.remove(a_discard(begun_at=NOW))
        left = [
            unit.discards.get(each.provider, each.merchant_account, each.token)
            for each in [a_discard(), *others]
        ]
    assert left == [None, *others]


def test_updating_a_removed_discard_does_not_restore_it(storage: Storage) -> None:
    with storage.write() as unit:
        unit.discards.add(a_discard())
        for _ in range(2):
            unit.discards.remove(a_discard())
        unit.discards.update(a_discard(begun_at=NOW))
        assert unit.discards.get(PROVIDER, MERCHANT_ACCOUNT, CardToken("token-1")) is None


# Shows I7.
def test_concurrent_units_do_not_store_a_card_token_that_another_unit_discards(
    storage: Storage,
) -> None:
    def discard(unit: WriteUnit, number: int) -> bool:
        token = CardToken(f"token-{number}")
        if unit.accounts.is_held(PROVIDER, MERCHANT_ACCOUNT, token):
            return False
        unit.discards.add(a_discard(token=token))
        unit.commit()
        return True

    def store(unit: WriteUnit, number: int) -> bool:
        token = CardToken(f"token-{number}")
        if unit.discards.get(PROVIDER, MERCHANT_ACCOUNT, token) is not None:
            return False
        unit.accounts.add(an_account(number))
        unit.commit()
        return True

    def discard_or_store(each: int) -> list[bool]:
        work = (discard, store)[each % 2]
        return [
            storage.transact(partial(work, number=number))
            for number in range(each // 2 * 10, each // 2 * 10 + 10)
        ]

    done = at_once(4, discard_or_store)
    for discarded, stored in zip(done[::2], done[1::2], strict=True):
        assert [sum(both) for both in zip(discarded, stored, strict=True)] == [1] * 10
