"""Checks whether a PSP's response can be true."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from adapters.psp_suite.samples import NOW
from domain.billing import AvsResult
from domain.identifiers import CardToken, GuestReference
from domain.psps.card import Card, CardAtPsp, CardList, CardReading, Funding
from domain.psps.credibility import (
    MAX_FIELDS_LENGTH,
    is_credible,
    is_credible_list,
    is_credible_page,
    is_credible_reading,
    without_false_details,
)
from domain.psps.hosted_page import (
    CardCollected,
    CardRefused,
    HostedPage,
    NoCardCollected,
    PageClosed,
)

GUEST = GuestReference("guest_1")
PAGE = HostedPage(
    reference="page_1", address="https://psp.example/page_1", ends_at=NOW, guest_reference=GUEST
)
CARD = Card(
    guest_reference=GUEST,
    token=CardToken("card_1"),
    fingerprint="print_1",
    card_logo="visa",
    last_four="4242",
    expiry_month=9,
    expiry_year=2031,
)
COLLECTED = CardCollected(card=CARD, avs=AvsResult.MATCH, collected_at=NOW)
NO_TEXT = ("", "\x00", "a\nb", "x" * 256, "é")
NO_YEAR = (datetime.min.replace(tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC))

# `changes` is Any: fields of any type, whose names replace() checks.


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, True),
        ({"Ds_MerchantParameters": "eyJEUyI6IjAi", "empty": ""}, True),
        ({"a": "x\ny"}, False),
        ({"amount": 100}, False),
        ({"\ud800": "a"}, False),
        ({"a": "x" * MAX_FIELDS_LENGTH}, False),
    ],
)
def test_the_form_fields_of_a_psps_page_must_be_short_printable_text(
    fields: dict[str, Any], expected: bool
) -> None:
    assert is_credible_page(replace(PAGE, fields=fields)) is expected


@pytest.mark.parametrize("token", ["", "a card", "x" * 256])
def test_a_psps_card_list_with_an_invalid_card_is_not_credible(token: str) -> None:
    cards = [CardAtPsp(CARD.guest_reference, CARD.token)]
    assert is_credible_list(CardList(cards, None), None)
    assert not is_credible_list(CardList([cards[0]._replace(token=CardToken(token))], None), None)


@pytest.mark.parametrize("after", [None, "place"])
def test_a_psps_card_list_that_names_itself_as_the_next_page_is_not_credible(
    after: str | None,
) -> None:
    assert is_credible_list(CardList([], "next"), after)
    assert not is_credible_list(CardList([], after or ""), after)


def test_valid_outcomes_of_a_hosted_page_are_credible() -> None:
    assert is_credible_page(PAGE)
    for outcome in (
        COLLECTED,
        replace(COLLECTED, charge_reference="tr_1", network_transaction_id="0123"),
        PageClosed(),
    ):
        assert is_credible(outcome, PAGE)
    for card in (CARD, None):
        assert is_credible_reading(CardReading(card=card, read_at=NOW), GUEST, CARD.token)


@pytest.mark.parametrize(
    "changes",
    [
        *({name: text} for name in ("reference", "guest_reference") for text in NO_TEXT),
        *({"address": address} for address in ("", "javascript:x", "https://psp.example/\n")),
        *({"ends_at": time} for time in NO_YEAR),
    ],
)
def test_a_hosted_page_with_a_field_out_of_bounds_is_not_credible(changes: dict[str, Any]) -> None:
    assert not is_credible_page(replace(PAGE, **changes))


@pytest.mark.parametrize(
    "changes",
    [
        *({name: text} for name in ("token", "fingerprint", "card_logo") for text in NO_TEXT),
        *({"last_four": text} for text in ("", "424", "42425", "abcd")),
        *({"expiry_month": month} for month in (-1, 0, 13, 77)),
        *({"expiry_year": year} for year in (31, 1999, 2100, 10**18)),
        {"guest_reference": GuestReference("guest_2")},
    ],
)
def test_a_card_of_another_guest_or_with_a_field_out_of_bounds_is_not_credible(
    changes: dict[str, Any],
) -> None:
    card = replace(CARD, **changes)
    assert not is_credible(replace(COLLECTED, card=card), PAGE)
    assert not is_credible_reading(CardReading(card=card, read_at=NOW), GUEST, CARD.token)


def test_a_psps_response_about_another_card_is_not_credible() -> None:
    reading = CardReading(card=CARD, read_at=NOW)
    assert not is_credible_reading(reading, GUEST, CardToken("card_2"))


@pytest.mark.parametrize("reference", NO_TEXT)
@pytest.mark.parametrize("name", ["charge_reference", "network_transaction_id"])
def test_a_malformed_reference_for_later_charges_is_not_credible(name: str, reference: str) -> None:
    assert not is_credible(replace(COLLECTED, **{name: reference}), PAGE)  # type: ignore[arg-type] # both are texts


@pytest.mark.parametrize("time", NO_YEAR)
def test_an_outcome_with_a_time_out_of_bounds_is_not_credible(time: datetime) -> None:
    no_card = NoCardCollected(guest_reference=GUEST, token=CARD.token, collected_at=time)
    for outcome in (replace(COLLECTED, collected_at=time), no_card):
        assert not is_credible(outcome, PAGE)
    for card in (CARD, None):
        assert not is_credible_reading(CardReading(card=card, read_at=time), GUEST, CARD.token)


@pytest.mark.parametrize("refused_cards", [-1, 10**18])
def test_a_card_is_credible_even_with_a_negative_or_huge_count_of_refusals(
    refused_cards: int,
) -> None:
    assert is_credible(replace(COLLECTED, refused_cards=refused_cards), PAGE)


@pytest.mark.parametrize("code", ["card_declined", "51", "05:Do-not-honor", "x" * 100, None])
def test_a_well_formed_refusal_code_stays_in_the_outcome(code: str | None) -> None:
    refused = CardRefused(refused_cards=2, refusal_code=code)
    assert without_false_details(refused) == refused


@pytest.mark.parametrize(
    "code",
    [
        *(*NO_TEXT, "x" * 101, "the bank said no", "mia@mail.example", "\x1b[2J", 51),
        *("4242424242424242", "no:4242-4242-4242-4242"),
    ],
)
def test_a_malformed_refusal_code_is_removed_from_the_outcome(code: Any) -> None:
    assert without_false_details(replace(COLLECTED, refused_cards=2, refusal_code=code)) == replace(
        COLLECTED, refused_cards=2
    )


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (("prepaid", "DE", "apple_pay"), (Funding.PREPAID, "DE", "apple_pay")),
        (("charge", "de", "Apple Pay"), (None, None, None)),
        (("", "DEU", ""), (None, None, None)),
        ((7, 49, ["apple_pay"]), (None, None, None)),
        ((None, None, None), (None, None, None)),
    ],
    ids=str,
)
def test_optional_card_details_that_cannot_be_true_are_dropped(told: Any, expected: Any) -> None:
    funding, issuer_country, wallet = told
    card = replace(CARD, funding=funding, issuer_country=issuer_country, wallet=wallet)

    outcome = without_false_details(replace(COLLECTED, card=card))

    assert isinstance(outcome, CardCollected)
    kept = outcome.card
    assert (kept.funding, kept.issuer_country, kept.wallet) == expected
