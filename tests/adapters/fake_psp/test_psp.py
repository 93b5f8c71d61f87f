"""Tests of the fake PSP beyond the contract suite for PSPs (adapters/psp_suite)."""

from __future__ import annotations

import stat
from datetime import timedelta
from pathlib import Path

import pytest

from adapters.fake_psp.psp import (
    MAX_CARD_ATTEMPTS,
    CardRefusal,
    FakePsp,
    PageState,
    Unknown,
)
from adapters.psp_suite.clock import SettableClock
from adapters.psp_suite.concurrency import at_once
from adapters.psp_suite.ids import SeededIds
from domain.billing import AvsResult
from domain.identifiers import GuestReference, MerchantAccount
from tests.adapters.fake_psp.conftest import (
    BASE_URL,
    CHALLENGE,
    DECLINED,
    GOOD,
    MAIN,
    MASTERCARD,
    REQUEST,
    card_entry,
    hosted_page_request,
)

OTHER = MerchantAccount("other")


def test_a_wrong_postal_code_is_refused_only_if_avs_is_on(psp: FakePsp) -> None:
    verified = psp.start_page(hosted_page_request(session=1, avs=True)).reference
    page = psp.try_card(verified, card_entry(zipcode="00000"))
    assert (page.state, page.refusal) == (PageState.OPEN, CardRefusal.WRONG_ADDRESS)
    page = psp.try_card(verified, card_entry())
    assert (page.state, page.avs) == (PageState.COMPLETED, AvsResult.MATCH)

    other = psp.start_page(hosted_page_request(session=2, avs=False)).reference
    page = psp.try_card(other, card_entry(zipcode="00000"))
    assert (page.state, page.avs) == (PageState.COMPLETED, AvsResult.NOT_CHECKED)


@pytest.mark.parametrize("number", [MASTERCARD, DECLINED])
def test_a_card_that_waits_for_its_challenge_can_be_replaced_by_another_card(
    psp: FakePsp, number: str
) -> None:
    reference = psp.start_page(REQUEST).reference
    psp.try_card(reference, card_entry(CHALLENGE))
    page = psp.try_card(reference, card_entry(number))
    assert psp.answer_challenge(reference, confirmed=True) == page
    kept = page.card.last_four if page.card else None
    assert kept == ("4444" if number == MASTERCARD else None)


def test_submitting_cards_concurrently_on_one_page_stores_one_card(
    psp: FakePsp, database: Path
) -> None:
    # A second FakePsp on the same file stands for a second process.
    other = FakePsp(database, base_url=BASE_URL, clock=psp.clock, ids=SeededIds(2))
    reference = psp.start_page(REQUEST).reference

    pages = at_once(4, lambda number: [psp, other][number % 2].try_card(reference, card_entry()))

    assert {page.card.token for page in pages if page.card} == psp.tokens(MAIN)
    assert len(psp.tokens(MAIN)) == 1


def test_a_webhook_is_not_sent_again_after_the_last_attempt(psp: FakePsp) -> None:
    reference, other = (
        psp.start_page(hosted_page_request(session=session)).reference for session in (1, 2)
    )
    for _ in range(MAX_CARD_ATTEMPTS - 1):
        psp.try_card(reference, card_entry(DECLINED))
        psp.try_card(other, card_entry(DECLINED))

    psp.try_card(reference, card_entry(CHALLENGE))
    assert psp.answer_challenge(reference, confirmed=True).state is PageState.COMPLETED

    psp.try_card(other, card_entry(CHALLENGE))
    assert psp.answer_challenge(other, confirmed=False).state is PageState.CLOSED
    assert psp.try_card(other, card_entry(GOOD)).state is PageState.CLOSED
    assert len(psp.tokens(MAIN)) == 1


def test_the_fingerprint_of_a_card_differs_between_merchant_accounts(psp: FakePsp) -> None:
    def fingerprint(session: int, merchant_account: MerchantAccount) -> str:
        request = hosted_page_request(session=session, merchant_account=merchant_account)
        card = psp.try_card(psp.start_page(request).reference, card_entry()).card
        assert card is not None
        return card.fingerprint

    assert fingerprint(1, MAIN) != fingerprint(2, OTHER)


# Shows F40.
def test_a_closed_page_stays_closed_if_the_clock_is_set_back(
    psp: FakePsp, clock: SettableClock
) -> None:
    reference = psp.start_page(REQUEST).reference
    clock.advance(timedelta(minutes=30))
    assert psp.page(reference).state is PageState.CLOSED
    clock.advance(timedelta(minutes=-20))
    assert psp.try_card(reference, card_entry()).state is PageState.CLOSED


def test_discarding_a_token_that_belongs_to_another_guest_has_no_effect(psp: FakePsp) -> None:
    page = psp.try_card(psp.start_page(REQUEST).reference, card_entry())
    assert page.card is not None
    with pytest.raises(Unknown):
        psp.discard(MAIN, GuestReference("guest_other"), page.card.token)
    assert psp.tokens(MAIN) == {page.card.token}


def test_the_records_of_the_fake_psp_survive_a_restart(
    psp: FakePsp, database: Path, clock: SettableClock
) -> None:
    page = psp.try_card(psp.start_page(REQUEST).reference, card_entry())
    reopened = FakePsp(database, base_url=BASE_URL, clock=clock, ids=SeededIds(2))
    assert reopened.page(page.reference) == page
    assert reopened.webhook_secret == psp.webhook_secret
    assert reopened.form_token(page.reference) == psp.form_token(page.reference)
    again = reopened.start_page(hosted_page_request(session=2))
    card = reopened.try_card(again.reference, card_entry()).card
    assert page.card is not None
    assert card is not None
    assert card.fingerprint == page.card.fingerprint


def test_processes_of_the_fake_psp_that_start_concurrently_use_the_same_keys(
    database: Path, clock: SettableClock
) -> None:
    def found(seed: int) -> str:
        ids = SeededIds(seed)
        return FakePsp(database, base_url=BASE_URL, clock=clock, ids=ids).webhook_secret

    assert len(set(at_once(8, found))) == 1


def test_only_the_owner_can_read_the_database_file_of_the_fake_psp(
    database: Path, clock: SettableClock
) -> None:
    database.touch(mode=0o644)
    psp = FakePsp(database, base_url=BASE_URL, clock=clock, ids=SeededIds())
    psp.start_page(REQUEST)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in database.parent.iterdir()}
    assert modes == dict.fromkeys(("fake-psp.db", "fake-psp.db-wal", "fake-psp.db-shm"), 0o600)


# Shows F7.
def test_records_of_the_fake_psp_are_synced_to_disk_before_the_response(psp: FakePsp) -> None:
    with psp._database.write() as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert db.execute("PRAGMA synchronous").fetchone() == (2,)
