"""What is Mollie's own; what every adapter promises is in the contract suite."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from adapters.mollie.payloads import payment_body
from adapters.mollie.provider import MollieProvider
from adapters.psp import stand_in
from adapters.psp.contract.clock import SettableClock
from adapters.psp.contract.samples import MERCHANT_ACCOUNT as MAIN
from adapters.psp.contract.samples import a_uuid
from adapters.psp.stand_in import Response, json_response
from domain.identifiers import (
    DEFAULT_MERCHANT_ACCOUNT,
    CardToken,
    GuestId,
    GuestReference,
    MerchantAccount,
    TokenId,
)
from domain.psps.hosted_page import (
    CardCollected,
    HostedPage,
    HostedPageRequest,
    NoCardCollected,
    PageClosed,
    Pending,
    WebhookDelivery,
)
from domain.psps.payment_provider import ProviderRefused, ProviderUnavailable
from tests.adapters.mollie.conftest import SETTINGS, adapter_for
from tests.fake_mollie.mollie import CHALLENGED, GOOD, TEST_KEY, FakeMollie, an_error

HOUR: Final = timedelta(hours=1)
MINUTE: Final = timedelta(minutes=1)
PAYMENTS: Final = "POST /v2/payments"


def start(provider: MollieProvider, request: HostedPageRequest, *, number: int = 0) -> HostedPage:
    """Start the page of a session; with a number, of another one."""
    token_id = TokenId(a_uuid(number)) if number else request.token_id
    return provider.start(replace(request, token_id=token_id))


def answered_with(mollie: FakeMollie, call: str, **changes: Any) -> None:
    """Let Mollie answer a call with other fields."""

    def changed(sound: Response) -> Response:
        return replace(sound, body=json.dumps({**json.loads(sound.body), **changes}).encode())

    mollie.server.have(stand_in.change(changed), call)


class TestAfterAnHour:
    """Mollie has forgotten the idempotency keys."""

    @pytest.fixture
    def made(
        self,
        mollie: FakeMollie,
        provider: MollieProvider,
        request_: HostedPageRequest,
        clock: SettableClock,
    ) -> str:
        """Make a page whose response is lost, and two others; return its reference."""
        mollie.server.have(stand_in.drop_response, PAYMENTS)
        with pytest.raises(ProviderUnavailable):
            start(provider, request_)
        mollie.server.recover()
        for number in (31, 32):
            start(provider, replace(request_, guest_id=GuestId(a_uuid(number))), number=number)
        clock.advance(HOUR + MINUTE)
        return next(iter(mollie.main.payments))

    @pytest.mark.parametrize("limit", [100, 1])
    def test_the_page_of_an_attempt_is_found_in_the_list(
        self,
        mollie: FakeMollie,
        provider: MollieProvider,
        request_: HostedPageRequest,
        made: str,
        limit: int,
    ) -> None:
        mollie.limit = limit

        page = start(provider, request_)

        assert (page.reference, page.ends_at) == (made, request_.begun_at + timedelta(minutes=30))
        assert page.guest_reference == next(iter(mollie.main.customers))
        assert provider.outcome(request_, page, ()) == PageClosed()

    def test_a_list_that_is_too_long_ends_the_attempt(
        self, mollie: FakeMollie, provider: MollieProvider, request_: HostedPageRequest, made: str
    ) -> None:
        customer = mollie.main.payments[made]["customerId"]
        for number in (33, 34):
            start(provider, replace(request_, guest_reference=customer), number=number)
        mollie.limit = 1

        # It would only become longer, so the session would never end.
        with pytest.raises(ProviderRefused) as refused:
            start(provider, request_)

        assert refused.value.guest_reference == customer
        assert len(mollie.main.payments) == 5

    def test_no_list_hides_a_guest_who_must_be_forgotten(
        self, mollie: FakeMollie, provider: MollieProvider, request_: HostedPageRequest, made: str
    ) -> None:
        mollie.server.have(
            stand_in.respond_with(stand_in.json_response({}, 400)), "GET /v2/customers"
        )

        with pytest.raises(ProviderUnavailable):
            start(provider, request_)
        assert len(mollie.main.customers) == 3

    def test_a_guest_without_a_page_is_found_too(
        self,
        mollie: FakeMollie,
        provider: MollieProvider,
        request_: HostedPageRequest,
        clock: SettableClock,
    ) -> None:
        mollie.server.have(stand_in.drop_call, PAYMENTS)
        with pytest.raises(ProviderUnavailable):
            start(provider, request_)
        mollie.server.recover()
        clock.advance(HOUR + MINUTE)

        page = start(provider, request_)

        assert {page.guest_reference} == mollie.main.customers.keys()
        assert len(mollie.main.payments) == 1

    def test_the_page_is_found_though_our_clock_was_ahead(
        self, provider: MollieProvider, request_: HostedPageRequest, made: str
    ) -> None:
        ahead = replace(request_, begun_at=request_.begun_at + 3 * MINUTE)

        assert start(provider, ahead).reference == made

    def test_two_who_find_no_page_make_one(
        self,
        mollie: FakeMollie,
        provider: MollieProvider,
        request_: HostedPageRequest,
        clock: SettableClock,
    ) -> None:
        clock.advance(HOUR)
        others: list[HostedPage] = []

        def meanwhile(_: object, act: stand_in.Act) -> Response:
            none_yet = act()
            mollie.server.recover()
            others.append(start(provider, request_))
            return none_yet

        mollie.server.have(meanwhile, "GET /v2/payments")

        assert [start(provider, request_)] == others
        assert len(mollie.main.payments) == 1

    def test_the_page_of_a_guest_who_was_deleted_is_not_used(
        self, mollie: FakeMollie, provider: MollieProvider, request_: HostedPageRequest, made: str
    ) -> None:
        mollie.delete_customer(mollie.main, mollie.main.payments[made]["customerId"])

        page = start(provider, request_)

        assert page.reference != made
        assert page.guest_reference not in mollie.main.gone

    def test_what_is_older_than_the_attempt_is_not_searched(
        self,
        mollie: FakeMollie,
        provider: MollieProvider,
        request_: HostedPageRequest,
        made: str,
        clock: SettableClock,
    ) -> None:
        mollie.limit = 1
        for number in (33, 34):
            start(provider, replace(request_, begun_at=clock.now()), number=number)
        clock.advance(10 * MINUTE)
        later = replace(request_, begun_at=clock.now(), token_id=TokenId(a_uuid(40)))
        clock.advance(HOUR)

        assert start(provider, later).reference not in (made, "")


@pytest.mark.parametrize(
    ("number", "authenticated"), [(GOOD, False), (CHALLENGED, True)], ids=["normal", "3-D Secure"]
)
def test_a_card_tells_whether_the_guest_was_authenticated(
    mollie: FakeMollie,
    provider: MollieProvider,
    request_: HostedPageRequest,
    number: str,
    authenticated: bool,
) -> None:
    page = start(provider, request_)
    mollie.type_card(page.reference, number)
    mollie.answer_challenge(page.reference, confirmed=True)

    outcome = provider.outcome(request_, page, ())

    assert isinstance(outcome, CardCollected)
    assert outcome.authenticated is authenticated


@pytest.mark.parametrize(
    "changes",
    [{"scopes": ["customer-present"]}, {"scopes": None}, {"method": "paypal", "details": {}}],
    ids=str,
)
def test_a_mandate_that_needs_the_guest_or_has_no_card_is_none(
    mollie: FakeMollie,
    provider: MollieProvider,
    request_: HostedPageRequest,
    changes: Mapping[str, object],
) -> None:
    page = start(provider, request_)
    mollie.type_card(page.reference, GOOD)
    (mandate,) = mollie.main.mandates.values()
    mandate |= changes

    with capture_logs() as lines:
        outcome = provider.outcome(request_, page, ())

    assert isinstance(outcome, NoCardCollected)
    assert [line["event"] for line in lines] == ["mollie_collected_no_card"]
    # So it cannot be brought along either.
    with pytest.raises(ProviderRefused):
        provider.read_card(MAIN, outcome.guest_reference, outcome.token)
    provider.discard(MAIN, outcome.guest_reference, outcome.token)
    assert provider.outcome(request_, page, ()) == PageClosed()


@pytest.mark.parametrize(
    "details", [{"cardNumber": "12"}, {"cardNumber": None}, {"cardExpiryDate": "09/31"}], ids=str
)
def test_a_card_without_what_every_card_has_is_not_understood(
    mollie: FakeMollie,
    provider: MollieProvider,
    request_: HostedPageRequest,
    details: Mapping[str, object],
) -> None:
    page = start(provider, request_)
    mollie.type_card(page.reference, GOOD)
    (mandate,) = mollie.main.mandates.values()
    mandate["details"] |= details

    with pytest.raises(ProviderUnavailable):
        provider.outcome(request_, page, ())


def test_an_invalid_mandate_is_gone(
    mollie: FakeMollie, provider: MollieProvider, request_: HostedPageRequest
) -> None:
    page = start(provider, request_)
    mollie.type_card(page.reference, GOOD)
    outcome = provider.outcome(request_, page, ())
    assert isinstance(outcome, CardCollected)
    mollie.main.mandates[outcome.token]["status"] = "invalid"

    assert provider.outcome(request_, page, ()) == PageClosed()
    assert provider.read_card(MAIN, page.guest_reference, outcome.token).card is None


def test_a_card_is_as_it_was_when_mollie_was_asked(
    mollie: FakeMollie, provider: MollieProvider, request_: HostedPageRequest, clock: SettableClock
) -> None:
    page = start(provider, request_)
    mollie.type_card(page.reference, GOOD)
    (token,) = mollie.main.mandates
    asked_at = clock.now()

    def slowly(_: object, act: stand_in.Act) -> Response:
        response = act()
        clock.advance(MINUTE)
        return response

    mollie.server.have(slowly, "GET .*/mandates/")

    # A webhook that came meanwhile may tell of a later change.
    assert provider.read_card(MAIN, page.guest_reference, CardToken(token)).read_at == asked_at


def without_mandate(mollie: FakeMollie) -> None:
    for payment in mollie.main.payments.values():
        del payment["mandateId"]


def with_an_unknown_one(mollie: FakeMollie) -> None:
    mollie.main.mandates.clear()


def with_a_pending_one(mollie: FakeMollie) -> None:
    for mandate in mollie.main.mandates.values():
        mandate["status"] = "pending"


@pytest.mark.parametrize(
    ("arrange", "in_a_minute"),
    [
        (without_mandate, PageClosed()),
        (with_an_unknown_one, PageClosed()),
        (with_a_pending_one, Pending()),
    ],
)
def test_a_mandate_may_come_a_moment_after_the_payment(
    mollie: FakeMollie,
    provider: MollieProvider,
    request_: HostedPageRequest,
    clock: SettableClock,
    arrange: Callable[[FakeMollie], None],
    in_a_minute: object,
) -> None:
    page = start(provider, request_)
    mollie.type_card(page.reference, GOOD)
    arrange(mollie)

    assert provider.outcome(request_, page, ()) == Pending()
    clock.advance(MINUTE)
    assert provider.outcome(request_, page, ()) == in_a_minute


@pytest.mark.parametrize(
    ("details", "shown"),
    [
        ({"cardLabel": "Visa", "cardFingerprint": None}, "visa"),
        ({}, "unknown"),
        ({"cardLabel": "Diners Club"}, "diners"),
        ({"cardLabel": "Carta Si"}, "cartasi"),
    ],
    ids=str,
)
def test_a_card_may_lack_a_fingerprint_or_a_label(
    mollie: FakeMollie,
    provider: MollieProvider,
    request_: HostedPageRequest,
    details: Mapping[str, object],
    shown: str,
) -> None:
    page = start(provider, request_)
    mollie.type_card(page.reference, GOOD)
    (mandate,) = mollie.main.mandates.values()
    del mandate["details"]["cardLabel"]
    mandate["details"] |= details

    outcome = provider.outcome(request_, page, ())

    assert isinstance(outcome, CardCollected)
    assert outcome.card.card_logo == shown
    assert (outcome.card.fingerprint == outcome.token) is ("cardFingerprint" in details)


def test_a_payment_that_cannot_be_cancelled_is_left_to_its_end(
    mollie: FakeMollie,
    provider: MollieProvider,
    request_: HostedPageRequest,
    clock: SettableClock,
) -> None:
    page = start(provider, request_)

    provider.close(request_, page)

    assert not any(call.startswith("DELETE") for call in mollie.server.calls)
    assert provider.outcome(request_, page, ()) == Pending()
    clock.advance(page.ends_at - clock.now())
    assert provider.outcome(request_, page, ()) == PageClosed()


def test_a_payment_that_is_paid_while_it_is_closed_keeps_its_card(
    mollie: FakeMollie, provider: MollieProvider, request_: HostedPageRequest
) -> None:
    mollie.main.cancelable = True
    page = start(provider, request_)

    def paid_meanwhile(_: object, act: stand_in.Act) -> Response:
        mollie.type_card(page.reference, GOOD)
        return act()

    mollie.server.have(paid_meanwhile, "DELETE")
    provider.close(request_, page)

    assert isinstance(provider.outcome(request_, page, ()), CardCollected)


@pytest.mark.parametrize(
    ("base", "account", "url"),
    [
        ("https://pay.example", MAIN, "https://pay.example/webhooks/mollie/main"),
        ("https://pay.example", DEFAULT_MERCHANT_ACCOUNT, "https://pay.example/webhooks/mollie"),
        ("http://127.0.0.1:8000", MAIN, None),
    ],
)
def test_each_payment_names_where_webhooks_go_unless_mollie_cannot_call_there(
    mollie: FakeMollie,
    clock: SettableClock,
    request_: HostedPageRequest,
    base: str,
    account: MerchantAccount,
    url: str | None,
) -> None:
    settings = replace(
        SETTINGS,
        accounts={account: SETTINGS.accounts[MAIN]},
        webhooks_url=f"{base}/webhooks/mollie",
    )
    provider = adapter_for(mollie, clock, settings)

    start(provider, replace(request_, merchant_account=account))

    (payment,) = mollie.main.payments.values()
    assert payment.get("webhookUrl") == url


def test_an_email_address_that_mollie_refuses_costs_no_page(
    mollie: FakeMollie, provider: MollieProvider, request_: HostedPageRequest
) -> None:
    page = start(provider, replace(request_, guest_email="zoë@guests.example"))

    assert mollie.main.customers[page.guest_reference]["email"] is None


def test_a_refused_page_names_the_guest_who_stays_at_mollie(
    mollie: FakeMollie, provider: MollieProvider, request_: HostedPageRequest
) -> None:
    mollie.main.methods = ["ideal"]

    with pytest.raises(ProviderRefused) as refused:
        start(provider, request_)

    assert {refused.value.guest_reference} == mollie.main.customers.keys()
    assert refused.value.details.code == "method"


@pytest.mark.parametrize(("currency", "value"), [("EUR", "0.00"), ("JPY", "0")])
def test_the_amount_is_nothing_in_the_form_of_its_currency(
    request_: HostedPageRequest, currency: str, value: str
) -> None:
    body = payment_body(request_, GuestReference("cst_1"), currency=currency, webhooks_url=None)

    assert body["amount"] == {"currency": currency, "value": value}


@pytest.mark.parametrize(
    ("language", "locale"),
    [("de", "de_DE"), ("de-AT", "de_AT"), ("pt-BR", "pt_PT"), ("en-AU", "en_GB"), ("ja", "en_GB")],
)
def test_the_page_is_in_the_nearest_language(
    request_: HostedPageRequest, language: str, locale: str
) -> None:
    request = replace(request_, consent=replace(request_.consent, language=language))

    body = payment_body(request, GuestReference("cst_1"), currency="EUR", webhooks_url=None)

    assert body["locale"] == locale


@pytest.mark.parametrize("call", ["POST /v2/customers", PAYMENTS, "GET /v2/profiles/me"])
def test_an_answer_of_the_other_mode_is_not_used(
    mollie: FakeMollie, provider: MollieProvider, request_: HostedPageRequest, call: str
) -> None:
    answered_with(mollie, call, mode="live")

    with pytest.raises(ProviderUnavailable) as raised:
        provider.identity(MAIN) if "profiles" in call else start(provider, request_)

    assert raised.value.details.error == "WrongMode"
    assert TEST_KEY not in str(raised.value)


def test_a_page_ends_when_mollie_says(
    mollie: FakeMollie, provider: MollieProvider, request_: HostedPageRequest, clock: SettableClock
) -> None:
    answered_with(mollie, PAYMENTS, expiresAt=(clock.now() + HOUR).isoformat())

    assert start(provider, request_).ends_at == clock.now() + HOUR


def test_a_page_that_is_over_leads_back(
    mollie: FakeMollie, provider: MollieProvider, request_: HostedPageRequest
) -> None:
    answered_with(mollie, PAYMENTS, _links={})

    assert start(provider, request_).address == request_.return_uri


def test_the_key_never_leaves_in_an_address(
    mollie: FakeMollie, provider: MollieProvider, request_: HostedPageRequest
) -> None:
    start(provider, request_)

    assert not any(TEST_KEY in call for call in mollie.server.calls)


def test_a_webhook_is_no_more_than_a_reason_to_ask(provider: MollieProvider) -> None:
    delivery = WebhookDelivery(headers={}, body=b"id=tr_1", merchant_account=MAIN)

    (notice,) = provider.read_webhook(delivery)

    assert (notice.page_reference, notice.signed) == ("tr_1", False)


@pytest.mark.parametrize(
    ("call", "changes"),
    [("POST /v2/customers", {"metadata": "another"}), (PAYMENTS, {"customerId": "cst_999"})],
)
def test_an_answer_about_another_guest_makes_no_page(
    mollie: FakeMollie,
    provider: MollieProvider,
    request_: HostedPageRequest,
    call: str,
    changes: Mapping[str, object],
) -> None:
    answered_with(mollie, call, **changes)

    with pytest.raises(ProviderUnavailable):
        start(provider, request_)


def test_a_payment_may_forget_the_customer_who_is_deleted(
    mollie: FakeMollie, provider: MollieProvider, request_: HostedPageRequest, clock: SettableClock
) -> None:
    page = start(provider, request_)
    mollie.delete_customer(mollie.main, page.guest_reference)
    del mollie.main.payments[page.reference]["customerId"]
    clock.advance(page.ends_at - clock.now())

    # Else the session would wait for an answer for ever.
    assert provider.outcome(request_, page, ()) == PageClosed()


def test_a_mandate_of_another_guest_is_no_card(
    mollie: FakeMollie, provider: MollieProvider, request_: HostedPageRequest
) -> None:
    page = start(provider, request_)
    mollie.type_card(page.reference, GOOD)
    answered_with(mollie, "GET .*/mandates/", customerId="cst_999")

    with pytest.raises(ProviderUnavailable):
        provider.outcome(request_, page, ())


@pytest.mark.parametrize(("call", "pages"), [("POST /v2/customers", 1), (PAYMENTS, 0)])
def test_a_fault_that_is_kept_under_a_key_ends_its_use(
    mollie: FakeMollie,
    provider: MollieProvider,
    request_: HostedPageRequest,
    call: str,
    pages: int,
) -> None:
    kept = replace(json_response(an_error(500), 500), headers={"Idempotent-Replayed": "true"})
    mollie.server.have(stand_in.respond_with(kept), call, times=3)

    with suppress(ProviderRefused):
        start(provider, request_)

    assert len(mollie.main.payments) == pages
    assert start(provider, replace(request_, attempt=2)).reference
