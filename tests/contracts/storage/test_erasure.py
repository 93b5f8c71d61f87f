"""Erasures of guests and the records that they delete."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from adapters.psp_suite.samples import GUEST_ID, NOW, OTHER_GUEST_ID, TOKEN_ID, a_uuid
from domain.cards.account import CLEARED_PSP_IDENTIFIERS
from domain.identifiers import GuestId, GuestReference
from domain.personal_data.erasure import Erasure
from domain.sessions.earlier_page import EarlierPage
from domain.storage import AlreadyStored, Storage
from tests.builders import (
    OTHER_CENTER_ID,
    a_guest,
    a_psp_guest,
    a_session,
    an_account,
    an_agreement,
    an_attempt,
    an_evidence,
)
from tests.contracts.storage.records import MINUTE, OTHER_TOKEN_ID, add, store
from tests.databases import change_by_hand, committed, transaction_of

ERASURE = Erasure(guest_id=GUEST_ID, erased_at=NOW, due_at=NOW)


def erasure_of(number: int, due_at: datetime | None) -> Erasure:
    return replace(ERASURE, guest_id=GuestId(a_uuid(900 + number)), due_at=due_at)


def test_adding_a_second_erasure_of_a_guest_is_refused(storage: Storage) -> None:
    store(storage, ERASURE)
    with storage.write() as unit, pytest.raises(AlreadyStored):
        unit.erasures.add(ERASURE)
    done = ERASURE.done(NOW)
    with committed(storage) as unit:
        unit.erasures.update(done)
    with storage.read() as unit:
        assert unit.erasures.get(GUEST_ID) == done
        assert unit.erasures.get(OTHER_GUEST_ID) is None
        assert unit.erasures.among([GUEST_ID, OTHER_GUEST_ID]) == {GUEST_ID}
        assert unit.erasures.among([]) == frozenset()


def test_an_erasure_can_be_reopened_whether_or_not_it_is_done(storage: Storage) -> None:
    going_on = erasure_of(1, NOW + MINUTE)
    store(storage, ERASURE.done(NOW), going_on)
    with committed(storage) as unit:
        for guest_id in (GUEST_ID, OTHER_GUEST_ID, going_on.guest_id):
            unit.erasures.reopen(guest_id, NOW)
    with storage.read() as unit:
        assert unit.erasures.get(GUEST_ID) == ERASURE
        assert unit.erasures.get(OTHER_GUEST_ID) is None
        assert unit.erasures.get(going_on.guest_id) == replace(going_on, due_at=NOW)


class TestUnreadableSession:
    """A session of an erased guest that another release has written."""

    SESSION = a_session(attempt=an_attempt(), due_at=NOW, reference="order 7")

    @pytest.fixture(autouse=True)
    def _stored(self, storage: Storage) -> None:
        with committed(storage) as unit:
            add(unit, self.SESSION, replace(self.SESSION, token_id=OTHER_TOKEN_ID, link_key=None))
            unit.evidence.add(TOKEN_ID, an_evidence(), at_most=5)
            unit.earlier_pages.keep(EarlierPage.of(a_session(attempt=an_attempt())))
            unit.evidence.add(OTHER_TOKEN_ID, an_evidence(), at_most=5)
        change_by_hand(
            storage, f"UPDATE card_sessions SET source = 99 WHERE token_id = '{TOKEN_ID}'"
        )

    def blank(self, storage: Storage, now: datetime) -> bool:
        with committed(storage) as unit:
            are_over = unit.sessions.blank_unreadable(GUEST_ID, now)
        change_by_hand(storage, f"UPDATE card_sessions SET source = {self.SESSION.source}")
        return are_over

    def test_blanking_an_unreadable_session_keeps_its_page_reference_until_the_session_ends(
        self, storage: Storage
    ) -> None:
        assert not self.blank(storage, self.SESSION.expires_at - timedelta(seconds=1))
        with storage.read() as unit:
            assert unit.sessions.get(TOKEN_ID) == self.SESSION.without_personal_data()
            assert len(unit.evidence.of(TOKEN_ID)) == 1
            assert len(unit.earlier_pages.of(TOKEN_ID)) == 1

    def test_blanking_an_unreadable_session_keeps_its_consent(self, storage: Storage) -> None:
        account = an_account(token_id=TOKEN_ID, guest_id=GUEST_ID)
        with storage.write() as unit:
            unit.accounts.add(account)
            transaction_of(unit).execute(
                "UPDATE card_sessions SET status = 'sold', account_id = :account_id",
                {"account_id": account.account_id},
            )
            before = unit.consents.of(account)
            assert unit.sessions.blank_unreadable(GUEST_ID, NOW)
            assert unit.consents.of(account) == before
            row = transaction_of(unit).one(
                "SELECT redirect_uri, billing_info, due_at, attempt -> 'request' ->> 'guest_name', "
                f"attempt -> 'page' FROM card_sessions WHERE token_id = '{TOKEN_ID}'"
            )
            assert row == ("", None, None, None, None)
        assert before

    def test_an_unreadable_session_that_is_past_its_end_expires_when_it_is_blanked(
        self, storage: Storage
    ) -> None:
        assert self.blank(storage, self.SESSION.expires_at)
        change_by_hand(
            storage, f"UPDATE card_sessions SET attempt = NULL WHERE token_id = '{TOKEN_ID}'"
        )
        with storage.read() as unit:
            expired = self.SESSION.expired(self.SESSION.expires_at)
            blank = replace(expired.without_personal_data(), attempt=None)
            assert unit.sessions.get(TOKEN_ID) == blank
            assert list(unit.evidence.of(TOKEN_ID)) == []
            assert list(unit.earlier_pages.of(TOKEN_ID)) == []
            other = replace(self.SESSION, token_id=OTHER_TOKEN_ID, link_key=None)
            assert unit.sessions.get(OTHER_TOKEN_ID) == other
            assert len(unit.evidence.of(OTHER_TOKEN_ID)) == 1


def test_a_guest_counts_as_on_file_as_long_as_any_record_names_the_guest(
    storage: Storage,
) -> None:
    for record in (a_guest(), a_session(), an_account(removed_at=NOW)):
        with storage.write() as unit:
            assert not unit.guests.is_on_file(GUEST_ID)
            add(unit, record)
            assert unit.guests.is_on_file(GUEST_ID)
            assert not unit.guests.is_on_file(OTHER_GUEST_ID)
    with storage.write() as unit:
        unit.guest_references.keep(a_psp_guest(), GuestReference("at the PSP"))
        assert unit.guests.is_on_file(GUEST_ID)


def test_a_replaced_psp_reference_of_a_guest_is_still_found(storage: Storage) -> None:
    psp_account, reference = an_account().psp_account, GuestReference("former")
    with committed(storage) as unit:
        for _ in range(2):
            unit.guest_references.keep_former(GUEST_ID, psp_account, reference)
    with storage.read() as unit:
        assert unit.guest_references.of(GUEST_ID) == [(psp_account, reference)]
        assert unit.guest_references.of(OTHER_GUEST_ID) == []
        assert unit.guest_references.guests(psp_account, reference) == {GUEST_ID}


def test_the_space_of_deleted_rows_can_be_overwritten_repeatedly(storage: Storage) -> None:
    store(storage, ERASURE)
    assert storage.overwrite_deleted()
    assert storage.overwrite_deleted()
    with storage.read() as unit:
        assert unit.erasures.get(GUEST_ID) == ERASURE


class TestMergedGuests:
    def test_all_guests_who_were_merged_into_a_guest_are_found(self, storage: Storage) -> None:
        merged = [
            replace(erasure_of(number, NOW), merged_into=into)
            for number, into in ((2, GUEST_ID), (1, GUEST_ID), (3, OTHER_GUEST_ID), (4, None))
        ]
        store(storage, *merged)
        with storage.read() as unit:
            assert unit.erasures.merged_into(GUEST_ID) == [merged[1].guest_id, merged[0].guest_id]
            assert unit.erasures.last_merge_into(GUEST_ID) == NOW
        with committed(storage) as unit:
            unit.erasures.merge_on(GUEST_ID, OTHER_GUEST_ID)
        with storage.read() as unit:
            assert unit.erasures.merged_into(GUEST_ID) == []
            assert unit.erasures.last_merge_into(GUEST_ID) is None
            assert len(unit.erasures.merged_into(OTHER_GUEST_ID)) == 3
            assert unit.erasures.get(merged[0].guest_id) == replace(
                merged[0], merged_into=OTHER_GUEST_ID
            )

    def test_merging_guests_moves_every_account_to_the_remaining_guest(
        self, storage: Storage
    ) -> None:
        active = [an_account(1, center_id=OTHER_CENTER_ID), an_account(4)]
        removed, other = an_account(2, removed_at=NOW), an_account(3, guest_id=GuestId(a_uuid(77)))
        store(storage, *active, removed, other)
        with committed(storage) as unit:
            assert list(unit.accounts.active_of(GUEST_ID)) == active
            unit.accounts.reassign(GUEST_ID, OTHER_GUEST_ID)
        with storage.read() as unit:
            for each in (*active, removed):
                assert unit.accounts.get(each.account_id) == replace(each, guest_id=OTHER_GUEST_ID)
            assert unit.accounts.get(other.account_id) == other

    def test_a_session_moved_to_another_guest_keeps_the_request_sent_to_the_psp(
        self, storage: Storage
    ) -> None:
        session = a_session(attempt=an_attempt())
        other = a_session(token_id=OTHER_TOKEN_ID, guest_id=GuestId(a_uuid(77)))
        store(storage, session, other)
        with committed(storage) as unit:
            unit.sessions.reassign(GUEST_ID, OTHER_GUEST_ID)
        with storage.read() as unit:
            assert unit.sessions.get(TOKEN_ID) == replace(session, guest_id=OTHER_GUEST_ID)
            assert unit.sessions.get(OTHER_TOKEN_ID) == other
        # Another release has written a value that this release cannot decode.
        change_by_hand(storage, "UPDATE card_sessions SET source = 77")
        with committed(storage) as unit:
            unit.sessions.reassign(OTHER_GUEST_ID, GUEST_ID)
        change_by_hand(storage, f"UPDATE card_sessions SET source = {session.source}")
        with storage.read() as unit:
            assert unit.sessions.get(TOKEN_ID) == session


def test_all_unreadable_active_accounts_of_a_guest_can_be_removed(storage: Storage) -> None:
    readable, unreadable, removed, theirs = (
        an_account(1),
        an_account(2, is_default=True, expiry_notice_at=NOW),
        an_account(3, removed_at=NOW - MINUTE),
        an_account(4, guest_id=OTHER_GUEST_ID),
    )
    store(storage, readable, unreadable, removed, theirs)
    change_by_hand(
        storage,
        f"UPDATE payment_accounts SET source = 99 WHERE account_id <> '{readable.account_id}'",
    )
    with committed(storage) as unit:
        found = unit.accounts.remove_unreadable(GUEST_ID, NOW)
    change_by_hand(storage, f"UPDATE payment_accounts SET source = {readable.source}")

    token = (unreadable.psp_account, unreadable.guest_reference, unreadable.token)
    assert found == [token]
    with storage.read() as unit:
        for account in (readable, unreadable.removed(NOW), removed, theirs):
            assert unit.accounts.get(account.account_id) == account


def test_blanking_an_unreadable_agreement_keeps_its_terms_but_not_its_reference(
    storage: Storage,
) -> None:
    unreadable, readable, theirs = (
        an_agreement(1),
        an_agreement(2),
        an_agreement(3, guest_id=OTHER_GUEST_ID),
    )
    store(storage, unreadable, readable, theirs)
    change_by_hand(
        storage,
        f"UPDATE agreements SET reason = 'odd' WHERE agreement_id <> '{readable.agreement_id}'",
    )
    with committed(storage) as unit:
        for _ in range(2):
            unit.agreements.blank_unreadable(GUEST_ID, NOW)
    change_by_hand(storage, "UPDATE agreements SET reason = NULL")

    with storage.read() as unit:
        blanked = unit.agreements.get(unreadable.agreement_id)
        assert blanked == replace(
            unreadable,
            terms=replace(unreadable.terms, reference=""),
            due_at=None,
            ended_at=NOW,
        )
        for kept in (readable, theirs):
            assert unit.agreements.get(kept.agreement_id) == kept


def test_blanking_the_removed_accounts_of_a_guest_does_not_change_other_accounts(
    storage: Storage,
) -> None:
    blanked, *kept = (
        an_account(1, removed_at=NOW, charge_reference="charge-1", network_transaction_id="0123"),
        an_account(2),
        an_account(3, removed_at=NOW, guest_id=OTHER_GUEST_ID),
    )
    with committed(storage) as unit:
        add(unit, blanked, *kept)
        unit.accounts.blank(GUEST_ID)
    with storage.read() as unit:
        assert unit.accounts.get(blanked.account_id) == replace(blanked, **CLEARED_PSP_IDENTIFIERS)
        for account in kept:
            assert unit.accounts.get(account.account_id) == account


def test_all_psp_references_of_a_guest_are_found(storage: Storage) -> None:
    account = an_account(guest_reference=GuestReference("in an account"))
    session = a_session(attempt=an_attempt())
    assert session.attempt is not None
    assert session.attempt.page is not None
    without_page = a_session(token_id=OTHER_TOKEN_ID)
    store(
        storage, account, an_account(2, guest_reference=GuestReference("")), session, without_page
    )
    with storage.read() as unit:
        assert set(unit.guest_references.of(GUEST_ID)) == {
            (account.psp_account, account.guest_reference),
            (session.configuration.psp_account, session.attempt.page.guest_reference),
        }
