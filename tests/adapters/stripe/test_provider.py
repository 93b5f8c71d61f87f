"""Tests of Stripe's adapter beyond the contract suite for PSPs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from adapters.psp_suite.clock import START
from adapters.psp_suite.samples import MERCHANT_ACCOUNT as MAIN
from adapters.psp_suite.stand_in import Response, change
from adapters.stripe.webhooks import REFUSED
from domain.billing import BillingInfo
from domain.identifiers import CardToken, GuestReference
from domain.psps.card import CardAtPsp, Funding
from domain.psps.evidence import Evidence, EvidenceOrigin
from domain.psps.hosted_page import (
    Authentication,
    CardCollected,
    CardRefused,
    HostedPage,
    NoCardCollected,
    PageClosed,
    Pending,
)
from domain.psps.payment_provider import UNKNOWN_FOR, NotFound, ProviderRefused, ProviderUnavailable
from tests.adapters.stripe.conftest import DECLINED, GOOD, KEYS, PREPAID, REQUEST, Shop
from tests.fake_stripe.server import Trouble
from tests.fake_stripe.stripe import TEST_SECRET, card_details

CREATE_CUSTOMER = "^POST /v1/customers$"
CREATE_SESSION = "^POST /v1/checkout/sessions$"


class TestPage:
    def test_a_stripe_page_is_a_checkout_session_that_accepts_only_cards(self, shop: Shop) -> None:
        page = shop.start()

        session = shop.session()
        assert page == HostedPage(
            reference=session["id"],
            address=f"{shop.server.url}/c/pay/{session['id']}",
            ends_at=START + timedelta(minutes=32),
            guest_reference=GuestReference(shop.customer()["id"]),
        )
        metadata = {"token_id": REQUEST.token_id, "attempt": "1"}
        expected = {
            "mode": "setup",
            "payment_method_types": ["card"],
            "client_reference_id": REQUEST.token_id,
            "metadata": metadata,
            "custom_text": {"submit": {"message": REQUEST.consent.text}},
            "consent_collection": {"payment_method_reuse_agreement": {"position": "hidden"}},
            "wallet_options": {"link": {"display": "never"}},
            "locale": "en",
            "success_url": REQUEST.return_uri,
            "cancel_url": REQUEST.cancel_uri,
            "billing_address_collection": "required",
        }
        assert session | expected == session
        assert session["branding_settings"]["display_name"] == "Harbor Spa"
        assert "currency" not in session
        assert REQUEST.guest_name not in str(session)
        (intent,) = shop.main.intents.values()
        assert (intent["metadata"], intent["usage"]) == (metadata, "off_session")

    @pytest.mark.parametrize(
        ("language", "locale"),
        [("pt-BR", "pt-BR"), ("de-AT", "de")],
    )
    def test_a_stripe_page_is_in_the_language_of_the_consent_text(
        self, shop: Shop, language: str, locale: str
    ) -> None:
        shop.start(consent=replace(REQUEST.consent, language=language))

        assert shop.session()["locale"] == locale

    @pytest.mark.parametrize(
        ("logo_uri", "is_sent"),
        [
            ("https://cards.example/hosted-payments/logos/1/2.png", True),
            ("https://cards.example/hosted-payments/logos/1/2.webp", False),
            ("http://127.0.0.1:8000/hosted-payments/logos/1/2.png", False),
            (None, False),
        ],
    )
    def test_a_page_shows_the_branding_of_the_center_if_stripe_supports_it(
        self, shop: Shop, logo_uri: str | None, is_sent: bool
    ) -> None:
        shop.start(color="#1d4f91", logo_uri=logo_uri)

        branding = shop.session()["branding_settings"]
        assert branding.get("logo") == ({"type": "url", "url": logo_uri} if is_sent else None)
        assert (branding["display_name"], branding["button_color"]) == ("Harbor Spa", "#1d4f91")

    @pytest.mark.parametrize(
        ("changes", "param"),
        [
            ({"color": "#no"}, "branding_settings[button_color]"),
            # Stripe saves this refusal under the idempotency key.
            ({"logo_uri": "https://spa.example/missing/2.png"}, "branding_settings[logo][url]"),
        ],
        ids=["color", "logo"],
    )
    def test_a_page_is_created_without_a_color_or_logo_that_stripe_refuses(
        self, shop: Shop, changes: dict[str, str], param: str
    ) -> None:
        with capture_logs() as lines:
            pages = {shop.start(**changes).reference for _ in range(2)}

        assert pages == {shop.session()["id"]}
        branding = shop.session()["branding_settings"]
        assert (branding["display_name"], branding["button_color"]) == ("Harbor Spa", "#0074d4")
        line = next(each for each in lines if each["event"] == "stripe_refuses_branding")
        assert line["param"] == param
        assert (line["account"], line["center"]) == (MAIN, REQUEST.center_id)

    def test_the_stripe_page_refuses_cards_that_the_center_does_not_accept(
        self, shop: Shop
    ) -> None:
        page = shop.start(refuse_funding=frozenset({Funding.PREPAID}))

        assert shop.stripe.submit_card(page.reference, PREPAID) == "requires_payment_method"
        assert shop.outcome(page) == Pending()
        assert shop.session()["custom_text"]["after_submit"] == {
            "message": "Not accepted here: prepaid cards."
        }
        assert shop.stripe.submit_card(page.reference, GOOD) == "succeeded"

    def test_the_stripe_page_requests_3d_secure_if_authentication_is_required(
        self, shop: Shop
    ) -> None:
        page = shop.start(authentication=Authentication.REQUIRED)

        assert shop.stripe.submit_card(page.reference, GOOD) == "requires_action"
        shop.stripe.answer_challenge(page.reference, confirmed=True)
        outcome = shop.outcome(page)
        assert isinstance(outcome, CardCollected)
        assert outcome.authenticated is True

    @pytest.mark.parametrize(
        ("changes", "refused_options", "events"),
        [
            ({}, {"restrictions"}, ["stripe_refuses_restrictions"]),
            (
                {"color": "#no"},
                {"restrictions"},
                ["stripe_refuses_restrictions", "stripe_refuses_branding"],
            ),
        ],
        ids=["restrictions", "both"],
    )
    def test_a_page_still_requires_3d_secure_if_stripe_refuses_other_options(
        self, shop: Shop, changes: dict[str, str], refused_options: set[str], events: list[str]
    ) -> None:
        shop.stripe.refused_options = refused_options
        with capture_logs() as lines:
            pages = {
                shop.start(
                    refuse_funding=frozenset({Funding.PREPAID}),
                    authentication=Authentication.REQUIRED,
                    **changes,
                ).reference
                for _ in range(2)
            }

        assert pages == {shop.session()["id"]}
        card = shop.session()["payment_method_options"]["card"]
        assert card["request_three_d_secure"] == "any"
        assert ("restrictions" in card) is not bool(refused_options)
        assert sorted(each["event"] for each in lines) == sorted(2 * events)

    def test_no_page_is_created_if_stripe_refuses_to_require_3d_secure(self, shop: Shop) -> None:
        shop.stripe.refused_options = {"request_three_d_secure"}
        with capture_logs() as lines, pytest.raises(ProviderRefused) as refused:
            shop.start(
                refuse_funding=frozenset({Funding.PREPAID}), authentication=Authentication.REQUIRED
            )
        param = "payment_method_options[card][request_three_d_secure]"
        assert refused.value.details.param == param
        assert lines == []

    def test_a_stripe_page_without_avs_has_the_configured_currency_and_no_billing_address(
        self, shop: Shop
    ) -> None:
        shop.use_keys(replace(KEYS, currency="eur"))
        shop.start(avs=False)

        assert shop.session()["currency"] == "eur"
        assert "billing_address_collection" not in shop.session()

    def test_a_page_that_stripe_created_without_card_payments_is_closed(self, shop: Shop) -> None:
        shop.main.offered = ("us_bank_account",)
        shop.server.have(Trouble.DROPPED, "/expire$")
        with pytest.raises(ProviderUnavailable):
            shop.start()
        shop.server.recover()
        for _ in range(2):
            with (
                capture_logs() as lines,
                pytest.raises(ProviderRefused, match="does not accept cards") as refused,
            ):
                shop.start()
            assert refused.value.guest_reference == shop.customer()["id"]
            (line,) = [each for each in lines if each["event"] == "stripe_takes_no_cards"]
            assert (line["account"], line["log_level"]) == (MAIN, "error")
            assert shop.session()["status"] == "expired"

        shop.main.offered = ("card",)
        assert shop.start(attempt=2).reference in shop.main.sessions

    def test_a_page_expires_when_its_session_expires_if_the_limits_of_stripe_allow_it(
        self, shop: Shop
    ) -> None:
        def life(minutes: float) -> timedelta:
            live_until = START + timedelta(minutes=minutes)
            return shop.start(attempt=int(minutes * 1_000), live_until=live_until).ends_at - START

        assert life(1) == timedelta(minutes=32)
        assert life(45.001) == timedelta(minutes=45, seconds=1)
        assert life(24 * 60) == timedelta(hours=23, minutes=58)

    @pytest.mark.parametrize("key", [KEYS.secret_key, "sk_live_shop"])
    def test_a_stripe_page_is_not_used_if_its_test_or_live_mode_differs_from_the_key(
        self, shop: Shop, key: str
    ) -> None:
        shop.stripe.add_merchant("sk_live_shop", TEST_SECRET)
        shop.use_keys(replace(KEYS, secret_key=key))
        page = shop.start()
        assert shop.outcome(page) == Pending()
        merchant, session = shop.stripe.open_session(page.reference)
        session["livemode"] = not merchant.is_live

        with pytest.raises(ProviderUnavailable, match="mode of the key"):
            shop.outcome(page)


class TestCustomer:
    def test_the_stripe_customer_has_the_billing_details_of_the_guest(self, shop: Shop) -> None:
        who = {"first_name": "Zoë", "last_name": "Nulle", "email": "billing@guests.example"}
        shop.start(billing_info=BillingInfo(**who, phone="+34 (93) 123-45.67"))

        expected = {
            "name": "Zoë Nulle",
            "email": "billing@guests.example",
            "phone": "+34931234567",
            "metadata": {"guest_id": REQUEST.guest_id},
        }
        assert shop.customer() | expected == shop.customer()

    def test_a_page_is_created_even_if_stripe_refuses_the_email_address(self, shop: Shop) -> None:
        page = shop.start(guest_email="zoe@localhost")

        assert page.guest_reference == shop.customer()["id"]

    def test_a_guest_keeps_the_same_stripe_customer_even_if_the_details_change(
        self, shop: Shop
    ) -> None:
        first = shop.start()
        # The reference was not stored here: the process crashed.
        second = shop.start(attempt=2, guest_name="Zoë Married")
        third = shop.start(attempt=3, guest_reference=second.guest_reference)

        assert shop.customer()["id"] == first.guest_reference
        assert first.guest_reference == second.guest_reference == third.guest_reference

    def test_creating_a_page_without_guest_details_does_not_clear_the_details_of_the_customer(
        self, shop: Shop
    ) -> None:
        reference = shop.start().guest_reference
        told_nothing = {"guest_name": "", "guest_email": None, "guest_reference": reference}

        assert shop.start(attempt=2, **told_nothing).guest_reference == reference

        customer = shop.customer()
        assert (customer["name"], customer["email"]) == (REQUEST.guest_name, REQUEST.guest_email)

    def test_a_request_from_an_earlier_release_uses_the_idempotency_key_of_that_release(
        self, shop: Shop
    ) -> None:
        shop.start(center_id=None)

        assert f"guest:{REQUEST.guest_id}" in shop.main.saved

    def test_a_deleted_customer_is_replaced_even_if_stripe_returns_it_for_the_idempotency_key(
        self, shop: Shop
    ) -> None:
        deleted = shop.start().guest_reference
        shop.stripe.delete_customer(shop.main, deleted)

        page = shop.start(attempt=2)

        assert page.guest_reference != deleted
        again = shop.start(attempt=3, guest_reference=page.guest_reference)
        assert again.guest_reference == page.guest_reference

    @pytest.mark.parametrize("reference", [None, "cus_of_another_account"])
    def test_a_missing_customer_is_replaced_even_if_stripe_refuses_the_email_address(
        self, shop: Shop, reference: str | None
    ) -> None:
        gone = GuestReference(reference or shop.start().guest_reference)
        changes = {
            "attempt": 2,
            "guest_reference": gone,
            "guest_email": "zoe@localhost",
            "live_until": shop.clock.now() + timedelta(hours=2),
        }
        if reference is None:
            shop.stripe.delete_customer(shop.main, gone)
        else:
            # Stripe may not know the customer yet.
            with pytest.raises(NotFound):
                shop.start(**changes)
            shop.clock.advance(UNKNOWN_FOR)

        page = shop.start(**changes)

        assert page.guest_reference != gone


def page_whose_card_is_detached(shop: Shop) -> HostedPage:
    page = shop.page_with_card()
    (token,) = shop.main.methods
    shop.stripe.detach_method(shop.main, {}, token)
    return page


def with_link(shop: Shop, page: HostedPage) -> None:
    # A page from an earlier release does not hide Link.
    del shop.session()["wallet_options"]
    shop.stripe.submit_link(page.reference)


def with_a_bank_account(shop: Shop, page: HostedPage) -> None:
    shop.session()["payment_method_types"].append("us_bank_account")
    shop.stripe.submit_bank_account(page.reference)


def evidence(content: str, received_at: datetime) -> Evidence:
    return Evidence(origin=EvidenceOrigin.WEBHOOK, content=content, received_at=received_at)


class TestOutcome:
    @pytest.mark.parametrize("pay", [with_link, with_a_bank_account])
    def test_a_payment_method_other_than_a_card_is_discarded(
        self, shop: Shop, pay: Callable[[Shop, HostedPage], None]
    ) -> None:
        page = shop.start()
        pay(shop, page)

        with capture_logs() as lines:
            outcome = shop.outcome(page)

        (token,) = map(CardToken, shop.main.methods)
        assert outcome == NoCardCollected(
            guest_reference=page.guest_reference, token=token, collected_at=START
        )
        (line,) = lines
        assert (line["event"], line["account"]) == ("stripe_collected_no_card", MAIN)
        shop.provider.discard(MAIN, page.guest_reference, token)
        assert shop.outcome(page) == Pending()

    # Shows S23.
    def test_each_refused_card_on_a_stripe_page_is_counted_by_its_webhook(self, shop: Shop) -> None:
        page = shop.start()
        of_earlier_page = evidence(f"{REFUSED} evt_1", REQUEST.begun_at - timedelta(seconds=1))
        so_far = [of_earlier_page]
        for number in (1, 2):
            shop.stripe.submit_card(page.reference, DECLINED)
            # Without a webhook, Stripe reports only the last card.
            told = shop.outcome(page, [of_earlier_page])
            assert told == CardRefused(refusal_code="generic_decline")
            so_far.append(evidence(f"{REFUSED} evt_{1 + number}", shop.clock.now()))
            assert shop.outcome(page, so_far) == replace(told, refused_cards=number)

        shop.stripe.submit_card(page.reference, GOOD)
        collected = shop.outcome(page, so_far)
        assert isinstance(collected, CardCollected)
        assert collected.refused_cards == 2

    def test_a_page_whose_card_was_detached_counts_as_closed_a_minute_after_the_webhook(
        self, shop: Shop
    ) -> None:
        page = page_whose_card_is_detached(shop)
        # A challenge may take longer than a minute: the card was typed before it.
        shop.clock.advance(timedelta(minutes=3))
        completed = [
            # A late webhook about an earlier page of the session.
            evidence("checkout.session.completed evt_1 cs_1", REQUEST.begun_at),
            evidence(f"checkout.session.completed evt_2 {page.reference}", shop.clock.now()),
        ]

        assert shop.outcome(page, completed) == Pending()
        shop.clock.advance(timedelta(minutes=1))
        assert shop.outcome(page, completed) == PageClosed()

    def test_without_a_webhook_a_page_whose_card_was_detached_counts_as_closed_after_it_expires(
        self, shop: Shop
    ) -> None:
        page = page_whose_card_is_detached(shop)
        shop.clock.advance(page.ends_at - shop.clock.now() - timedelta(seconds=1))
        assert shop.outcome(page) == Pending()

        # Pending would end the session now, and a card attached later would be lost.
        shop.clock.advance(timedelta(seconds=1))
        with pytest.raises(ProviderUnavailable):
            shop.outcome(page)

        shop.clock.advance(timedelta(minutes=1))
        assert shop.outcome(page) == PageClosed()

    def test_a_page_whose_customer_was_deleted_counts_as_closed(self, shop: Shop) -> None:
        page = shop.page_with_card()
        shop.stripe.delete_customer(shop.main, page.guest_reference)

        assert shop.outcome(page) == PageClosed()

    def test_a_stripe_page_that_belongs_to_another_attempt_of_the_session_is_refused(
        self, shop: Shop
    ) -> None:
        page = shop.start()

        with pytest.raises(ProviderUnavailable, match="another page"):
            shop.provider.outcome(replace(REQUEST, attempt=2), page, ())


@pytest.mark.parametrize("code", [None, "resource_missing"])
def test_the_card_of_a_deleted_customer_counts_as_discarded(shop: Shop, code: str | None) -> None:
    page = shop.page_with_card()
    (token,) = map(CardToken, shop.main.methods)
    shop.stripe.delete_customer(shop.main, page.guest_reference)
    shop.stripe.code_without_customer = code

    with capture_logs() as lines:
        shop.provider.discard(MAIN, page.guest_reference, token)

    assert lines == [{"event": "stripe_discard_ended", "log_level": "warning", "account": MAIN}]


@pytest.mark.parametrize("customer", [{}, {"customer": None, "customer_account": "acct_guest"}])
def test_a_response_without_a_customer_does_not_mean_that_the_card_was_deleted(
    shop: Shop, customer: dict[str, Any]
) -> None:
    page = shop.page_with_card()
    (token,) = map(CardToken, shop.main.methods)

    def changed(sound: Response) -> Response:
        body = json.loads(sound.body)
        del body["customer"]
        return replace(sound, body=json.dumps(body | customer).encode())

    shop.server.server.have(change(changed))

    with pytest.raises(ProviderUnavailable):
        shop.provider.read_card(MAIN, page.guest_reference, token)


class TestCardList:
    def test_a_list_of_cards_omits_bank_accounts(self, shop: Shop) -> None:
        stripe, customer = shop.stripe, shop.page_with_card().guest_reference
        (token,) = map(CardToken, shop.main.methods)
        stripe.add_method(stripe.main, "card", card_details(stripe.main, GOOD))
        stripe.add_method(stripe.main, "us_bank_account", {})["customer"] = customer

        assert shop.provider.list_cards(MAIN) == ([CardAtPsp(customer, token)], None)

    def test_an_empty_list_of_cards_that_claims_to_have_more_cards_counts_as_an_outage(
        self, shop: Shop
    ) -> None:
        shop.answered_with(b'{"object": "list", "data": [], "has_more": true}')

        with pytest.raises(ProviderUnavailable):
            shop.provider.list_cards(MAIN)


class TestFaults:
    """F20 to F24: faults between the service and Stripe, beyond the contract suite."""

    # Shows F20.
    def test_a_page_is_found_although_stripe_saved_an_error_for_its_idempotency_key(
        self, shop: Shop
    ) -> None:
        shop.server.have(Trouble.FAULT_AFTER_IT_ACTED, CREATE_SESSION, times=1)

        page = shop.start()

        assert shop.session()["id"] == page.reference
        assert shop.start() == page

    def test_an_existing_page_is_found_among_stripe_sessions_created_by_other_programs(
        self, shop: Shop
    ) -> None:
        other = shop.start().reference
        shop.main.sessions[other] |= {"client_reference_id": None, "metadata": None, "status": None}
        shop.server.have(Trouble.FAULT_AFTER_IT_ACTED, CREATE_SESSION, times=1)

        page = shop.start(attempt=2)

        assert shop.main.sessions[page.reference]["metadata"]["attempt"] == "2"

    # Shows F20.
    def test_an_existing_page_is_found_behind_newer_stripe_sessions_of_the_guest(
        self, shop: Shop
    ) -> None:
        shop.server.have(Trouble.FAULT_AFTER_IT_ACTED, CREATE_SESSION, times=1)
        page = shop.start()
        # Stripe lists the newest session first, and ten of them unless it is asked for more.
        for attempt in range(2, 13):
            shop.start(attempt=attempt, guest_reference=page.guest_reference)
        assert next(iter(shop.main.sessions)) == page.reference

        assert shop.start() == page

    def test_an_error_that_stripe_saved_without_creating_a_page_ends_the_attempt(
        self, shop: Shop
    ) -> None:
        shop.server.have(Trouble.FAULT, CREATE_SESSION, times=1)
        for _ in range(2):
            with pytest.raises(ProviderRefused):
                shop.start()

        assert shop.start(attempt=2).reference == shop.session()["id"]

    def test_an_error_that_stripe_saved_for_creating_a_customer_does_not_block_the_guest(
        self, shop: Shop
    ) -> None:
        shop.server.have(Trouble.FAULT, CREATE_CUSTOMER, times=1)

        page = shop.start()

        assert page == shop.start()
        assert shop.customer()["id"] == page.guest_reference

    def test_other_parameters_under_the_idempotency_key_of_a_closed_page_are_refused(
        self, shop: Shop
    ) -> None:
        shop.provider.close(REQUEST, shop.start())

        with pytest.raises(ProviderRefused):
            shop.start(avs=False)

    def test_a_request_that_is_ten_minutes_old_is_refused_unless_stripe_has_created_the_page(
        self, shop: Shop
    ) -> None:
        page = shop.start()
        shop.clock.advance(timedelta(minutes=10))

        assert shop.start() == page
        with pytest.raises(ProviderRefused):
            shop.start(attempt=2)

    # Shows F22.
    @pytest.mark.parametrize("trouble", [Trouble.CONFLICT, Trouble.LOCKED])
    def test_a_call_that_fails_temporarily_is_attempted_three_times(
        self, shop: Shop, trouble: Trouble
    ) -> None:
        shop.server.have(trouble, CREATE_SESSION, times=3)
        with pytest.raises(ProviderUnavailable):
            shop.start()
        shop.server.have(trouble, CREATE_SESSION, times=2)

        assert shop.start().reference == shop.session()["id"]

    def test_a_call_that_stripe_asks_not_to_retry_is_sent_once(self, shop: Shop) -> None:
        shop.server.have(Trouble.AWAY_FOR_LONG)
        with pytest.raises(ProviderUnavailable) as raised:
            shop.start()

        assert shop.server.calls == ["POST /v1/customers"]
        assert raised.value.retry_after is None


def test_a_404_response_for_an_unknown_route_does_not_count_as_an_unknown_customer(
    shop: Shop,
) -> None:
    page = shop.start()
    shop.server.have(Trouble.NO_SUCH_ROUTE)

    with pytest.raises(ProviderRefused) as raised:
        shop.provider.forget_guest(MAIN, page.guest_reference)
    # NotFound is believed after ten minutes, and the customer would stay.
    assert not isinstance(raised.value, NotFound)


def test_deleting_a_customer_succeeds_only_if_stripe_confirms_the_deletion(shop: Shop) -> None:
    page = shop.start()
    shop.answered_with(b'{"id": "cus_1", "object": "customer"}')

    with pytest.raises(ProviderUnavailable, match="deleted"):
        shop.provider.forget_guest(MAIN, page.guest_reference)
