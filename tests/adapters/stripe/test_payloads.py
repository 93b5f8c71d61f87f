from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from markdown_it import MarkdownIt
from markdown_it.presets import gfm_like
from stripe.params.checkout import SessionCreateParams

from adapters.psp_suite.clock import START
from adapters.stripe.page_texts import LOCALES, consent_as_sent
from adapters.stripe.payloads import CheckoutSession, CurrentMethod, outcome_of, page_of
from domain.billing import AvsResult
from domain.identifiers import CardToken, GuestReference
from domain.psps.card import Funding
from domain.psps.hosted_page import (
    CardCollected,
    CardRefused,
    NoCardCollected,
    Outcome,
    PageClosed,
    Pending,
)
from domain.psps.payment_provider import NotFound, ProviderUnavailable
from tests.builders import a_page, a_shipped_consent

CREATED = int(START.timestamp())


def a_method(checks: Any = None, **card: Any) -> dict[str, Any]:
    return {
        "id": "pm_1",
        "type": "card",
        "created": CREATED,
        "customer": "cus_1",
        "card": {
            "brand": "visa",
            "last4": "4242",
            "exp_month": 9,
            "exp_year": 2031,
            "fingerprint": "Xt5EWLLDS7FJjR1c",
            "checks": checks,
            **card,
        },
    }


def an_intent(status: str, **fields: Any) -> dict[str, Any]:
    return {"id": "seti_1", "status": status, "last_setup_error": None, **fields}


def a_session(status: str | None, intent: Any, **fields: Any) -> CheckoutSession:
    answer = {
        "id": "cs_test_1",
        "livemode": False,
        "status": status,
        "expires_at": CREATED,
        "setup_intent": intent,
        "something": "new",
        **fields,
    }
    return msgspec.json.decode(msgspec.json.encode(answer), type=CheckoutSession)


def outcome_for(status: str | None, intent: Any) -> Outcome:
    return outcome_of(a_session(status, intent), a_page(), completed_at=None, now=START)


FAILED = {"code": "card_declined", "message": "zoe@guests.example was declined"}


@pytest.mark.parametrize(
    ("status", "intent", "expected"),
    [
        ("open", None, Pending()),
        # Once the session has ended, it is closed all the same.
        (None, None, Pending()),
        ("open", an_intent("requires_payment_method"), Pending()),
        ("open", an_intent("requires_payment_method", last_setup_error=FAILED), CardRefused()),
        ("open", an_intent("requires_action", last_setup_error=FAILED), Pending()),
        ("open", an_intent("processing"), Pending()),
        ("complete", an_intent("processing"), Pending()),
        ("complete", an_intent("requires_payment_method"), PageClosed()),
        ("complete", an_intent("canceled"), PageClosed()),
        ("expired", an_intent("canceled"), PageClosed()),
        ("expired", None, PageClosed()),
    ],
)
def test_the_outcome_of_a_page_without_a_card_is_read_from_the_setup_intent(
    status: str | None, intent: Any, expected: Outcome
) -> None:
    assert outcome_for(status, intent) == expected


@pytest.mark.parametrize("status", ["open", "expired"])
def test_a_stored_card_counts_as_collected_whatever_the_status_of_the_page(status: str) -> None:
    outcome = outcome_for(status, an_intent("succeeded", payment_method=a_method()))
    assert isinstance(outcome, CardCollected)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"funding": "debit", "country": "DE"}, (Funding.DEBIT, "DE", None)),
        ({"wallet": {"type": "google_pay"}}, (None, None, "google_pay")),
        ({"funding": "unknown", "wallet": {"type": "unknown"}}, (None, None, None)),
        ({"funding": "charge", "country": None, "wallet": None}, (None, None, None)),
    ],
    ids=str,
)
def test_the_funding_country_or_wallet_of_a_card_is_read_from_the_payment_method(
    told: dict[str, Any], expected: object
) -> None:
    method = a_method(**told)
    outcome = outcome_for("complete", an_intent("succeeded", payment_method=method))
    current = {**method, "livemode": False, "customer": {"id": "cus_1"}}
    reading = msgspec.convert(current, CurrentMethod).reading(
        GuestReference("cus_1"), CardToken("pm_1"), at=START
    )

    assert isinstance(outcome, CardCollected)
    for card in (outcome.card, reading.card):
        assert card is not None
        assert (card.funding, card.issuer_country, card.wallet) == expected


@pytest.mark.parametrize(
    ("line1", "postal_code", "expected"),
    [
        ("pass", "unavailable", AvsResult.MATCH),
        ("unchecked", "pass", AvsResult.MATCH),
        ("pass", "fail", AvsResult.MISMATCH),
        ("fail", None, AvsResult.MISMATCH),
        ("unavailable", "unchecked", AvsResult.NOT_CHECKED),
        (None, None, AvsResult.NOT_CHECKED),
    ],
)
def test_the_two_address_checks_of_stripe_are_combined_into_one_avs_result(
    line1: str | None, postal_code: str | None, expected: AvsResult
) -> None:
    checks = line1 and {"address_line1_check": line1, "address_postal_code_check": postal_code}
    outcome = outcome_for("complete", an_intent("succeeded", payment_method=a_method(checks)))
    assert isinstance(outcome, CardCollected)
    assert outcome.avs is expected


@pytest.mark.parametrize(
    "intent", ["seti_1", an_intent("succeeded", payment_method="pm_1")], ids=str
)
def test_a_stripe_session_with_an_unexpanded_part_counts_as_an_outage(intent: Any) -> None:
    with pytest.raises(ProviderUnavailable):
        outcome_for("complete", intent)


@pytest.mark.parametrize("intent", [None, an_intent("succeeded")], ids=str)
def test_a_stripe_session_with_a_part_that_is_still_null_counts_as_not_found(intent: Any) -> None:
    with pytest.raises(NotFound):
        outcome_for("complete", intent)


def test_a_card_that_stripe_returns_without_details_is_discarded() -> None:
    method = {**a_method(), "card": None}
    outcome = outcome_for("complete", an_intent("succeeded", payment_method=method))

    assert isinstance(outcome, NoCardCollected)
    assert (outcome.token, outcome.missing) == ("pm_1", "card")


def with_method(**fields: Any) -> dict[str, Any]:
    """Return the fields of a page whose payment method has these fields."""
    method = {**a_method(), **fields}
    return {"status": "complete", "intent": an_intent("succeeded", payment_method=method)}


@pytest.mark.parametrize(
    "fields",
    [
        {"livemode": None},
        {"expires_at": "soon"},
        {"setup_intent": {"status": "resting"}},
        with_method(card=a_method(brand="Visa; DROP")["card"]),
        with_method(card=a_method(last4="\u0664\u0662\u0664\u0662")["card"]),
        with_method(card=a_method(fingerprint="")["card"]),
        with_method(card=a_method({"address_line1_check": "perhaps"})["card"]),
        with_method(type="Sepa; DROP"),
        with_method(id=""),
    ],
)
def test_a_malformed_stripe_session_counts_as_an_outage(fields: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        a_session(**{"status": "open", "intent": None, **fields})


def test_a_stripe_page_without_an_address_counts_as_an_outage() -> None:
    with pytest.raises(ProviderUnavailable):
        page_of(a_session("open", None, url=None), "cus_1")


@pytest.mark.parametrize(
    "name",
    [
        "*Spa* __Spa__ **Spa** ~~Spa~~ day_spa_north",
        "[x](https://evil.example)",
        "![x](https://evil.example/pixel.png)",
        "<https://evil.example> <b>Spa</b>",
        "www.evil.example WWW.evil.example",
        "spa@evil.example",
        "Spa \\*north\\*",
        "A &lt; B &amp; C &#42;",
        "Søster’s 温泉 (North) #1!",
    ],
)
def test_markup_in_the_consent_text_is_escaped_for_stripe(name: str) -> None:
    text = a_shipped_consent(name).text
    for markdown in (MarkdownIt("commonmark"), MarkdownIt(gfm_like.make())):
        (shown,) = markdown.parseInline(consent_as_sent(text))
        assert {each.type for each in shown.children or ()} <= {"text", "text_special"}
        assert "".join(each.content for each in shown.children or ()) == text


def test_an_ordinary_name_is_sent_to_stripe_unchanged() -> None:
    text = a_shipped_consent("St. Mary’s Spa-Hotel (North) & Co, #1!").text
    assert consent_as_sent(text) == text


def test_the_supported_page_languages_match_the_stripe_sdk() -> None:
    listed = re.search(r"Literal\[(.*?)\]", repr(SessionCreateParams.__annotations__["locale"]))
    assert listed is not None
    assert set(re.findall("'(.+?)'", listed[1])) - {"auto"} == LOCALES


@pytest.mark.parametrize(
    ("attempt", "expected"),
    [
        (None, None),
        ("setatt_1", None),
        ({"payment_method_details": {"type": "card", "card": {"three_d_secure": None}}}, False),
        *(
            (
                {"payment_method_details": {"card": {"three_d_secure": {"result": result}}}},
                result == "authenticated",
            )
            for result in ("authenticated", "attempt_acknowledged", "exempted", None)
        ),
    ],
)
def test_the_latest_setup_attempt_shows_whether_the_guest_was_authenticated(
    attempt: Any, expected: bool | None
) -> None:
    intent = an_intent("succeeded", payment_method=a_method(), latest_attempt=attempt)
    outcome = outcome_for("complete", intent)

    assert isinstance(outcome, CardCollected)
    assert outcome.authenticated is expected
