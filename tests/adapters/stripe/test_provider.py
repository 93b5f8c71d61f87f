"""What is Stripe's own; what every PSP promises is in the contract suite."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from structlog.testing import capture_logs

from adapters.psp.contract.clock import START, SettableClock
from adapters.psp.contract.samples import MERCHANT_ACCOUNT as MAIN
from adapters.psp.contract.samples import a_page_request
from adapters.psp.contract.sessions import a_request
from adapters.psp.stand_in import change
from adapters.stripe.keys import StripeKeys
from adapters.stripe.provider import StripeProvider
from domain.billing import BillingInfo
from domain.identifiers import CardToken, GuestReference
from domain.psps.hosted_page import (
    CardCollected,
    CardRefused,
    Evidence,
    EvidenceOrigin,
    HostedPage,
    NoCardCollected,
    PageClosed,
    Pending,
)
from domain.psps.payment_provider import ProviderRefused, ProviderUnavailable
from tests.adapters.stripe.conftest import CALM, DECLINED, GOOD, KEYS, OTHER
from tests.adapters.stripe.under_test import StripeUnderTest
from tests.fake_stripe.server import FakeStripeServer, Trouble
from tests.fake_stripe.stripe import TEST_SECRET, card_details

REQUEST = a_page_request(begun_at=START, live_until=START + timedelta(minutes=30))
NEXT = replace(REQUEST, attempt=2)

CREATE_CUSTOMER = "^POST /v1/customers$"
CREATE_SESSION = "^POST /v1/checkout/sessions$"


def only_session(server: FakeStripeServer) -> dict[str, Any]:
    (session,) = server.stripe.main.sessions.values()
    return session


def only_customer(server: FakeStripeServer) -> dict[str, Any]:
    (customer,) = server.stripe.main.customers.values()
    return customer


def provider_with(server: FakeStripeServer, keys: StripeKeys) -> StripeProvider:
    return StripeProvider(
        {MAIN: keys}, clock=server.stripe.clock, api_base=server.url, retry_policy=CALM
    )


class TestPage:
    def test_it_is_a_checkout_session_that_takes_cards_alone(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        page = provider.start(REQUEST)

        session = only_session(server)
        assert page == HostedPage(
            reference=session["id"],
            address=f"{server.url}/c/pay/{session['id']}",
            ends_at=START + timedelta(minutes=32),
            guest_reference=GuestReference(only_customer(server)["id"]),
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
        (intent,) = server.stripe.main.intents.values()
        assert (intent["metadata"], intent["usage"]) == (metadata, "off_session")

    @pytest.mark.parametrize(
        ("language", "locale"),
        [("de", "de"), ("pt-BR", "pt-BR"), ("de-AT", "de"), ("zh-TW", "zh-TW")],
    )
    def test_it_is_in_the_language_of_the_consent(
        self, provider: StripeProvider, server: FakeStripeServer, language: str, locale: str
    ) -> None:
        consent = replace(REQUEST.consent, language=language)
        provider.start(replace(REQUEST, consent=consent))

        assert only_session(server)["locale"] == locale

    def test_it_shows_one_consent_to_the_center(self, provider: StripeProvider) -> None:
        with urlopen(provider.start(REQUEST).address) as shown:
            text = shown.read().decode()

        assert "<p>Harbor Spa</p>" in text
        assert text.count(" allow ") == 1
        assert "you allow Harbor Spa to keep it on file" in text

    @pytest.mark.parametrize(
        ("logo_uri", "is_sent"),
        [
            ("https://cards.example/hosted-payments/logos/1/2.png", True),
            ("https://cards.example/hosted-payments/logos/1/2.webp", False),
            ("http://127.0.0.1:8000/hosted-payments/logos/1/2.png", False),
            (None, False),
        ],
    )
    def test_it_looks_as_the_center_wants_if_stripe_can_show_it(
        self,
        provider: StripeProvider,
        server: FakeStripeServer,
        logo_uri: str | None,
        is_sent: bool,
    ) -> None:
        provider.start(replace(REQUEST, color="#1d4f91", logo_uri=logo_uri))

        branding = only_session(server)["branding_settings"]
        assert branding.get("logo") == ({"type": "url", "url": logo_uri} if is_sent else None)
        assert (branding["display_name"], branding["button_color"]) == ("Harbor Spa", "#1d4f91")

    def test_it_is_made_without_a_color_that_stripe_refuses(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        request = replace(REQUEST, color="#no")
        with capture_logs() as lines:
            pages = {provider.start(request).reference for _ in range(2)}

        assert pages == {only_session(server)["id"]}
        branding = only_session(server)["branding_settings"]
        assert (branding["display_name"], branding["button_color"]) == ("Harbor Spa", "#0074d4")
        line = next(each for each in lines if each["event"] == "stripe_refuses_branding")
        assert line["param"] == "branding_settings[button_color]"
        assert (line["account"], line["center"]) == (MAIN, REQUEST.center_id)

    def test_it_has_no_address_form_without_avs(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        provider.start(replace(REQUEST, avs=False))

        assert "billing_address_collection" not in only_session(server)

    def test_it_names_a_currency_that_is_set(self, server: FakeStripeServer) -> None:
        provider_with(server, replace(KEYS, currency="eur")).start(REQUEST)

        assert only_session(server)["currency"] == "eur"

    def test_one_that_takes_no_cards_is_closed(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        server.stripe.main.offered = ("us_bank_account",)
        server.have(Trouble.DROPPED, "/expire$")
        with pytest.raises(ProviderUnavailable):
            provider.start(REQUEST)
        server.recover()
        for _ in range(2):
            with capture_logs() as lines, pytest.raises(ProviderRefused, match="no cards"):
                provider.start(REQUEST)
            (line,) = [each for each in lines if each["event"] == "stripe_takes_no_cards"]
            assert (line["account"], line["log_level"]) == (MAIN, "error")
            assert only_session(server)["status"] == "expired"

        server.stripe.main.offered = ("card",)
        assert provider.start(NEXT).reference in server.stripe.main.sessions

    def test_a_refusal_names_the_customer_who_stays(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        server.stripe.main.offered = ("us_bank_account",)
        with pytest.raises(ProviderRefused) as refused:
            provider.start(REQUEST)
        assert refused.value.guest_reference == only_customer(server)["id"]

    def test_it_lives_as_long_as_the_session_within_stripes_bounds(
        self, provider: StripeProvider
    ) -> None:
        def life(minutes: float) -> timedelta:
            request = replace(
                REQUEST,
                attempt=int(minutes * 1_000),
                live_until=START + timedelta(minutes=minutes),
            )
            return provider.start(request).ends_at - START

        assert life(1) == timedelta(minutes=32)
        assert life(45.001) == timedelta(minutes=45, seconds=1)
        assert life(24 * 60) == timedelta(hours=23, minutes=58)

    def test_it_is_in_the_mode_of_the_key(self, server: FakeStripeServer) -> None:
        live = server.stripe.add_merchant("sk_live_main", TEST_SECRET)
        keys = StripeKeys(secret_key="sk_live_main", webhook_secrets=(TEST_SECRET,))
        provider = provider_with(server, keys)
        page = provider.start(REQUEST)
        assert provider.outcome(REQUEST, page, ()) == Pending()
        live.sessions[page.reference]["livemode"] = False

        with pytest.raises(ProviderUnavailable, match="test and live mode"):
            provider.outcome(REQUEST, page, ())


class TestCustomer:
    def test_it_holds_the_billing_address(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        billing_info = BillingInfo(
            first_name="Zoë",
            last_name="Null",
            email="billing@guests.example",
            country_code="ES",
            address="12 Analytical Row",
            city="Barcelona",
            zipcode="08001",
            state="CT",
            phone="+34 (93) 123-45.67",
        )
        provider.start(replace(REQUEST, billing_info=billing_info))

        expected = {
            "name": "Zoë Null",
            "email": "billing@guests.example",
            "phone": "+34931234567",
            "address": {
                "line1": "12 Analytical Row",
                "city": "Barcelona",
                "state": "CT",
                "postal_code": "08001",
                "country": "ES",
            },
            "metadata": {"guest_id": REQUEST.guest_id},
        }
        assert only_customer(server) | expected == only_customer(server)

    def test_without_a_billing_address_it_has_the_name_of_the_guest(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        provider.start(replace(REQUEST, guest_email=None))

        customer = only_customer(server)
        assert (customer["name"], customer["email"]) == (REQUEST.guest_name, None)

    def test_the_address_of_an_earlier_page_does_not_show_on_one_without(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        billing_info = BillingInfo(address="12 Analytical Row", zipcode="08001")
        provider.start(replace(REQUEST, avs=True, billing_info=billing_info))

        page = provider.start(replace(NEXT, avs=True))

        assert not only_customer(server)["address"]
        with urlopen(page.address) as response:
            shown = response.read().decode()
        assert "Save your card" in shown
        assert "Analytical" not in shown

    def test_an_address_that_stripe_refuses_does_not_prevent_the_page(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        page = provider.start(replace(REQUEST, guest_email="zoe@localhost"))

        assert page.guest_reference == only_customer(server)["id"]

    def test_a_guest_has_one_whatever_the_request_says(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        first = provider.start(REQUEST)
        # The reference was not stored here: the process crashed.
        second = provider.start(replace(NEXT, guest_name="Zoë Married"))
        third = provider.start(replace(REQUEST, attempt=3, guest_reference=second.guest_reference))

        assert only_customer(server)["id"] == first.guest_reference
        assert first.guest_reference == second.guest_reference == third.guest_reference

    def test_details_on_file_outlast_a_page_without_any(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        reference = provider.start(REQUEST).guest_reference
        told_nothing = replace(NEXT, guest_name="", guest_email=None, guest_reference=reference)

        assert provider.start(told_nothing).guest_reference == reference

        customer = only_customer(server)
        assert (customer["name"], customer["email"]) == (REQUEST.guest_name, REQUEST.guest_email)

    def test_is_made_under_the_key_of_an_earlier_release_for_a_request_of_that_release(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        provider.start(replace(REQUEST, center_id=None))

        assert f"guest:{REQUEST.guest_id}" in server.stripe.main.saved

    def test_one_that_was_deleted_is_replaced_though_the_idempotency_key_returns_it(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        deleted = provider.start(REQUEST).guest_reference
        server.stripe.delete_customer(server.stripe.main, deleted)

        page = provider.start(NEXT)

        assert page.guest_reference != deleted
        again = provider.start(replace(REQUEST, attempt=3, guest_reference=page.guest_reference))
        assert again.guest_reference == page.guest_reference

    @pytest.mark.parametrize("reference", [None, "cus_of_another_account"])
    def test_one_that_is_gone_is_noticed_when_stripe_refuses_the_address_too(
        self, provider: StripeProvider, server: FakeStripeServer, reference: str | None
    ) -> None:
        gone = GuestReference(reference or provider.start(REQUEST).guest_reference)
        if reference is None:
            server.stripe.delete_customer(server.stripe.main, gone)

        page = provider.start(replace(NEXT, guest_reference=gone, guest_email="zoe@localhost"))

        assert page.guest_reference != gone


def page_whose_card_is_detached(provider: StripeProvider, server: FakeStripeServer) -> HostedPage:
    page = provider.start(REQUEST)
    server.stripe.submit_card(page.reference, GOOD)
    (token,) = server.stripe.main.methods
    server.stripe.detach_method(server.stripe.main, {}, token)
    return page


class TestOutcome:
    def test_a_link_account_is_no_card(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        page = provider.start(REQUEST)
        # As on a page of an earlier release, which did not hide Link.
        del only_session(server)["wallet_options"]
        server.stripe.submit_link(page.reference)

        with capture_logs() as lines:
            outcome = provider.outcome(REQUEST, page, ())

        (token,) = map(CardToken, server.stripe.main.methods)
        assert outcome == NoCardCollected(
            guest_reference=page.guest_reference, token=token, collected_at=START
        )
        (line,) = lines
        assert (line["event"], line["account"]) == ("stripe_collected_no_card", MAIN)

    def test_a_bank_account_is_discarded_as_no_card(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        page = provider.start(REQUEST)
        only_session(server)["payment_method_types"].append("us_bank_account")
        server.stripe.submit_bank_account(page.reference)

        outcome = provider.outcome(REQUEST, page, ())

        assert isinstance(outcome, NoCardCollected)
        provider.discard(MAIN, outcome.guest_reference, outcome.token)
        assert provider.outcome(REQUEST, page, ()) == Pending()

    # Shows S23.
    def test_each_refused_card_counts_by_its_webhook(
        self, provider: StripeProvider, server: FakeStripeServer, clock: SettableClock
    ) -> None:
        def refused(event: str, *, received_at: datetime) -> Evidence:
            return Evidence(
                origin=EvidenceOrigin.WEBHOOK,
                content=f"setup_intent.setup_failed {event}",
                received_at=received_at,
            )

        page = provider.start(REQUEST)
        of_earlier_page = refused("evt_1", received_at=REQUEST.begun_at - timedelta(seconds=1))
        evidence = [of_earlier_page]
        for number in (1, 2):
            server.stripe.submit_card(page.reference, DECLINED)
            # Without a webhook, Stripe tells of the last card only.
            told = provider.outcome(REQUEST, page, [of_earlier_page])
            assert told == CardRefused(refusal_code="generic_decline")
            evidence.append(refused(f"evt_{1 + number}", received_at=clock.now()))
            assert provider.outcome(REQUEST, page, evidence) == replace(told, refused_cards=number)

        server.stripe.submit_card(page.reference, GOOD)
        collected = provider.outcome(REQUEST, page, evidence)
        assert isinstance(collected, CardCollected)
        assert collected.refused_cards == 2

    def test_a_detached_card_closes_its_page_a_minute_after_the_webhook(
        self, provider: StripeProvider, server: FakeStripeServer, clock: SettableClock
    ) -> None:
        page = page_whose_card_is_detached(provider, server)
        # A challenge may take longer than a minute: the card was typed before it.
        clock.advance(timedelta(minutes=3))
        completed = Evidence(
            origin=EvidenceOrigin.WEBHOOK,
            content="checkout.session.completed evt_1",
            received_at=clock.now(),
        )

        assert provider.outcome(REQUEST, page, [completed]) == Pending()
        clock.advance(timedelta(minutes=1))
        assert provider.outcome(REQUEST, page, [completed]) == PageClosed()

    def test_without_a_webhook_it_closes_its_page_a_minute_after_the_end(
        self, provider: StripeProvider, server: FakeStripeServer, clock: SettableClock
    ) -> None:
        page = page_whose_card_is_detached(provider, server)
        clock.advance(page.ends_at - clock.now() - timedelta(seconds=1))
        assert provider.outcome(REQUEST, page, ()) == Pending()

        # Pending would end the session now, and a card attached later would be lost.
        clock.advance(timedelta(seconds=1))
        with pytest.raises(ProviderUnavailable):
            provider.outcome(REQUEST, page, ())

        clock.advance(timedelta(minutes=1))
        assert provider.outcome(REQUEST, page, ()) == PageClosed()

    def test_a_card_whose_customer_was_deleted_closes_its_page(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        page = provider.start(REQUEST)
        server.stripe.submit_card(page.reference, GOOD)
        server.stripe.delete_customer(server.stripe.main, page.guest_reference)

        assert provider.outcome(REQUEST, page, ()) == PageClosed()

    def test_a_page_of_another_session_is_refused(self, provider: StripeProvider) -> None:
        page = provider.start(REQUEST)

        with pytest.raises(ProviderUnavailable, match="another page"):
            provider.outcome(NEXT, page, ())


@pytest.mark.parametrize("code", [None, "resource_missing"])
def test_the_card_of_a_deleted_customer_counts_as_discarded(
    provider: StripeProvider, server: FakeStripeServer, code: str | None
) -> None:
    page = provider.start(REQUEST)
    server.stripe.submit_card(page.reference, GOOD)
    (token,) = map(CardToken, server.stripe.main.methods)
    server.stripe.delete_customer(server.stripe.main, page.guest_reference)
    server.stripe.code_without_customer = code

    with capture_logs() as lines:
        provider.discard(MAIN, page.guest_reference, token)

    assert lines == [{"event": "stripe_discard_ended", "log_level": "warning", "account": MAIN}]


class TestACardOnFile:
    @pytest.fixture
    def token(self, provider: StripeProvider, server: FakeStripeServer) -> CardToken:
        server.stripe.submit_card(provider.start(REQUEST).reference, GOOD)
        (token,) = map(CardToken, server.stripe.main.methods)
        return token

    def test_is_not_gone_with_keys_of_another_account(
        self, provider: StripeProvider, server: FakeStripeServer, token: CardToken
    ) -> None:
        guest = GuestReference(only_customer(server)["id"])

        with pytest.raises(ProviderRefused) as raised:
            provider.read_card(OTHER, guest, token)

        assert raised.value.details.code == "resource_missing"

    def test_is_not_gone_because_a_response_lacks_its_customer(
        self, provider: StripeProvider, server: FakeStripeServer, token: CardToken
    ) -> None:
        guest = GuestReference(server.stripe.main.methods[token].pop("customer"))

        with pytest.raises(ProviderUnavailable):
            provider.read_card(MAIN, guest, token)

    def test_is_not_gone_while_it_is_saved_to_an_account_instead_of_a_customer(
        self, provider: StripeProvider, server: FakeStripeServer, token: CardToken
    ) -> None:
        guest = GuestReference(only_customer(server)["id"])
        server.stripe.main.methods[token] |= {"customer": None, "customer_account": "acct_guest"}

        with pytest.raises(ProviderUnavailable):
            provider.read_card(MAIN, guest, token)


class TestAListOfCards:
    def test_goes_on_until_every_customer_has_its_cards(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        stripe = server.stripe
        customer = provider.start(REQUEST).guest_reference
        card = card_details(stripe.main, GOOD)
        for _ in range(150):
            stripe.add_method(stripe.main, "card", card)["customer"] = customer
        stripe.add_method(stripe.main, "card", card)
        stripe.add_method(stripe.main, "us_bank_account", {})["customer"] = customer

        first, place = provider.list_cards(MAIN)
        rest, end = provider.list_cards(MAIN, place)

        attached = [id_ for id_, each in stripe.main.methods.items() if "card" in each][:150]
        assert {card.token for card in (*first, *rest)} == set(attached)
        assert {card.guest_reference for card in (*first, *rest)} == {customer}
        assert (len(first) + len(rest), end) == (150, None)

    def test_that_is_empty_cannot_go_on(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        body = b'{"object": "list", "data": [], "has_more": true}'
        server.server.have(change(lambda sound: replace(sound, body=body)))

        with pytest.raises(ProviderUnavailable):
            provider.list_cards(MAIN)


class TestFaults:
    """F20 to F24: what may go wrong between the service and Stripe, beyond the contract suite."""

    # Shows F20.
    def test_f20_a_page_made_under_a_saved_fault_is_found(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        server.have(Trouble.FAULT_AFTER_IT_ACTED, CREATE_SESSION, times=1)

        page = provider.start(REQUEST)

        assert only_session(server)["id"] == page.reference
        assert provider.start(REQUEST) == page

    @pytest.mark.parametrize(
        "theirs",
        [
            {"client_reference_id": None, "metadata": None},
            {"client_reference_id": None, "metadata": {}, "status": None},
        ],
    )
    def test_f20_it_is_found_among_the_sessions_of_other_programs(
        self, provider: StripeProvider, server: FakeStripeServer, theirs: dict[str, Any]
    ) -> None:
        other = provider.start(REQUEST).reference
        server.stripe.main.sessions[other] |= theirs
        server.have(Trouble.FAULT_AFTER_IT_ACTED, CREATE_SESSION, times=1)

        page = provider.start(NEXT)

        assert server.stripe.main.sessions[page.reference]["metadata"]["attempt"] == "2"

    def test_f20_a_saved_fault_without_a_page_is_a_refusal_so_that_the_next_attempt_begins(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        server.have(Trouble.FAULT, CREATE_SESSION, times=1)
        for _ in range(2):
            with pytest.raises(ProviderRefused):
                provider.start(REQUEST)

        assert provider.start(NEXT).reference == only_session(server)["id"]

    def test_f20_a_saved_fault_under_the_key_of_the_customer_does_not_block_the_guest(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        server.have(Trouble.FAULT, CREATE_CUSTOMER, times=1)

        page = provider.start(REQUEST)

        assert page == provider.start(REQUEST)
        assert only_customer(server)["id"] == page.guest_reference

    def test_f20_other_parameters_under_the_same_key_are_refused(
        self, provider: StripeProvider
    ) -> None:
        provider.close(REQUEST, provider.start(REQUEST))

        with pytest.raises(ProviderRefused):
            provider.start(replace(REQUEST, avs=False))

    def test_f20_a_repeat_that_comes_too_late_is_refused_unless_stripe_has_the_page(
        self, provider: StripeProvider, clock: SettableClock
    ) -> None:
        page = provider.start(REQUEST)
        clock.advance(timedelta(minutes=10))

        assert provider.start(REQUEST) == page
        with pytest.raises(ProviderRefused):
            provider.start(NEXT)

    # Shows F22.
    @pytest.mark.parametrize("trouble", [Trouble.AWAY, Trouble.CONFLICT, Trouble.LOCKED])
    def test_f22_what_may_pass_is_tried_three_times(
        self, provider: StripeProvider, server: FakeStripeServer, trouble: Trouble
    ) -> None:
        server.have(trouble, CREATE_SESSION, times=3)
        with pytest.raises(ProviderUnavailable):
            provider.start(REQUEST)
        server.have(trouble, CREATE_SESSION, times=2)

        assert provider.start(REQUEST).reference == only_session(server)["id"]

    @pytest.mark.parametrize(
        ("trouble", "retry_after"),
        [(Trouble.AWAY_FOR_LONG, None), (Trouble.TOO_MANY, timedelta(seconds=17))],
    )
    def test_f22_what_stripe_does_not_want_repeated_is_sent_once(
        self,
        provider: StripeProvider,
        server: FakeStripeServer,
        trouble: Trouble,
        retry_after: timedelta | None,
    ) -> None:
        server.have(trouble)
        with pytest.raises(ProviderUnavailable) as raised:
            provider.start(REQUEST)

        assert server.calls == ["POST /v1/customers"]
        assert raised.value.retry_after == retry_after

    # Shows F24.
    def test_f24_a_page_that_stripe_closed_early_is_followed_by_another(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        page = provider.start(REQUEST)
        server.stripe.expire_session(server.stripe.main, {}, page.reference)

        assert provider.outcome(REQUEST, page, ()) == PageClosed()
        assert provider.start(NEXT).reference != page.reference


def test_a_guest_is_not_forgotten_before_stripe_says_so(tmp_path: Path) -> None:
    with closing(StripeUnderTest(tmp_path)) as psp:
        adapter = psp.adapter()
        page = adapter.start(a_request(psp))
        psp.change_bodies(lambda _, __: b'{"id": "cus_1", "object": "customer"}')
        with pytest.raises(ProviderUnavailable, match="deleted"):
            adapter.forget_guest(MAIN, page.guest_reference)
