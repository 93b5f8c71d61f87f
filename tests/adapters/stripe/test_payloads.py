from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from markdown_it import MarkdownIt
from markdown_it.presets import gfm_like

from adapters.psp.contract.clock import START
from adapters.stripe.payloads import (
    CheckoutSession,
    consent_as_sent,
    outcome_of,
    page_of,
)
from domain.billing import AvsResult
from domain.hosted_pages import (
    CardCollected,
    CardRefused,
    NoCardCollected,
    Outcome,
    PageClosed,
    Pending,
    consent_for,
)
from domain.identifiers import CardToken
from domain.ports import ProviderUnavailable
from tests.builders import a_page

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


def a_session(status: str, intent: Any, **fields: Any) -> CheckoutSession:
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


def told(status: str, intent: Any) -> Outcome:
    return outcome_of(a_session(status, intent), a_page(), completed_at=None, now=START)


FAILED = {"code": "card_declined", "message": "zoe@guests.example was declined"}


@pytest.mark.parametrize(
    ("status", "intent", "expected"),
    [
        ("open", None, Pending()),
        ("open", an_intent("requires_payment_method"), Pending()),
        ("open", an_intent("requires_payment_method", last_setup_error=FAILED), CardRefused()),
        ("open", an_intent("requires_confirmation"), Pending()),
        ("open", an_intent("requires_action"), Pending()),
        ("open", an_intent("requires_action", last_setup_error=FAILED), Pending()),
        ("open", an_intent("processing"), Pending()),
        ("complete", an_intent("processing"), Pending()),
        ("complete", an_intent("requires_action"), Pending()),
        ("complete", an_intent("requires_payment_method"), PageClosed()),
        ("complete", an_intent("canceled"), PageClosed()),
        ("expired", an_intent("canceled"), PageClosed()),
        ("expired", an_intent("processing"), PageClosed()),
        ("expired", None, PageClosed()),
    ],
)
def test_what_a_page_tells_without_a_card(status: str, intent: Any, expected: Outcome) -> None:
    assert told(status, intent) == expected


@pytest.mark.parametrize("status", ["open", "complete", "expired"])
def test_a_card_that_stripe_has_stored_is_told_whatever_the_page_says(status: str) -> None:
    outcome = told(status, an_intent("succeeded", payment_method=a_method()))
    assert isinstance(outcome, CardCollected)
    assert outcome.collected_at == START


@pytest.mark.parametrize(
    "method",
    [
        a_method(brand="link", last4="0000", fingerprint=None),
        {**a_method(), "type": "link"},
        {**a_method(), "type": "sepa_debit", "card": None},
        {"id": "pm_1", "type": "us_bank_account", "created": CREATED, "customer": "cus_1"},
    ],
)
def test_what_is_no_card_is_told_apart_from_one(method: dict[str, Any]) -> None:
    page = a_page()
    assert told("complete", an_intent("succeeded", payment_method=method)) == NoCardCollected(
        guest_reference=page.guest_reference, token=CardToken("pm_1"), collected_at=START
    )


@pytest.mark.parametrize(
    ("line1", "postal_code", "expected"),
    [
        ("pass", "pass", AvsResult.MATCH),
        ("pass", "unavailable", AvsResult.MATCH),
        (None, "pass", AvsResult.MATCH),
        ("pass", "fail", AvsResult.MISMATCH),
        ("fail", "pass", AvsResult.MISMATCH),
        ("fail", None, AvsResult.MISMATCH),
        ("unavailable", "unchecked", AvsResult.NOT_CHECKED),
        (None, None, AvsResult.NOT_CHECKED),
    ],
)
def test_what_the_bank_says_of_the_address(
    line1: str | None, postal_code: str | None, expected: AvsResult
) -> None:
    checks = {"address_line1_check": line1, "address_postal_code_check": postal_code}
    outcome = told("complete", an_intent("succeeded", payment_method=a_method(checks)))
    assert isinstance(outcome, CardCollected)
    assert outcome.avs is expected


def test_without_checks_nothing_was_checked() -> None:
    outcome = told("complete", an_intent("succeeded", payment_method=a_method(None)))
    assert isinstance(outcome, CardCollected)
    assert outcome.avs is AvsResult.NOT_CHECKED


def test_a_card_without_a_fingerprint_is_like_no_other() -> None:
    outcome = told("complete", an_intent("succeeded", payment_method=a_method(fingerprint=None)))
    assert isinstance(outcome, CardCollected)
    assert outcome.card.fingerprint == outcome.card.token == "pm_1"


@pytest.mark.parametrize(
    "intent",
    [None, "seti_1", an_intent("succeeded"), an_intent("succeeded", payment_method="pm_1")],
)
def test_what_was_left_out_is_not_guessed(intent: Any) -> None:
    with pytest.raises(ProviderUnavailable):
        told("complete", intent)


@pytest.mark.parametrize(
    "method",
    [
        a_method(brand="Visa; DROP"),
        a_method(last4="424"),
        a_method(last4="\u0664\u0662\u0664\u0662"),
        a_method(exp_month=13),
        a_method(exp_year="2031"),
        a_method(fingerprint=""),
        a_method({"address_line1_check": "perhaps"}),
        {**a_method(), "type": "Sepa; DROP"},
        {**a_method(), "card": None},
        {**a_method(), "created": -1},
        {**a_method(), "created": 10**18},
        {**a_method(), "id": ""},
    ],
)
def test_a_payment_method_of_another_form_is_not_understood(method: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        a_session("complete", an_intent("succeeded", payment_method=method))


@pytest.mark.parametrize(
    "fields",
    [
        {"status": "resting"},
        {"status": None},
        {"livemode": None},
        {"expires_at": "soon"},
        {"setup_intent": {"status": "resting"}},
        {"id": None},
    ],
)
def test_a_session_of_another_form_is_not_understood(fields: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        a_session(**{"status": "open", "intent": None, **fields})


@pytest.mark.parametrize("url", [None, ""])
def test_a_page_without_an_address_is_not_understood(url: str | None) -> None:
    with pytest.raises(ProviderUnavailable):
        page_of(a_session("open", None, url=url), "cus_1")


def test_a_page_ends_when_stripe_says_so() -> None:
    session = a_session("open", None, url="https://checkout.stripe.com/c/pay/x", expires_at=CREATED)
    assert page_of(session, "cus_1").ends_at - START == timedelta(0)


@pytest.mark.parametrize(
    "name",
    [
        "Harbor Spa",
        "Smith & Co",
        "*Spa* [x](https://evil.example)",
        "[x][1]",
        "![x](https://evil.example/pixel.png)",
        "<https://evil.example>",
        "<b>Spa</b>",
        "www.evil.example",
        "WWW.evil.example",
        "https://evil.example",
        "spa@evil.example",
        "day_spa_north",
        "__Spa__ and **Spa** and ~~Spa~~",
        "`Spa`",
        "Spa \\*north\\*",
        "A &lt; B &amp; C &#42;",
        "Søster’s 温泉 (North) #1!",
    ],
)
def test_stripe_shows_the_consent_text_as_it_is_whatever_the_center_is_called(name: str) -> None:
    text = consent_for(name).text
    for markdown in (MarkdownIt("commonmark"), MarkdownIt(gfm_like.make())):
        (shown,) = markdown.parseInline(consent_as_sent(text))
        assert {each.type for each in shown.children or ()} <= {"text", "text_special"}
        assert "".join(each.content for each in shown.children or ()) == text


@pytest.mark.parametrize("name", ["Smith & Co", "St. Mary’s Spa-Hotel (North), #1!"])
def test_an_ordinary_name_is_sent_as_it_is(name: str) -> None:
    assert consent_as_sent(consent_for(name).text) == consent_for(name).text
