from __future__ import annotations

import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from adapters.fake_psp.database import PspUnavailable
from adapters.fake_psp.psp import (
    MAX_CARD_ATTEMPTS,
    AttemptsUsedUp,
    CallRefused,
    CardRefusal,
    FakePsp,
    OutOfOrder,
    PageState,
    UnknownPage,
)
from adapters.psp.contract.clock import START, SettableClock
from adapters.psp.contract.ids import SeededIds
from domain.billing import AvsResult
from domain.identifiers import GuestReference, MerchantAccount
from tests.adapters.fake_psp.conftest import (
    BASE_URL,
    CHALLENGE,
    DECLINED,
    GOOD,
    MAIN,
    MASTERCARD,
    OUT_OF_ORDER,
    UNPUBLISHED,
    WRONG_ADDRESS,
    card_entry,
    hosted_page_request,
    lock,
)

OTHER = MerchantAccount("other")


def test_the_same_key_and_parameters_give_the_same_page(psp: FakePsp) -> None:
    request = hosted_page_request()
    assert psp.start_page(request) == psp.start_page(request)


def test_the_same_key_with_other_parameters_is_refused(psp: FakePsp) -> None:
    request = hosted_page_request()
    page = psp.start_page(request)
    with pytest.raises(CallRefused):
        psp.start_page(replace(request, avs=True))
    assert psp.page(page.reference) == page


def test_concurrent_starts_under_one_key_make_one_page(psp: FakePsp) -> None:
    request = hosted_page_request()
    with ThreadPoolExecutor(8) as pool:
        pages = list(pool.map(lambda _: psp.start_page(request).reference, range(8)))
    assert len(set(pages)) == 1


def test_each_page_has_an_unguessable_reference_of_its_own(psp: FakePsp) -> None:
    first = psp.start_page(hosted_page_request(session=1)).reference
    second = psp.start_page(hosted_page_request(session=2)).reference
    assert first != second
    assert min(len(first), len(second)) >= len("page_") + 22


def test_a_page_lives_for_30_minutes_at_least(psp: FakePsp) -> None:
    page = psp.start_page(hosted_page_request(lives_for=timedelta(minutes=15)))
    assert page.ends_at == START + timedelta(minutes=30)


def test_a_page_lives_until_it_was_asked_to(psp: FakePsp) -> None:
    page = psp.start_page(hosted_page_request(lives_for=timedelta(hours=2)))
    assert page.ends_at == START + timedelta(hours=2)


def test_a_known_guest_keeps_the_reference(psp: FakePsp) -> None:
    reference = psp.start_page(hosted_page_request(session=1)).guest_reference
    again = psp.start_page(hosted_page_request(session=2, guest_reference=reference))
    assert again.guest_reference == reference


def test_a_guest_of_another_merchant_account_is_somebody_else(psp: FakePsp) -> None:
    reference = psp.start_page(hosted_page_request(session=1)).guest_reference
    there = psp.start_page(
        hosted_page_request(session=2, merchant_account=OTHER, guest_reference=reference)
    )
    assert there.guest_reference != reference


def test_an_unknown_guest_gets_a_new_reference(psp: FakePsp) -> None:
    unknown = GuestReference("guest_nobody")
    page = psp.start_page(hosted_page_request(guest_reference=unknown))

    assert page.guest_reference != unknown


@pytest.mark.parametrize(
    ("number", "brand", "last_four"), [(GOOD, "visa", "4242"), (MASTERCARD, "mastercard", "4444")]
)
def test_a_good_card_is_collected(psp: FakePsp, number: str, brand: str, last_four: str) -> None:
    reference = psp.start_page(hosted_page_request()).reference
    page = psp.try_card(reference, card_entry(number))
    assert page.state is PageState.COMPLETED
    assert page.collected_at == START
    assert page.avs is AvsResult.NOT_CHECKED
    assert page.card is not None
    assert page.card.guest_reference == page.guest_reference
    assert (page.card.card_logo, page.card.last_four) == (brand, last_four)
    assert page.card.expiry_on == "08/30"
    assert psp.tokens(MAIN) == {page.card.token}


@pytest.mark.parametrize(
    ("number", "refusal"),
    [(DECLINED, CardRefusal.DECLINED), (UNPUBLISHED, CardRefusal.UNPUBLISHED)],
)
def test_a_refused_card_leaves_the_page_open_for_another(
    psp: FakePsp, number: str, refusal: CardRefusal
) -> None:
    reference = psp.start_page(hosted_page_request()).reference
    page = psp.try_card(reference, card_entry(number))
    assert (page.state, page.refusal, page.card) == (PageState.OPEN, refusal, None)
    assert psp.tokens(MAIN) == frozenset()
    assert psp.try_card(reference, card_entry()).state is PageState.COMPLETED


def test_a_psp_out_of_order_does_nothing(psp: FakePsp) -> None:
    page = psp.start_page(hosted_page_request())
    with pytest.raises(OutOfOrder):
        psp.try_card(page.reference, card_entry(OUT_OF_ORDER))
    assert psp.page(page.reference) == page


@pytest.mark.parametrize(
    ("number", "avs", "result"),
    [
        (GOOD, True, AvsResult.MATCH),
        (GOOD, False, AvsResult.NOT_CHECKED),
        (WRONG_ADDRESS, True, AvsResult.MISMATCH),
        (WRONG_ADDRESS, False, AvsResult.NOT_CHECKED),
    ],
)
def test_address_verification_is_reported_and_not_judged(
    psp: FakePsp, number: str, avs: bool, result: AvsResult
) -> None:
    reference = psp.start_page(hosted_page_request(avs=avs)).reference
    page = psp.try_card(reference, card_entry(number))
    assert (page.state, page.avs) == (PageState.COMPLETED, result)


@pytest.mark.parametrize("number", [GOOD, MASTERCARD, WRONG_ADDRESS, CHALLENGE])
def test_a_wrong_postal_code_fails_with_any_card_until_it_is_corrected(
    psp: FakePsp, number: str
) -> None:
    reference = psp.start_page(hosted_page_request(avs=True)).reference
    page = psp.try_card(reference, card_entry(number, zipcode="00000"))
    assert (page.state, page.refusal) == (PageState.OPEN, CardRefusal.WRONG_ADDRESS)
    page = psp.try_card(reference, card_entry())
    assert (page.state, page.avs) == (PageState.COMPLETED, AvsResult.MATCH)


def test_a_postal_code_means_nothing_without_address_verification(psp: FakePsp) -> None:
    reference = psp.start_page(hosted_page_request(avs=False)).reference
    page = psp.try_card(reference, card_entry(zipcode="00000"))
    assert page.state is PageState.COMPLETED


def test_a_confirmed_challenge_collects_the_card(psp: FakePsp) -> None:
    reference = psp.start_page(hosted_page_request(avs=True)).reference
    assert psp.try_card(reference, card_entry(CHALLENGE)).state is PageState.CHALLENGED
    assert psp.tokens(MAIN) == frozenset()
    page = psp.answer_challenge(reference, confirmed=True)
    assert page.state is PageState.COMPLETED
    assert page.avs is AvsResult.MATCH
    assert page.card is not None
    assert page.card.last_four == "3220"
    assert psp.tokens(MAIN) == {page.card.token}


def test_a_failed_challenge_leaves_the_page_open(psp: FakePsp) -> None:
    reference = psp.start_page(hosted_page_request()).reference
    psp.try_card(reference, card_entry(CHALLENGE))
    page = psp.answer_challenge(reference, confirmed=False)
    assert (page.state, page.card) == (PageState.OPEN, None)
    assert page.refusal is CardRefusal.CHALLENGE_FAILED
    assert psp.answer_challenge(reference, confirmed=True) == page


def test_another_card_takes_the_place_of_a_challenged_one(psp: FakePsp) -> None:
    reference = psp.start_page(hosted_page_request()).reference
    psp.try_card(reference, card_entry(CHALLENGE))
    page = psp.try_card(reference, card_entry(MASTERCARD))
    assert psp.answer_challenge(reference, confirmed=True) == page
    assert page.card is not None
    assert page.card.last_four == "4444"


def test_a_refused_card_ends_the_challenge_of_the_one_before(psp: FakePsp) -> None:
    reference = psp.start_page(hosted_page_request()).reference
    psp.try_card(reference, card_entry(CHALLENGE))
    page = psp.try_card(reference, card_entry(DECLINED))
    assert (page.state, page.card) == (PageState.OPEN, None)
    assert psp.answer_challenge(reference, confirmed=True) == page


def test_a_page_takes_one_card(psp: FakePsp) -> None:
    reference = psp.start_page(hosted_page_request()).reference
    first = psp.try_card(reference, card_entry(GOOD))
    assert psp.try_card(reference, card_entry(MASTERCARD)) == first
    assert len(psp.tokens(MAIN)) == 1


def test_a_page_takes_one_card_under_concurrent_tries(psp: FakePsp, database: Path) -> None:
    # A second FakePsp on the same file stands for a second process.
    other = FakePsp(database, base_url=BASE_URL, clock=psp.clock, ids=SeededIds(2))
    reference = psp.start_page(hosted_page_request()).reference
    at_once = threading.Barrier(4)

    def try_at_once(each: FakePsp) -> str:
        at_once.wait()
        page = each.try_card(reference, card_entry())
        assert page.card is not None
        return page.card.token

    with ThreadPoolExecutor(4) as pool:
        tokens = set(pool.map(try_at_once, [psp, other, psp, other]))
    assert len(tokens) == 1
    assert psp.tokens(MAIN) == tokens


def test_a_limit_that_is_reached_stops_the_save(psp: FakePsp) -> None:
    reference = psp.start_page(hosted_page_request()).reference
    for _ in range(MAX_CARD_ATTEMPTS):
        psp.try_card(reference, card_entry(DECLINED))
    with pytest.raises(AttemptsUsedUp):
        psp.try_card(reference, card_entry(GOOD))
    assert psp.page(reference).state is PageState.OPEN
    assert psp.tokens(MAIN) == frozenset()


def test_the_last_try_may_succeed(psp: FakePsp) -> None:
    reference = psp.start_page(hosted_page_request()).reference
    for _ in range(MAX_CARD_ATTEMPTS - 1):
        psp.try_card(reference, card_entry(DECLINED))
    psp.try_card(reference, card_entry(CHALLENGE))
    assert psp.answer_challenge(reference, confirmed=True).state is PageState.COMPLETED


def test_a_card_number_has_one_fingerprint_at_a_merchant_account(psp: FakePsp) -> None:
    def collect(session: int, number: str, merchant_account: MerchantAccount) -> tuple[str, str]:
        request = hosted_page_request(session=session, merchant_account=merchant_account)
        card = psp.try_card(psp.start_page(request).reference, card_entry(number)).card
        assert card is not None
        return card.fingerprint, card.token

    cards = [
        collect(1, GOOD, MAIN),
        collect(2, GOOD, MAIN),
        collect(3, MASTERCARD, MAIN),
        collect(4, GOOD, OTHER),
    ]
    fingerprints = [fingerprint for fingerprint, _ in cards]
    assert fingerprints[0] == fingerprints[1]
    assert len(set(fingerprints)) == 3
    assert len({token for _, token in cards}) == 4


def test_a_closed_page_takes_no_card(psp: FakePsp) -> None:
    reference = psp.start_page(hosted_page_request()).reference
    closed = psp.close_page(reference)
    assert closed.state is PageState.CLOSED
    assert psp.close_page(reference) == closed
    assert psp.try_card(reference, card_entry()) == closed
    assert psp.tokens(MAIN) == frozenset()


def test_closing_a_page_ends_its_challenge(psp: FakePsp) -> None:
    reference = psp.start_page(hosted_page_request()).reference
    psp.try_card(reference, card_entry(CHALLENGE))
    closed = psp.close_page(reference)
    assert closed.card is None
    assert psp.answer_challenge(reference, confirmed=True) == closed


def test_closing_a_completed_page_changes_nothing(psp: FakePsp) -> None:
    reference = psp.start_page(hosted_page_request()).reference
    completed = psp.try_card(reference, card_entry())
    assert psp.close_page(reference) == completed


def test_a_page_past_its_end_takes_no_card(psp: FakePsp, clock: SettableClock) -> None:
    reference = psp.start_page(hosted_page_request()).reference
    clock.advance(timedelta(minutes=30))
    assert psp.try_card(reference, card_entry()).state is PageState.CLOSED


def test_a_page_that_was_seen_closed_stays_closed_when_the_clock_goes_back(
    psp: FakePsp, clock: SettableClock
) -> None:
    reference = psp.start_page(hosted_page_request()).reference
    clock.advance(timedelta(minutes=30))
    assert psp.page(reference).state is PageState.CLOSED
    clock.advance(timedelta(minutes=-20))
    assert psp.try_card(reference, card_entry()).state is PageState.CLOSED


def test_an_unknown_page_is_refused(psp: FakePsp) -> None:
    with pytest.raises(UnknownPage):
        psp.page("page_unknown")
    with pytest.raises(UnknownPage):
        psp.close_page("page_unknown")
    with pytest.raises(UnknownPage):
        psp.try_card("page_unknown", card_entry())


def test_a_token_is_discarded_once_and_again(psp: FakePsp) -> None:
    page = psp.try_card(psp.start_page(hosted_page_request()).reference, card_entry())
    assert page.card is not None
    psp.discard(MAIN, page.guest_reference, page.card.token)
    assert psp.tokens(MAIN) == frozenset()
    psp.discard(MAIN, page.guest_reference, page.card.token)


def test_a_token_of_another_guest_or_merchant_account_is_not_discarded(psp: FakePsp) -> None:
    page = psp.try_card(psp.start_page(hosted_page_request()).reference, card_entry())
    assert page.card is not None
    psp.discard(MAIN, GuestReference("guest_other"), page.card.token)
    psp.discard(OTHER, page.guest_reference, page.card.token)
    assert psp.tokens(MAIN) == {page.card.token}


def test_whoever_waits_for_events_is_woken(psp: FakePsp) -> None:
    reference = psp.start_page(hosted_page_request()).reference
    assert not psp.events_written.is_set()
    psp.try_card(reference, card_entry())
    assert psp.events_written.is_set()


def test_reading_leaves_no_transaction_open(psp: FakePsp) -> None:
    psp.page(psp.start_page(hosted_page_request()).reference)
    assert not psp._database._connection().conn.in_transaction


def test_pages_and_keys_outlive_the_process(
    psp: FakePsp, database: Path, clock: SettableClock
) -> None:
    page = psp.try_card(psp.start_page(hosted_page_request()).reference, card_entry())
    reopened = FakePsp(database, base_url=BASE_URL, clock=clock, ids=SeededIds(2))
    assert reopened.page(page.reference) == page
    assert reopened.webhook_secret == psp.webhook_secret
    assert reopened.form_token(page.reference) == psp.form_token(page.reference)
    again = reopened.start_page(hosted_page_request(session=2))
    card = reopened.try_card(again.reference, card_entry()).card
    assert page.card is not None
    assert card is not None
    assert card.fingerprint == page.card.fingerprint


def test_concurrent_founders_agree_on_the_keys(database: Path, clock: SettableClock) -> None:
    def found(seed: int) -> str:
        ids = SeededIds(seed)
        return FakePsp(database, base_url=BASE_URL, clock=clock, ids=ids).webhook_secret

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(found, range(8)))) == 1


def test_the_database_is_for_its_owner_alone(psp: FakePsp, database: Path) -> None:
    psp.start_page(hosted_page_request())
    for file in database.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_an_existing_database_is_closed_to_others(database: Path, clock: SettableClock) -> None:
    database.touch(mode=0o644)
    FakePsp(database, base_url=BASE_URL, clock=clock, ids=SeededIds())
    assert stat.S_IMODE(database.stat().st_mode) == 0o600


def test_what_is_answered_is_synced(psp: FakePsp, database: Path) -> None:
    with psp._database.write() as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert db.execute("PRAGMA synchronous").fetchone() == (2,)


def test_a_locked_database_is_an_outage_and_changes_nothing(psp: FakePsp, database: Path) -> None:
    page = psp.start_page(hosted_page_request())
    other = lock(psp, database)
    with pytest.raises(PspUnavailable):
        psp.try_card(page.reference, card_entry())
    other.close()
    assert psp.page(page.reference) == page


def test_a_folder_that_is_missing_is_an_outage(tmp_path: Path, clock: SettableClock) -> None:
    with pytest.raises(PspUnavailable):
        FakePsp(tmp_path / "no" / "psp.db", base_url=BASE_URL, clock=clock, ids=SeededIds())
