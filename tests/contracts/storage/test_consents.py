from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from adapters.psp_suite.concurrency import at_once
from adapters.psp_suite.samples import NOW, a_page_request, a_uuid
from domain.consents.given_consent import GivenConsent
from domain.identifiers import AccountId, TokenId
from domain.psps.hosted_page import Consent, PageAttempt
from domain.sessions.session import CardSession
from domain.storage import Storage
from tests.builders import a_consent, a_session, an_account
from tests.contracts.storage.records import DAY, MINUTE, store
from tests.databases import committed, transaction_of

# `changes` is Any: fields of any type, whose names replace() checks.

ACCOUNT = an_account(1, consented_at=NOW + DAY, consent_version="2025-01")


def a_completed_session(number: int, **changes: Any) -> CardSession:
    """Return the session of the account with this number. Its page showed a distinct text."""
    account = an_account(number)
    shown = Consent(version="2025-01", text=f"text {number}")
    return replace(
        a_session(
            token_id=account.token_id,
            guest_id=account.guest_id,
            attempt=PageAttempt(request=replace(a_page_request(), consent=shown)),
        ).completed(ACCOUNT.account_id, NOW + DAY + MINUTE),
        **changes,
    )


def consents(storage: Storage) -> Sequence[GivenConsent]:
    with storage.read() as unit:
        return unit.consents.of(ACCOUNT)


def test_the_consents_of_an_account_are_listed_newest_first(storage: Storage) -> None:
    renewal, first, second = (
        a_consent(token_id=TokenId(a_uuid(number)), agreed_at=NOW + DAY * days)
        for number, days in ((301, 2), (302, 0), (303, 1))
    )
    store(storage, second, renewal, first, a_consent(2))

    assert consents(storage) == [renewal, second, first]


def test_equal_consent_texts_are_stored_once(storage: Storage) -> None:
    others = {"version": "2027-01"}, {"language": "de"}, {"text": "You may not."}

    def add(number: int) -> None:
        store(storage, a_consent(number))

    at_once(4, add)
    store(storage, *(a_consent(number, **change) for number, change in enumerate(others, 20)))
    with storage.read() as reading:
        assert transaction_of(reading).one("SELECT count(*) FROM consents") == (7,)
        assert transaction_of(reading).one("SELECT count(*) FROM consent_texts") == (4,)


def test_a_consent_that_is_stored_only_in_its_session_is_also_listed(storage: Storage) -> None:
    """This happens if 0.1.0 stored and renewed the account while it ran beside this release."""
    stored = a_consent(token_id=TokenId(a_uuid(203)), agreed_at=NOW + MINUTE)
    other = AccountId(a_uuid(999))
    with committed(storage) as unit:
        unit.accounts.add(ACCOUNT)
        unit.accounts.add(an_account(5, account_id=other))
        unit.consents.add(stored)
        unit.sessions.add(a_completed_session(1, ended_at=NOW))
        unit.sessions.add(a_completed_session(2))
        unit.sessions.add(a_completed_session(3))
        unit.sessions.add(a_completed_session(4, attempt=None))
        unit.sessions.add(a_completed_session(5, account_id=other))

    of_sessions = [
        a_consent(number, account_id=ACCOUNT.account_id, version="2025-01", text=f"text {number}")
        for number in (1, 2)
    ]
    assert consents(storage) == [
        replace(of_sessions[1], agreed_at=ACCOUNT.consented_at),
        stored,
        of_sessions[0],
    ]
