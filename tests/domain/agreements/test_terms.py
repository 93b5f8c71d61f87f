"""The terms of a booking as a client sends them."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pytest

from adapters.babel_formats import BabelFormats
from adapters.psp_suite.samples import NOW
from domain.agreements.terms import AgreementTerms, Money, parse_agreement
from domain.errors import InvalidField

STARTS_AT: Final = NOW + timedelta(days=10)
EUR: Final = {"amount": "40.00", "currency": "EUR"}
GIVEN: Final[dict[str, Any]] = {
    "reference": "booking-17",
    "description": "2 × massage, 3 guests",
    "starts_at": STARTS_AT.isoformat(),
    "ends_at": (STARTS_AT + timedelta(hours=1)).isoformat(),
    "no_show": {"amount": "80.00", "currency": "EUR"},
    "late_cancellation": EUR,
    "cancel_by": STARTS_AT.isoformat(),
    "policy_uri": "https://shop.example/terms",
}


def parse(**changes: Any) -> AgreementTerms | None:
    return parse_agreement(GIVEN | changes, BabelFormats().decimals_of, NOW)


def at(days: float) -> str:
    return (NOW + timedelta(days=days)).isoformat()


def test_valid_terms_of_a_booking_are_parsed() -> None:
    assert parse() == AgreementTerms(
        reference="booking-17",
        description="2 × massage, 3 guests",
        starts_at=STARTS_AT,
        ends_at=STARTS_AT + timedelta(hours=1),
        no_show=Money(amount=Decimal("80.00"), currency="EUR"),
        late_cancellation=Money(amount=Decimal("40.00"), currency="EUR"),
        cancel_by=STARTS_AT,
        policy_uri="https://shop.example/terms",
    )
    assert parse_agreement(None, BabelFormats().decimals_of, NOW) is None


def test_optional_fields_of_a_booking_may_be_null_or_missing() -> None:
    named = ("reference", "description", "starts_at", "ends_at", "no_show")
    few = {name: GIVEN[name] for name in named}
    terms = parse_agreement(few, BabelFormats().decimals_of, NOW)
    assert terms == parse(late_cancellation=None, cancel_by=None, policy_uri=None)


@pytest.mark.parametrize(
    ("amount", "currency"),
    [("0.01", "EUR"), ("4000", "JPY"), ("1.500", "KWD"), ("9999999999.99", "EUR")],
)
def test_an_amount_may_have_as_many_decimals_as_its_currency(amount: str, currency: str) -> None:
    terms = parse(no_show={"amount": amount, "currency": currency})
    assert terms is not None
    assert terms.no_show == Money(amount=Decimal(amount), currency=currency)


@pytest.mark.parametrize("time", ["2026-03-14T05:06:07Z", "2026-03-14T06:06:07.5+01:00"])
def test_times_in_the_terms_of_a_booking_are_stored_in_utc(time: str) -> None:
    terms = parse(starts_at=time, cancel_by=None)
    assert terms is not None
    assert terms.starts_at.utcoffset() == timedelta(0)
    assert terms.starts_at == datetime.fromisoformat(time)


WRONG: Final[dict[str, list[object]]] = {
    "reference": ["", " ", "x" * 65, None, 5, "a\nb", "4242424242424242"],
    "description": ["", "x" * 201, None, "a\tb", "card 4242 4242 4242 4242"],
    "starts_at": ["", None, "2026-03-14", "2026-03-14T05:06:07", "2026-13-01T00:00:00Z"],
    "ends_at": [5, "2026-03-14 05:06:07Z", at(-1), at(401), STARTS_AT.isoformat()],
    "cancel_by": ["soon", at(11)],
    "policy_uri": ["http://shop.example", "javascript:alert(1)", 5, "/terms"],
    "no_show": ["40.00", {}, {"amount": "40.00"}, {**EUR, "vat": "1"}],
}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        *(
            ({name: value}, f"agreement.{name} must be")
            for name, values in WRONG.items()
            for value in values
        ),
        *(
            ({"no_show": {**EUR, "amount": amount}}, "agreement.no_show.amount must be")
            for amount in (
                *("0.00", "-1.00", "40", "40.0", "40.000", "1,00", "", " 40.00", "040.00"),
                *("10000000000.00", "1e3", "٤٠.00", 40.0, None),
            )
        ),
        *(
            ({"no_show": {**EUR, "currency": currency}}, "agreement.no_show.currency must be")
            for currency in ("eur", "XXX", "XAU", "DEM", "", None, 978)
        ),
        ({"late_cancellation": {"amount": "1.00", "currency": "JPY"}}, "0 of them after the point"),
        ({"no_show": None, "late_cancellation": None}, "agreement.no_show must be given, or late"),
        ({"starts_at": "0001-01-02T00:00:00Z"}, "agreement.starts_at must be at most 400"),
        ({"starts_at": "0001-01-01T00:00:00+14:00"}, "agreement.starts_at must be a time"),
        ({"ends_at": "9999-12-31T23:59:59-14:00"}, "agreement.ends_at must be a time"),
        # Fields that are misspelt or have another purpose.
        ({"noshow": EUR}, "agreement must be an object with no other fields than"),
        ({"deposit": EUR}, "agreement must be an object with no other fields than"),
    ],
    ids=str,
)
def test_the_refusal_of_invalid_booking_terms_names_the_invalid_field(
    changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InvalidField) as refused:
        parse(**changes)
    assert complaint in refused.value.message


@pytest.mark.parametrize("value", ["", [], 5, True, "booking-17"])
def test_an_agreement_that_is_not_a_json_object_is_refused(value: object) -> None:
    with pytest.raises(InvalidField, match="agreement must be an object"):
        parse_agreement(value, BabelFormats().decimals_of, NOW)
