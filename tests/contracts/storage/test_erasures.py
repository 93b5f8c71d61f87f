"""Erasures of guests, and what they delete."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from adapters.psp.contract.samples import (
    GUEST_ID,
    MERCHANT_ACCOUNT,
    NOW,
    OTHER_GUEST_ID,
    TOKEN_ID,
    a_uuid,
)
from domain.erasure.erasure import Erasure
from domain.identifiers import CardToken, GuestId, GuestReference, MerchantAccount, PspAccount
from domain.storage import AlreadyStored, Storage
from tests.builders import (
    OTHER_CENTER_ID,
    PROVIDER,
    a_discard,
    a_guest,
    a_psp_guest,
    a_session,
    an_evidence,
)
from tests.contracts.storage.records import OTHER_TOKEN_ID

OTHER_ACCOUNT = MerchantAccount("other")
ERASURE = Erasure(guest_id=GUEST_ID, erased_at=NOW, due_at=NOW)


def store(storage: Storage, *erasures: Erasure) -> None:
    with storage.write() as unit:
        for erasure in erasures:
            unit.erasures.add(erasure)
        unit.commit()


def erasure_of(number: int, due_at: datetime | None) -> Erasure:
    return replace(ERASURE, guest_id=GuestId(a_uuid(900 + number)), due_at=due_at)


def test_a_guest_is_erased_once(storage: Storage) -> None:
    store(storage, ERASURE)
    with storage.write() as unit, pytest.raises(AlreadyStored):
        unit.erasures.add(ERASURE)
    done = ERASURE.done(NOW)
    with storage.write() as unit:
        unit.erasures.update(done)
        unit.commit()
    with storage.read() as unit:
        assert unit.erasures.get(GUEST_ID) == done
        assert unit.erasures.get(OTHER_GUEST_ID) is None
        assert unit.erasures.among([GUEST_ID, OTHER_GUEST_ID]) == {GUEST_ID}
        assert unit.erasures.among([]) == frozenset()


def test_those_that_are_due_come_first_come_first_served(storage: Storage) -> None:
    later, soon = NOW + timedelta(minutes=1), NOW - timedelta(minutes=1)
    # A clock that was ahead has set its time.
    ahead = erasure_of(4, NOW + timedelta(days=1))
    store(storage, erasure_of(1, later), erasure_of(2, None), ERASURE, ahead)
    store(storage, erasure_of(3, soon))
    with storage.read() as unit:
        due = unit.erasures.due(NOW, at_most=3)
        assert due == (erasure_of(3, soon), ERASURE, ahead)
        assert unit.erasures.due(NOW, at_most=1) == due[:1]
        assert unit.erasures.count_due(NOW) == (3, soon)
        assert unit.erasures.count_due(soon - timedelta(minutes=1)) == (1, None)


def test_a_guest_is_removed_alone(storage: Storage) -> None:
    other = a_guest(id=OTHER_GUEST_ID)
    with storage.write() as unit:
        unit.guests.put_many([a_guest(), other])
        unit.guests.remove(GUEST_ID)
        unit.guests.remove(GUEST_ID)
        unit.commit()
    with storage.read() as unit:
        assert unit.guests.get(GUEST_ID) is None
        assert unit.guests.get(OTHER_GUEST_ID) == other


def test_every_session_of_a_guest_is_found(storage: Storage) -> None:
    with storage.write() as unit:
        unit.sessions.add(a_session())
        unit.sessions.add(a_session(token_id=OTHER_TOKEN_ID, guest_id=OTHER_GUEST_ID))
        unit.commit()
    with storage.read() as unit:
        assert unit.sessions.of_guest(GUEST_ID) == [TOKEN_ID]


def test_the_evidence_on_one_session_is_removed(storage: Storage) -> None:
    removed, kept = TOKEN_ID, OTHER_TOKEN_ID
    with storage.write() as unit:
        for token_id in (removed, kept):
            unit.evidence.add(token_id, an_evidence(), at_most=5)
        unit.evidence.remove(removed)
        unit.commit()
    with storage.read() as unit:
        assert list(unit.evidence.of(removed)) == []
        assert list(unit.evidence.of(kept)) == [an_evidence()]


def test_the_discards_of_one_guest_at_a_psp_are_found(storage: Storage) -> None:
    mine = [a_discard(), a_discard(token=CardToken("done"), done_at=NOW, due_at=None)]
    others = [
        a_discard(token=CardToken("theirs"), guest_reference=GuestReference("another")),
        a_discard(token=CardToken("elsewhere"), merchant_account=OTHER_ACCOUNT),
    ]
    with storage.write() as unit:
        for discard in (*mine, *others):
            unit.discards.add(discard)
        unit.commit()
    first = mine[0]
    with storage.read() as unit:
        found = unit.discards.of_guest(*first.psp_account, first.guest_reference)
    assert sorted(discard.token for discard in found) == ["done", "token-1"]


def test_the_references_of_one_guest_at_a_merchant_account_are_removed(storage: Storage) -> None:
    guest = a_psp_guest()
    removed = [guest, guest._replace(center_id=OTHER_CENTER_ID)]
    kept = [
        guest._replace(guest_id=OTHER_GUEST_ID),
        guest._replace(merchant_account=OTHER_ACCOUNT),
    ]
    with storage.write() as unit:
        for one in (*removed, *kept):
            unit.guest_references.keep(one, GuestReference("reference"))
        unit.guest_references.remove(GUEST_ID, PspAccount(PROVIDER, MERCHANT_ACCOUNT))
        unit.commit()
    with storage.read() as unit:
        assert [unit.guest_references.get(one) for one in removed] == [None, None]
        assert [unit.guest_references.get(one) for one in kept] == ["reference", "reference"]


def test_what_was_deleted_may_be_overwritten_at_any_time(storage: Storage) -> None:
    store(storage, ERASURE)
    storage.overwrite_deleted()
    storage.overwrite_deleted()
    with storage.read() as unit:
        assert unit.erasures.get(GUEST_ID) == ERASURE
