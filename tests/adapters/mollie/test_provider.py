"""Tests of Mollie's adapter beyond the contract suite for PSPs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from adapters.mollie.payloads import payment_body
from adapters.psp_suite import stand_in
from adapters.psp_suite.samples import MERCHANT_ACCOUNT as MAIN
from adapters.psp_suite.samples import a_uuid
from adapters.psp_suite.stand_in import Response, json_response, respond_with
from domain.identifiers import (
    DEFAULT_MERCHANT_ACCOUNT,
    CardToken,
    GuestId,
    GuestReference,
    MerchantAccount,
)
from domain.psps.card import Funding
from domain.psps.hosted_page import CardCollected, HostedPage, NoCardCollected, PageClosed, Pending
from domain.psps.payment_provider import NotFound, ProviderRefused, ProviderUnavailable
from tests.adapters.mollie.conftest import SETTINGS, Shop, adapter_for
from tests.fake_mollie.mollie import CHALLENGED, GOOD, TEST_KEY, FakeMollie, an_error

HOUR: Final = timedelta(hours=1)
MINUTE: Final = timedelta(minutes=1)
CUSTOMERS: Final = "POST /v2/customers"
PAYMENTS: Final = "POST /v2/payments"


class TestRetryAfterAnHour:
    """After an hour, Mollie has forgotten the idempotency keys."""

    @pytest.fixture
    def made(self, shop: Shop) -> str:
        """Create a page whose response is lost, and two others. Return the first reference."""
        shop.mollie.server.have(stand_in.drop_response, PAYMENTS)
        with pytest.raises(ProviderUnavailable):
            shop.start()
        shop.mollie.server.recover()
        for number in (31, 32):
            shop.start(number, guest_id=GuestId(a_uuid(number)))
        shop.clock.advance(HOUR + MINUTE)
        return next(iter(shop.main.payments))

    @pytest.mark.parametrize("limit", [100, 1])
    def test_an_existing_page_is_found_in_mollies_list_of_payments_even_if_our_clock_was_ahead(
        self, shop: Shop, made: str, limit: int
    ) -> None:
        shop.mollie.limit = limit

        page = shop.start(begun_at=shop.request.begun_at + 3 * MINUTE)

        assert (page.reference, page.ends_at) == (made, shop.request.begun_at + 30 * MINUTE)
        assert page.guest_reference == next(iter(shop.main.customers))
        assert shop.outcome(page) == PageClosed()

    def test_a_list_of_payments_that_is_too_long_to_search_ends_the_attempt(
        self, shop: Shop, made: str
    ) -> None:
        customer = shop.main.payments[made]["customerId"]
        for number in (33, 34):
            shop.start(number, guest_reference=customer)
        shop.mollie.limit = 1

        # The list can only become longer. If this were an outage, the session would never end.
        with pytest.raises(ProviderRefused) as refused:
            shop.start()

        assert refused.value.guest_reference == customer
        assert len(shop.main.payments) == 5

    @pytest.mark.usefixtures("made")
    def test_a_refusal_to_list_customers_counts_as_an_outage_of_mollie(self, shop: Shop) -> None:
        shop.mollie.server.have(respond_with(json_response({}, 400)), "GET /v2/customers")

        with pytest.raises(ProviderUnavailable):
            shop.start()
        assert len(shop.main.customers) == 3

    def test_an_existing_mollie_customer_without_a_page_is_reused(self, shop: Shop) -> None:
        shop.mollie.server.have(stand_in.drop_call, PAYMENTS)
        with pytest.raises(ProviderUnavailable):
            shop.start()
        shop.mollie.server.recover()
        shop.clock.advance(HOUR + MINUTE)

        assert {shop.start().guest_reference} == shop.main.customers.keys()
        assert len(shop.main.payments) == 1

    def test_two_concurrent_requests_that_find_no_existing_page_create_one_page(
        self, shop: Shop
    ) -> None:
        shop.clock.advance(HOUR)
        others: list[HostedPage] = []

        def meanwhile(_: object, act: stand_in.Act) -> Response:
            none_yet = act()
            shop.mollie.server.recover()
            others.append(shop.start())
            return none_yet

        shop.mollie.server.have(meanwhile, "GET /v2/payments")

        assert [shop.start()] == others
        assert len(shop.main.payments) == 1

    def test_the_existing_page_of_a_deleted_mollie_customer_is_not_used(
        self, shop: Shop, made: str
    ) -> None:
        shop.mollie.delete_customer(shop.main, shop.main.payments[made]["customerId"])

        page = shop.start()

        assert page.reference != made
        assert page.guest_reference not in shop.main.gone

    def test_the_search_for_an_existing_page_stops_at_payments_older_than_the_attempt(
        self, shop: Shop, made: str
    ) -> None:
        shop.mollie.limit = 1
        begun_at = shop.clock.now()
        for number in (33, 34):
            shop.start(number, begun_at=begun_at)
        shop.clock.advance(HOUR + 10 * MINUTE)

        later = shop.start(40, begun_at=begun_at + 10 * MINUTE)
        assert later.reference not in (made, "")


@pytest.mark.parametrize(
    ("number", "authenticated"), [(GOOD, False), (CHALLENGED, True)], ids=["normal", "3-D Secure"]
)
def test_the_outcome_of_a_collected_card_shows_whether_the_guest_was_authenticated(
    shop: Shop, number: str, authenticated: bool
) -> None:
    page = shop.start()
    shop.mollie.type_card(page.reference, number)
    shop.mollie.answer_challenge(page.reference, confirmed=True)

    outcome = shop.outcome(page)

    assert isinstance(outcome, CardCollected)
    assert outcome.authenticated is authenticated


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"wallet": "applepay"}, (Funding.CREDIT, "NL", "apple_pay")),
        ({"wallet": "googlepay", "cardFunding": "prepaid"}, (Funding.PREPAID, "NL", "google_pay")),
        ({"cardFunding": "deferred-debit", "cardCountryCode": None}, (None, None, None)),
    ],
    ids=str,
)
def test_the_funding_country_or_wallet_of_a_card_is_read_from_the_payment(
    shop: Shop, told: dict[str, Any], expected: object
) -> None:
    page = shop.start()
    shop.mollie.type_card(page.reference, GOOD)
    shop.main.payments[page.reference]["details"] |= told

    outcome = shop.outcome(page)

    assert isinstance(outcome, CardCollected)
    card = outcome.card
    assert (card.funding, card.issuer_country, card.wallet) == expected


@pytest.mark.parametrize(
    "changes",
    [{"scopes": ["customer-present"]}, {"scopes": None}, {"method": "paypal", "details": {}}],
    ids=str,
)
def test_a_mandate_without_a_chargeable_card_does_not_count_as_a_collected_card(
    shop: Shop, changes: Mapping[str, object]
) -> None:
    page = shop.paid_page()
    shop.mandate().update(changes)

    with capture_logs() as lines:
        outcome = shop.outcome(page)

    assert isinstance(outcome, NoCardCollected)
    assert [line["event"] for line in lines] == ["mollie_collected_no_card"]
    # Such a card cannot be imported either.
    with pytest.raises(ProviderRefused):
        shop.provider.read_card(MAIN, outcome.guest_reference, outcome.token)
    shop.provider.discard(MAIN, outcome.guest_reference, outcome.token)
    assert shop.outcome(page) == PageClosed()


@pytest.mark.parametrize("field", ["cardNumber", "cardExpiryDate"])
def test_a_card_is_discarded_if_mollie_omits_required_details(shop: Shop, field: str) -> None:
    page = shop.paid_page()
    shop.mandate()["details"][field] = None

    outcome = shop.outcome(page)

    assert isinstance(outcome, NoCardCollected)
    assert (outcome.token, outcome.missing) == (shop.mandate()["id"], field)
    # If the card is already on file, it does not change.
    with pytest.raises(ProviderUnavailable) as raised:
        shop.provider.read_card(MAIN, outcome.guest_reference, outcome.token)
    assert raised.value.details.param == field


@pytest.mark.parametrize("details", [{"cardNumber": "12"}, {"cardExpiryDate": "09/31"}], ids=str)
def test_impossible_card_details_from_mollie_count_as_an_outage(
    shop: Shop, details: Mapping[str, object]
) -> None:
    page = shop.paid_page()
    shop.mandate()["details"] |= details

    with pytest.raises(ProviderUnavailable) as raised:
        shop.outcome(page)
    assert raised.value.details.param == f"details.{next(iter(details))}"


def test_a_card_gets_the_time_of_its_mandate_if_the_payment_has_no_time(shop: Shop) -> None:
    page = shop.start()
    shop.clock.advance(MINUTE)
    shop.mollie.type_card(page.reference, GOOD)
    shop.main.payments[page.reference]["paidAt"] = None

    outcome = shop.outcome(page)

    assert isinstance(outcome, CardCollected)
    assert outcome.collected_at.isoformat() == shop.mandate()["createdAt"]


def test_an_invalid_mandate_counts_as_a_deleted_card(shop: Shop) -> None:
    page = shop.paid_page()
    shop.mandate()["status"] = "invalid"

    assert shop.outcome(page) == PageClosed()
    token = CardToken(shop.mandate()["id"])
    assert shop.provider.read_card(MAIN, page.guest_reference, token).card is None


def without_mandate(mollie: FakeMollie) -> None:
    for payment in mollie.main.payments.values():
        del payment["mandateId"]


def with_an_unknown_one(mollie: FakeMollie) -> None:
    mollie.main.mandates.clear()


@pytest.mark.parametrize("arrange", [without_mandate, with_an_unknown_one])
def test_a_payment_whose_mandate_does_not_exist_yet_counts_as_not_found(
    shop: Shop, arrange: Callable[[FakeMollie], None]
) -> None:
    page = shop.paid_page()
    arrange(shop.mollie)

    with pytest.raises(NotFound):
        shop.outcome(page)


def test_the_outcome_is_pending_while_the_payment_or_its_mandate_is_pending(shop: Shop) -> None:
    page = shop.paid_page()
    shop.mandate()["status"] = "pending"
    assert shop.outcome(page) == Pending()

    shop.main.payments[page.reference] |= {"status": "pending", "mandateId": None}
    assert shop.outcome(page) == Pending()


def test_a_payment_sent_to_mollie_contains_no_details_of_the_guest(shop: Shop) -> None:
    page = shop.start(guest_name="Zoë Null", guest_email="zoe@guests.example")

    payment = str(shop.main.payments[page.reference])
    assert not [word for word in ("Zoë", "Null", "zoe@") if word in payment]


@pytest.mark.parametrize(
    ("details", "shown"),
    [
        ({"cardLabel": None}, "unknown"),
        ({"cardLabel": "Diners Club"}, "diners"),
        ({"cardLabel": "Carta Si"}, "cartasi"),
    ],
    ids=str,
)
def test_the_brand_of_a_card_is_mollies_card_label_or_unknown(
    shop: Shop, details: Mapping[str, object], shown: str
) -> None:
    page = shop.paid_page()
    shop.mandate()["details"] |= details

    outcome = shop.outcome(page)

    assert isinstance(outcome, CardCollected)
    assert outcome.card.card_logo == shown


def test_a_mollie_payment_that_cannot_be_cancelled_stays_open_until_it_expires(shop: Shop) -> None:
    page = shop.start()

    shop.provider.close(shop.request, page)

    assert not any(call.startswith("DELETE") for call in shop.mollie.server.calls)
    assert shop.outcome(page) == Pending()
    shop.clock.advance(page.ends_at - shop.clock.now())
    assert shop.outcome(page) == PageClosed()


def test_a_card_typed_while_its_payment_is_being_cancelled_is_collected(shop: Shop) -> None:
    shop.main.cancelable = True
    page = shop.start()

    def paid_meanwhile(_: object, act: stand_in.Act) -> Response:
        shop.mollie.type_card(page.reference, GOOD)
        return act()

    shop.mollie.server.have(paid_meanwhile, "DELETE")
    shop.provider.close(shop.request, page)

    assert isinstance(shop.outcome(page), CardCollected)


@pytest.mark.parametrize(
    ("base", "account", "url"),
    [
        ("https://pay.example", MAIN, "https://pay.example/webhooks/mollie/main"),
        ("https://pay.example", DEFAULT_MERCHANT_ACCOUNT, "https://pay.example/webhooks/mollie"),
        ("http://127.0.0.1:8000", MAIN, None),
    ],
)
def test_a_payment_includes_the_webhook_address_only_if_mollie_can_reach_it(
    shop: Shop, base: str, account: MerchantAccount, url: str | None
) -> None:
    keys = {account: SETTINGS.accounts[MAIN]}
    settings = replace(SETTINGS, accounts=keys, webhooks_url=f"{base}/webhooks/mollie")
    shop.provider = adapter_for(shop.mollie, shop.clock, settings)

    shop.start(merchant_account=account)

    (payment,) = shop.main.payments.values()
    assert payment.get("webhookUrl") == url


def test_a_page_is_created_even_if_mollie_refuses_the_email_address(shop: Shop) -> None:
    page = shop.start(guest_email="zoë@guests.example")

    assert shop.main.customers[page.guest_reference]["email"] is None


def test_a_refusal_to_create_a_page_reports_the_customer_that_mollie_created(shop: Shop) -> None:
    shop.main.methods = ["ideal"]

    with pytest.raises(ProviderRefused) as refused:
        shop.start()

    assert {refused.value.guest_reference} == shop.main.customers.keys()
    assert refused.value.details.code == "method"


@pytest.mark.parametrize(("currency", "value"), [("EUR", "0.00"), ("JPY", "0")])
def test_the_payment_amount_is_zero_with_the_decimals_of_its_currency(
    shop: Shop, currency: str, value: str
) -> None:
    body = payment_body(shop.request, GuestReference("cst_1"), currency=currency, webhooks_url=None)

    assert body["amount"] == {"currency": currency, "value": value}


@pytest.mark.parametrize(
    ("language", "locale"),
    [("de-AT", "de_AT"), ("pt-BR", "pt_PT"), ("en-AU", "en_GB"), ("ja", "en_GB")],
)
def test_the_page_is_in_the_closest_language_that_mollie_supports(
    shop: Shop, language: str, locale: str
) -> None:
    shop.start(consent=replace(shop.request.consent, language=language))

    (payment,) = shop.main.payments.values()
    assert payment["locale"] == locale


@pytest.mark.parametrize("call", [CUSTOMERS, PAYMENTS, "GET /v2/profiles/me"])
def test_a_live_mode_response_from_mollie_is_not_used_with_a_test_key(
    shop: Shop, call: str
) -> None:
    shop.answered_with(call, mode="live")

    with pytest.raises(ProviderUnavailable) as raised:
        shop.provider.identity(MAIN) if "profiles" in call else shop.start()

    assert raised.value.details.error == "WrongMode"
    assert TEST_KEY not in str(raised.value)


def test_a_page_expires_at_the_time_given_by_mollie(shop: Shop) -> None:
    shop.answered_with(PAYMENTS, expiresAt=(shop.clock.now() + HOUR).isoformat())

    assert shop.start().ends_at == shop.clock.now() + HOUR


def test_the_return_uri_is_used_if_mollie_returns_no_address_for_a_page(shop: Shop) -> None:
    shop.answered_with(PAYMENTS, _links={})

    assert shop.start().address == shop.request.return_uri


def test_a_payment_whose_customer_was_deleted_counts_as_closed_once_it_has_expired(
    shop: Shop,
) -> None:
    page = shop.start()
    shop.mollie.delete_customer(shop.main, page.guest_reference)
    del shop.main.payments[page.reference]["customerId"]
    shop.clock.advance(page.ends_at - shop.clock.now())

    # Else the session would wait for an answer for ever.
    assert shop.outcome(page) == PageClosed()


@pytest.mark.parametrize(("call", "pages"), [(CUSTOMERS, 1), (PAYMENTS, 0)])
def test_a_new_attempt_does_not_reuse_an_idempotency_key_for_which_mollie_saved_an_error(
    shop: Shop, call: str, pages: int
) -> None:
    kept = replace(json_response(an_error(500), 500), headers={"Idempotent-Replayed": "true"})
    shop.mollie.server.have(respond_with(kept), call, times=3)

    with suppress(ProviderRefused):
        shop.start()

    assert len(shop.main.payments) == pages
    assert shop.start(attempt=2).reference
