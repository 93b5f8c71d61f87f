"""Which records are deleted because of their age, and which are always kept."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from adapters.psp_suite.samples import NOW, OTHER_GUEST_ID, TOKEN_ID
from domain.identifiers import AccountId
from domain.sessions.earlier_page import EarlierPage
from domain.sessions.end import SessionStatus
from domain.storage import Storage
from tests.builders import (
    a_consent,
    a_desk_link,
    a_discard,
    a_refused_card,
    a_session,
    an_account,
    an_attempt,
    an_evidence,
)
from tests.contracts.storage.records import OTHER_TOKEN_ID, add, store
from tests.databases import committed

BEFORE = NOW - timedelta(days=400)
OLD = BEFORE - timedelta(seconds=1)
ENDED = a_session(status=SessionStatus.EXPIRED, ended_at=OLD, due_at=None)


def test_an_old_session_is_deleted_together_with_its_dependent_records(storage: Storage) -> None:
    with committed(storage) as unit:
        unit.sessions.add(ENDED)
        unit.evidence.add(TOKEN_ID, an_evidence(), at_most=5)
        unit.earlier_pages.keep(EarlierPage.of(a_session(attempt=an_attempt())))
        unit.refused_cards.add([a_refused_card(token_id=TOKEN_ID)])
        unit.desk_links.add(a_desk_link())
    with committed(storage) as unit:
        assert unit.sessions.forget(before=BEFORE) == 1
        assert unit.sessions.forget(before=BEFORE) == 0
    with storage.read() as reading:
        assert reading.sessions.get(TOKEN_ID) is None
        assert list(reading.evidence.of(TOKEN_ID)) == []
        assert list(reading.earlier_pages.of(TOKEN_ID)) == []
        assert list(reading.refused_cards.of(TOKEN_ID)) == []
        assert list(reading.desk_links.of(TOKEN_ID)) == []


def test_a_session_that_is_recent_open_or_due_is_not_deleted(storage: Storage) -> None:
    young = a_session(status=SessionStatus.EXPIRED, ended_at=BEFORE, due_at=None)
    due = a_session(token_id=OTHER_TOKEN_ID, status=SessionStatus.EXPIRED, ended_at=OLD, due_at=NOW)
    with committed(storage) as unit:
        add(unit, young, due)
        unit.evidence.add(TOKEN_ID, an_evidence(), at_most=5)
    with committed(storage) as unit:
        assert unit.sessions.forget(before=BEFORE) == 0
    with storage.read() as reading:
        assert reading.sessions.get(TOKEN_ID) == young
        assert len(reading.evidence.of(TOKEN_ID)) == 1
        assert reading.sessions.get(OTHER_TOKEN_ID) == due


def test_a_session_that_holds_the_only_record_of_a_consent_is_not_deleted(storage: Storage) -> None:
    account = an_account(token_id=TOKEN_ID)
    completed = a_session(
        status=SessionStatus.COMPLETED, account_id=account.account_id, ended_at=OLD, due_at=None
    )
    store(storage, account, completed)
    with committed(storage) as unit:
        assert unit.sessions.forget(before=BEFORE) == 0
        unit.consents.add(a_consent(account_id=account.account_id, token_id=TOKEN_ID))
        assert unit.sessions.forget(before=BEFORE) == 1


def test_an_old_session_whose_account_was_deleted_is_deleted(storage: Storage) -> None:
    gone = AccountId(an_account().account_id)
    with committed(storage) as unit:
        unit.sessions.add(
            a_session(status=SessionStatus.COMPLETED, account_id=gone, ended_at=OLD, due_at=None)
        )
        assert unit.sessions.forget(before=BEFORE) == 1


def test_an_account_is_deleted_with_its_consents_long_after_its_removal(storage: Storage) -> None:
    old, young, active = (
        an_account(1, removed_at=OLD),
        an_account(2, removed_at=BEFORE),
        an_account(3),
    )
    with committed(storage) as unit:
        for account in (old, young, active):
            unit.accounts.add(account)
            unit.consents.add(a_consent(account_id=account.account_id, token_id=account.token_id))
    with committed(storage) as unit:
        assert unit.accounts.forget(before=BEFORE) == 1
        assert unit.accounts.forget(before=BEFORE) == 0
    with storage.read() as reading:
        assert reading.accounts.get(old.account_id) is None
        assert list(reading.consents.of(old)) == []
        for account in (young, active):
            assert reading.accounts.get(account.account_id) == account
            assert len(reading.consents.of(account)) == 1


def test_the_guest_reference_of_a_deleted_account_is_kept(storage: Storage) -> None:
    imported, erased = an_account(1, removed_at=OLD), an_account(2, removed_at=OLD)
    with committed(storage) as unit:
        add(unit, imported, replace(erased, guest_id=OTHER_GUEST_ID))
        unit.accounts.blank(OTHER_GUEST_ID)
        assert unit.accounts.forget(before=BEFORE) == 2
    with storage.read() as reading:
        known = [(imported.psp_account, imported.guest_reference)]
        assert reading.guest_references.of(imported.guest_id) == known
        assert reading.guest_references.of(OTHER_GUEST_ID) == []


def test_a_removed_account_is_not_deleted_before_its_token_is_discarded(storage: Storage) -> None:
    account = an_account(1, removed_at=OLD)
    discard = a_discard(token=account.token)
    with committed(storage) as unit:
        add(unit, account, discard)
        assert unit.accounts.forget(before=BEFORE) == 0
        unit.discards.update(discard.done(NOW))
        assert unit.accounts.forget(before=BEFORE) == 1
