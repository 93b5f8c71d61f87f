from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from adapters.psp_suite.concurrency import at_once
from adapters.psp_suite.samples import GUEST_ID, MERCHANT_ACCOUNT, NOW, OTHER_GUEST_ID, a_uuid
from domain.cards.account import REFUSALS_UNTIL_UNKNOWN
from domain.identifiers import (
    CardToken,
    GuestId,
    GuestReference,
    MerchantAccount,
    ProviderName,
    PspAccount,
    TokenId,
)
from domain.personal_data.erasure import Erasure
from domain.psps.hosted_page import Prefill
from domain.psps.merchant_standing import MerchantStanding
from domain.sessions.end import SessionStatus
from domain.storage import Storage
from tests.builders import (
    OTHER_CENTER_ID,
    PROVIDER,
    a_configuration,
    a_discard,
    a_psp_guest,
    a_session,
    an_account,
    an_attempt,
)
from tests.databases import committed, transaction_of


def test_storing_a_guest_reference_replaces_the_previous_reference_of_that_guest(
    storage: Storage,
) -> None:
    guest = a_psp_guest()
    others = [
        guest._replace(provider=ProviderName("other")),
        guest._replace(merchant_account=MerchantAccount("other")),
        guest._replace(guest_id=OTHER_GUEST_ID),
        guest._replace(center_id=OTHER_CENTER_ID),
        guest._replace(prefill=Prefill.BILLING),
    ]
    with committed(storage) as unit:
        for reference in ("first", "second"):
            unit.guest_references.keep(guest, GuestReference(reference))
    with storage.read() as reading:
        assert reading.guest_references.get(guest) == "second"
        assert [reading.guest_references.get(each) for each in others] == [None] * 5


def test_all_guest_references_are_found_even_those_from_an_earlier_release(
    storage: Storage,
) -> None:
    guest = a_psp_guest()
    with committed(storage) as unit:
        for other, reference in (
            (guest._replace(merchant_account=MerchantAccount("other")), "b"),
            (guest, "a"),
            (guest._replace(prefill=Prefill.BILLING), "a"),
            (guest._replace(center_id=OTHER_CENTER_ID), "c"),
            (guest._replace(guest_id=OTHER_GUEST_ID), "d"),
        ):
            unit.guest_references.keep(other, GuestReference(reference))
        transaction_of(unit).execute(
            "INSERT INTO guest_references (provider, merchant_account, guest_id, reference) "
            "VALUES ('fake', 'west', :guest_id, 'e')",
            {"guest_id": guest.guest_id},
        )
    with storage.read() as reading:
        found = reading.guest_references.of(guest.guest_id)
    at_account, at_other = (PROVIDER, MERCHANT_ACCOUNT), (PROVIDER, "other")
    assert sorted(found) == sorted(
        [(at_account, "a"), (at_account, "c"), (at_other, "b"), ((PROVIDER, "west"), "e")]
    )


def test_a_guest_is_found_by_any_of_the_guests_psp_references(storage: Storage) -> None:
    shared, guest = GuestReference("shared"), a_psp_guest()
    at, replaced = guest._replace(guest_id=OTHER_GUEST_ID), GuestId(a_uuid(76))
    with committed(storage) as unit:
        unit.accounts.add(an_account(1, guest_reference=shared, removed_at=NOW))
        unit.guest_references.keep(at, shared)
        for reference in (shared, GuestReference("new")):
            unit.guest_references.keep(guest._replace(guest_id=replaced), reference)
    with storage.read() as unit:
        found = unit.guest_references.guests
        assert found(an_account().psp_account, shared) == {GUEST_ID, OTHER_GUEST_ID, replaced}
        assert not found(PspAccount(PROVIDER, MerchantAccount("other")), shared)
        assert not found(an_account().psp_account, GuestReference("other"))


def test_only_one_of_several_concurrent_claims_of_a_merchant_identity_succeeds(
    storage: Storage,
) -> None:
    def claim(number: int) -> str:
        with committed(storage) as unit:
            return unit.merchant_identities.claim(PROVIDER, MERCHANT_ACCOUNT, str(number))

    assert len(set(at_once(4, claim))) == 1


def test_guest_references_that_are_stored_concurrently_are_all_found(storage: Storage) -> None:
    guest = a_psp_guest()

    def keep(number: int) -> None:
        for again in range(3):
            with committed(storage) as unit:
                unit.guest_references.keep(guest, GuestReference(f"{number}-{again}"))

    at_once(4, keep)
    with storage.read() as reading:
        assert len(reading.guest_references.of(guest.guest_id)) == 12


def test_every_record_with_open_work_at_a_merchant_account_is_found(
    storage: Storage,
) -> None:
    account, here = an_account(), an_account().psp_account
    other = PspAccount(PROVIDER, MerchantAccount("other"))
    sessions: Sequence[dict[str, Any]] = (  # fields of CardSession
        {"unanswered_since": NOW},
        {"attempt": an_attempt()},
        {},
        {"due_at": None, "status": SessionStatus.EXPIRED},
        {"configuration": a_configuration(merchant_account=other.merchant_account)},
    )
    with committed(storage) as unit:
        for number, changes in enumerate(sessions):
            unit.sessions.add(a_session(token_id=TokenId(a_uuid(30 + number)), **changes))
        unit.accounts.add(account)
        unit.accounts.add(an_account(2, removed_at=NOW))
        unit.accounts.add(an_account(3, merchant_account=other.merchant_account))
        unit.discards.add(a_discard(token=CardToken("left")))
        unit.discards.add(a_discard(token=CardToken("done"), done_at=NOW, due_at=None))
        unit.discards.add(a_discard(merchant_account=other.merchant_account))
        erasure = Erasure(guest_id=GUEST_ID, erased_at=NOW, due_at=NOW)
        unit.erasures.add(erasure)
        unit.erasures.add(replace(erasure, guest_id=OTHER_GUEST_ID).done(NOW))
    with storage.read() as reading:
        left = {TokenId(a_uuid(30 + number)) for number in range(3)}
        assert set(reading.sessions.due_at_psp(here)) == left
        assert list(reading.accounts.active_at_psp(here)) == [account.account_id]
        assert list(reading.discards.pending_at_psp(here)) == ["left"]
        assert list(reading.erasures.unfinished()) == [erasure]


def test_cards_that_were_removed_as_unknown_to_the_psp_are_counted(storage: Storage) -> None:
    account, minute_ago = an_account(1, read_at=NOW), NOW - timedelta(minutes=1)
    elsewhere = MerchantAccount("other")
    with committed(storage) as unit:
        unit.accounts.add(account)
        unit.accounts.add(an_account(2, read_at=minute_ago))
        unit.accounts.add(
            an_account(3, read_at=NOW, removed_at=NOW, refusals=REFUSALS_UNTIL_UNKNOWN)
        )
        unit.accounts.add(an_account(4, read_at=NOW, merchant_account=elsewhere))
        unit.accounts.add(an_account(5, removed_at=minute_ago, refusals=REFUSALS_UNTIL_UNKNOWN))
        unit.accounts.add(an_account(6, removed_at=NOW, refusals=REFUSALS_UNTIL_UNKNOWN - 1))
    with storage.read() as reading:
        assert not reading.accounts.was_another_read(account, since=minute_ago)
        assert reading.accounts.was_another_read(account, since=minute_ago - timedelta(seconds=1))
        assert reading.accounts.was_another_read(an_account(2), since=minute_ago)
        assert reading.accounts.count_unknown(account.psp_account, since=minute_ago) == 1
        earlier = minute_ago - timedelta(seconds=1)
        assert reading.accounts.count_unknown(account.psp_account, since=earlier) == 2


def test_a_stored_merchant_identity_is_not_replaced_until_it_is_deleted(storage: Storage) -> None:
    with storage.write() as unit:
        identities = unit.merchant_identities
        for identity in ("acct_1", "acct_2"):
            assert identities.claim(PROVIDER, MERCHANT_ACCOUNT, identity) == "acct_1"
        assert identities.get(PROVIDER, MERCHANT_ACCOUNT) == "acct_1"
        for psp_account in (
            (ProviderName("other"), MERCHANT_ACCOUNT),
            (PROVIDER, MerchantAccount("other")),
        ):
            assert identities.get(*psp_account) is None
            assert identities.claim(*psp_account, "acct_2") == "acct_2"
            standing = unit.merchant_standings.of(PspAccount(*psp_account))
            assert standing == MerchantStanding.of(PspAccount(*psp_account))
        identities.forget(PROVIDER, MERCHANT_ACCOUNT)
        assert identities.get(PROVIDER, MERCHANT_ACCOUNT) is None
        assert identities.get(PROVIDER, MerchantAccount("other")) == "acct_2"
