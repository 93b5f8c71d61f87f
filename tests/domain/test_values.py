from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from adapters.psp.contract.samples import MERCHANT_ACCOUNT
from domain.centers.payment_configuration import PaymentConfiguration
from domain.fields import is_clean
from domain.identifiers import plain_uuid
from domain.psps.hosted_page import Consent, consent_for
from tests.builders import PROVIDER, a_payment_account


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("6F9619FF-8B86-D011-B42D-00CF4FC964FF", "6f9619ff-8b86-d011-b42d-00cf4fc964ff"),
        ("{6f9619ff-8b86-d011-b42d-00cf4fc964ff}", None),
        ("urn:uuid:6f9619ff-8b86-d011-b42d-00cf4fc964ff", None),
        ("6f9619ff8b86d011b42d00cf4fc964ff", None),
        ("6f9619ff-8b86-d011-b42d-00cf4fc964ff\n", None),
        ("6f9619ff-8b86-d011-b42d-00cf4fc964f\u0663", None),
        (7, None),
        (None, None),
    ],
)
def test_a_uuid_has_one_form(value: object, read: str | None) -> None:
    assert plain_uuid(value) == read


@pytest.mark.parametrize(
    ("now", "expired"),
    [
        (datetime(2031, 9, 30, 23, 59, 59, tzinfo=UTC), False),
        (datetime(2031, 10, 1, tzinfo=UTC), True),
        (datetime(2032, 1, 1, tzinfo=UTC), True),
    ],
)
def test_a_card_expires_with_the_last_day_of_its_month(now: datetime, expired: bool) -> None:
    assert a_payment_account(expiry_month=9, expiry_year=2031).has_expired(now) is expired


@pytest.mark.parametrize(
    ("changes", "is_same"),
    [
        ({}, True),
        ({"expiry_year": 2040, "token": "another", "last_four": "0000"}, True),
        ({"fingerprint": "another"}, False),
        ({"provider": "another"}, False),
        ({"merchant_account": "another"}, False),
    ],
)
def test_a_card_is_the_same_by_its_fingerprint_at_one_merchant_account(
    changes: dict[str, Any], is_same: bool
) -> None:
    configuration = PaymentConfiguration(provider=PROVIDER, merchant_account=MERCHANT_ACCOUNT)

    assert a_payment_account(**changes).is_same_card(a_payment_account(), configuration) is is_same


def test_a_consent_text_is_known_by_its_version() -> None:
    """A text that changes needs a version of its own: accounts keep the version alone."""
    assert consent_for("Harbor Spa") == Consent(
        version="2026-11",
        text=(
            "By adding this card you allow Harbor Spa to keep it on file and to charge it for "
            "services, products and fees that you agree to. Harbor Spa will tell you before these "
            "terms change. You can withdraw at any time by asking for the card to be removed."
        ),
    )


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("Zo\u00eb", True),
        ("\u0646\u0627\u200c\u0645\u0647", True),
        ("a\tb", False),
        ("a\x7f", False),
        ("\x9b", False),
        ("abc\u202edef", False),
        ("abc\u2066def", False),
    ],
)
def test_clean_text_has_no_control_characters(text: str, clean: bool) -> None:
    assert is_clean(text) is clean
