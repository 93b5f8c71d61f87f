from __future__ import annotations

import html
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.request import urlopen

import pytest
from structlog.testing import capture_logs

from adapters.psp.contract.clock import START, SettableClock
from adapters.psp.contract.concurrency import at_once
from adapters.psp.contract.samples import MERCHANT_ACCOUNT as MAIN
from adapters.psp.contract.samples import a_page_request
from adapters.stripe.keys import StripeKeys
from adapters.stripe.provider import StripeProvider
from domain.billing import AvsResult, BillingInfo
from domain.hosted_pages import (
    CardCollected,
    CardRefused,
    Evidence,
    EvidenceOrigin,
    HostedPage,
    NoCardCollected,
    PageClosed,
    Pending,
    consent_for,
)
from domain.identifiers import CardToken, GuestReference, MerchantAccount
from domain.ports import ProviderRefused, ProviderUnavailable
from tests.adapters.stripe.conftest import (
    CALM,
    CHALLENGED,
    DECLINED,
    GOOD,
    KEYS,
    OTHER,
    OTHER_KEYS,
    WRONG_ADDRESS,
)
from tests.builders import a_page
from tests.fake_stripe.server import FakeStripeServer, Trouble
from tests.fake_stripe.stripe import TEST_SECRET

REQUEST = a_page_request(begun_at=START, live_until=START + timedelta(minutes=30))
NEXT = replace(REQUEST, attempt=2)

CREATE_CUSTOMER = "^POST /v1/customers$"
UPDATE_CUSTOMER = "^POST /v1/customers/"
CREATE_SESSION = "^POST /v1/checkout/sessions$"
RETRIEVE_SESSION = "^GET /v1/checkout/sessions/"


def only_session(server: FakeStripeServer) -> dict[str, Any]:
    (session,) = server.stripe.main.sessions.values()
    return session


def only_customer(server: FakeStripeServer) -> dict[str, Any]:
    (customer,) = server.stripe.main.customers.values()
    return customer


class TestStart:
    def test_a_page_is_a_checkout_session_that_takes_cards_alone(
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
        told = {"token_id": REQUEST.token_id, "attempt": "1"}
        assert session["mode"] == "setup"
        assert session["payment_method_types"] == ["card"]
        assert session["client_reference_id"] == REQUEST.token_id
        assert session["metadata"] == told
        assert session["custom_text"] == {"submit": {"message": REQUEST.consent.text}}
        assert session["wallet_options"] == {"link": {"display": "never"}}
        assert session["locale"] == "en"
        assert "currency" not in session
        assert session["success_url"] == REQUEST.return_uri
        assert session["cancel_url"] == REQUEST.cancel_uri
        assert session["billing_address_collection"] == "required"
        (intent,) = server.stripe.main.intents.values()
        assert (intent["metadata"], intent["usage"]) == (told, "off_session")

    def test_a_guest_reads_the_consent_text_as_it_is_whatever_the_center_is_called(
        self, provider: StripeProvider
    ) -> None:
        consent = consent_for("*Spa* [x](https://evil.example) & Co")
        page = provider.start(replace(REQUEST, consent=consent))
        with urlopen(page.address, timeout=20) as answer:
            shown = html.unescape(answer.read().decode())
        assert consent.text in shown

    def test_without_avs_no_address_is_asked_for(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        provider.start(replace(REQUEST, avs=False))
        assert "billing_address_collection" not in only_session(server)

    def test_the_page_is_in_the_currency_of_the_merchant_account(
        self, server: FakeStripeServer
    ) -> None:
        keys = {MAIN: replace(KEYS, currency="eur"), OTHER: OTHER_KEYS}
        provider = StripeProvider(
            keys, clock=server.stripe.clock, api_base=server.url, patience=CALM
        )
        provider.start(REQUEST)
        assert only_session(server)["currency"] == "eur"

    def test_a_page_that_would_take_no_cards_is_refused_and_closed_and_the_log_says_what_to_do(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        server.stripe.main.offered = ("us_bank_account",)
        for _ in range(2):
            with capture_logs() as lines, pytest.raises(ProviderRefused, match="no cards"):
                provider.start(REQUEST)
            (line,) = [each for each in lines if each["event"] == "stripe_takes_no_cards"]
            assert (line["account"], line["log_level"]) == (MAIN, "error")
            assert "Settings, Payment methods" in line["do"]
            assert only_session(server)["status"] == "expired"

        server.stripe.main.offered = ("card",)
        assert provider.start(NEXT).reference in server.stripe.main.sessions

    def test_a_page_that_would_take_no_cards_and_could_not_be_closed_is_asked_for_again(
        self, hurried: StripeProvider, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        server.stripe.main.offered = ()
        server.have(Trouble.LOST, "/expire$")
        with pytest.raises(ProviderUnavailable):
            hurried.start(REQUEST)
        server.recover()
        with pytest.raises(ProviderRefused):
            provider.start(REQUEST)
        assert only_session(server)["status"] == "expired"

    def test_the_customer_holds_the_billing_address(
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

        customer = only_customer(server)
        assert customer["name"] == "Zoë Null"
        assert customer["email"] == "billing@guests.example"
        assert customer["phone"] == "+34931234567"
        assert customer["address"] == {
            "line1": "12 Analytical Row",
            "city": "Barcelona",
            "state": "CT",
            "postal_code": "08001",
            "country": "ES",
        }
        assert customer["metadata"] == {"guest_id": REQUEST.guest_id}

    def test_without_a_billing_address_the_guest_is_named(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        provider.start(replace(REQUEST, guest_email=None))
        customer = only_customer(server)
        assert (customer["name"], customer["email"]) == (REQUEST.guest_name, None)

    def test_an_address_that_stripe_dislikes_stops_nobody(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        page = provider.start(replace(REQUEST, guest_email="zoe@localhost"))
        assert page.guest_reference == only_customer(server)["id"]

    def test_a_guest_has_one_customer_whatever_is_known_of_them(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        first = provider.start(REQUEST)
        # Nothing was kept of the first page: its process died.
        second = provider.start(replace(NEXT, guest_name="Zoë Married"))
        third = provider.start(replace(REQUEST, attempt=3, guest_reference=second.guest_reference))

        assert only_customer(server)["id"] == first.guest_reference
        assert first.guest_reference == second.guest_reference == third.guest_reference
        assert len(server.stripe.main.sessions) == 3

    def test_sessions_that_start_at_once_share_the_customer(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        at_once(4, lambda number: provider.start(replace(REQUEST, attempt=number + 1)))
        assert only_customer(server)

    @pytest.mark.parametrize("is_known", [True, False])
    def test_a_customer_whom_stripe_has_deleted_is_replaced(
        self, provider: StripeProvider, server: FakeStripeServer, is_known: bool
    ) -> None:
        gone = provider.start(REQUEST).guest_reference
        server.stripe.delete_customer(server.stripe.main, gone)

        page = provider.start(replace(NEXT, guest_reference=gone if is_known else None))

        assert page.guest_reference != gone
        again = provider.start(replace(REQUEST, attempt=3, guest_reference=page.guest_reference))
        assert again.guest_reference == page.guest_reference

    @pytest.mark.parametrize("reference", [None, "cus_of_another_account"])
    def test_a_customer_who_is_gone_is_noticed_behind_an_address_that_stripe_dislikes(
        self, provider: StripeProvider, server: FakeStripeServer, reference: str | None
    ) -> None:
        gone = GuestReference(reference or provider.start(REQUEST).guest_reference)
        if reference is None:
            server.stripe.delete_customer(server.stripe.main, gone)

        page = provider.start(replace(NEXT, guest_reference=gone, guest_email="zoe@localhost"))

        assert page.guest_reference != gone

    def test_merchant_accounts_share_nothing(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        page = provider.start(REQUEST)
        elsewhere = replace(REQUEST, merchant_account=OTHER, guest_reference=page.guest_reference)

        assert provider.outcome(elsewhere, page, ()) == PageClosed()
        assert provider.start(elsewhere).guest_reference != page.guest_reference
        assert len(server.stripe.main.sessions) == 1

    def test_a_page_lives_as_long_as_its_session_within_stripes_bounds(
        self, provider: StripeProvider
    ) -> None:
        def life(minutes: int) -> timedelta:
            request = replace(
                REQUEST, attempt=minutes, live_until=START + timedelta(minutes=minutes)
            )
            return provider.start(request).ends_at - START

        assert life(1) == timedelta(minutes=32)
        assert life(45) == timedelta(minutes=45)
        begun_late = replace(REQUEST, attempt=99, live_until=START + timedelta(minutes=45.001))
        assert provider.start(begun_late).ends_at - START == timedelta(minutes=45, seconds=1)
        assert life(24 * 60) == timedelta(hours=23, minutes=58)

    def test_an_account_without_keys_is_unavailable(self, provider: StripeProvider) -> None:
        unknown = replace(REQUEST, merchant_account=MerchantAccount("unknown"))
        with pytest.raises(ProviderUnavailable, match="no keys"):
            provider.start(unknown)

    def test_live_keys_take_no_test_page(
        self, server: FakeStripeServer, clock: SettableClock
    ) -> None:
        live = server.stripe.add_merchant("sk_live_main", TEST_SECRET)
        keys = StripeKeys(secret_key="sk_live_main", webhook_secrets=(TEST_SECRET,))
        provider = StripeProvider({MAIN: keys}, clock=clock, api_base=server.url, patience=CALM)
        page = provider.start(REQUEST)
        assert provider.outcome(REQUEST, page, ()) == Pending()
        live.sessions[page.reference]["livemode"] = False

        with pytest.raises(ProviderUnavailable, match="test and live mode"):
            provider.outcome(REQUEST, page, ())


def page_whose_card_nobody_holds(provider: StripeProvider, server: FakeStripeServer) -> HostedPage:
    page = provider.start(REQUEST)
    server.stripe.submit_card(page.reference, GOOD)
    (token,) = server.stripe.main.methods
    server.stripe.detach_method(server.stripe.main, {}, token)
    return page


class TestOutcome:
    def test_a_collected_card(
        self, provider: StripeProvider, server: FakeStripeServer, clock: SettableClock
    ) -> None:
        page = provider.start(REQUEST)
        assert provider.outcome(REQUEST, page, ()) == Pending()
        clock.advance(timedelta(minutes=5))
        server.stripe.submit_card(page.reference, GOOD)

        outcome = provider.outcome(REQUEST, page, ())

        (method,) = server.stripe.main.methods.values()
        assert isinstance(outcome, CardCollected)
        assert outcome.avs is AvsResult.MATCH
        assert outcome.collected_at == START + timedelta(minutes=5)
        card = outcome.card
        assert card.token == method["id"]
        assert card.guest_reference == page.guest_reference == method["customer"]
        assert card.fingerprint == method["card"]["fingerprint"]
        assert (card.card_logo, card.last_four, card.expiry_on) == ("visa", "4242", "09/31")

    def test_a_wrong_address_is_told_and_not_judged(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        page = provider.start(REQUEST)
        server.stripe.submit_card(page.reference, WRONG_ADDRESS)
        outcome = provider.outcome(REQUEST, page, ())
        assert isinstance(outcome, CardCollected)
        assert outcome.avs is AvsResult.MISMATCH

    def test_a_declined_card_and_then_another(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        page = provider.start(REQUEST)
        server.stripe.submit_card(page.reference, DECLINED)
        assert provider.outcome(REQUEST, page, ()) == CardRefused()
        server.stripe.submit_card(page.reference, GOOD)
        assert isinstance(provider.outcome(REQUEST, page, ()), CardCollected)

    @pytest.mark.parametrize("confirmed", [True, False])
    def test_a_challenge(
        self, provider: StripeProvider, server: FakeStripeServer, confirmed: bool
    ) -> None:
        page = provider.start(REQUEST)
        server.stripe.submit_card(page.reference, CHALLENGED)
        assert provider.outcome(REQUEST, page, ()) == Pending()
        server.stripe.answer_challenge(page.reference, confirmed=confirmed)
        outcome = provider.outcome(REQUEST, page, ())
        assert isinstance(outcome, CardCollected if confirmed else CardRefused)

    def test_a_link_account_is_no_card_and_the_log_says_what_to_do(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        page = provider.start(REQUEST)
        # As on a page that an earlier release made, which did not hide Link.
        del only_session(server)["wallet_options"]
        server.stripe.submit_link(page.reference)

        with capture_logs() as lines:
            outcome = provider.outcome(REQUEST, page, ())

        (method,) = server.stripe.main.methods.values()
        assert outcome == NoCardCollected(
            guest_reference=page.guest_reference,
            token=CardToken(method["id"]),
            collected_at=START,
        )
        (line,) = lines
        assert (line["event"], line["account"]) == ("stripe_collected_no_card", MAIN)
        assert "Link" in line["do"]

    def test_a_bank_account_is_no_card_and_can_be_discarded(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        page = provider.start(REQUEST)
        only_session(server)["payment_method_types"].append("us_bank_account")
        server.stripe.submit_bank_account(page.reference)

        outcome = provider.outcome(REQUEST, page, ())

        assert isinstance(outcome, NoCardCollected)
        provider.discard(MAIN, outcome.guest_reference, outcome.token)
        assert provider.outcome(REQUEST, page, ()) == Pending()

    def test_a_card_that_somebody_detached_at_once_closes_its_page_a_minute_after_the_webhook(
        self, provider: StripeProvider, server: FakeStripeServer, clock: SettableClock
    ) -> None:
        page = page_whose_card_nobody_holds(provider, server)
        # A challenge may take longer than a minute: the card was typed before it.
        clock.advance(timedelta(minutes=3))
        told = [
            Evidence(
                origin=EvidenceOrigin.WEBHOOK,
                content="checkout.session.completed evt_1",
                received_at=clock.now(),
            )
        ]

        assert provider.outcome(REQUEST, page, told) == Pending()
        clock.advance(timedelta(minutes=1))
        assert provider.outcome(REQUEST, page, told) == PageClosed()

    def test_without_a_webhook_such_a_page_is_closed_a_minute_after_its_end(
        self, provider: StripeProvider, server: FakeStripeServer, clock: SettableClock
    ) -> None:
        page = page_whose_card_nobody_holds(provider, server)
        clock.advance(page.ends_at - clock.now() - timedelta(seconds=1))
        assert provider.outcome(REQUEST, page, ()) == Pending()

        # Pending would end the session now, and nobody would ask for a card that comes after all.
        clock.advance(timedelta(seconds=1))
        with pytest.raises(ProviderUnavailable):
            provider.outcome(REQUEST, page, ())

        clock.advance(timedelta(minutes=1))
        assert provider.outcome(REQUEST, page, ()) == PageClosed()

    def test_a_card_whose_customer_was_deleted_at_once_closes_its_page(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        page = provider.start(REQUEST)
        server.stripe.submit_card(page.reference, GOOD)
        server.stripe.delete_customer(server.stripe.main, page.guest_reference)

        assert provider.outcome(REQUEST, page, ()) == PageClosed()

    def test_an_unknown_page_is_closed(self, provider: StripeProvider) -> None:
        assert provider.outcome(REQUEST, a_page(reference="cs_test_unknown"), ()) == PageClosed()

    def test_a_page_of_another_session_is_not_taken_for_ones_own(
        self, provider: StripeProvider
    ) -> None:
        page = provider.start(REQUEST)
        with pytest.raises(ProviderUnavailable, match="another page"):
            provider.outcome(NEXT, page, ())


class TestClose:
    def test_a_page_takes_no_more_cards_and_twice_is_fine(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        page = provider.start(REQUEST)
        provider.close(REQUEST, page)
        provider.close(REQUEST, page)
        provider.close(REQUEST, a_page(reference="cs_test_unknown"))
        assert only_session(server)["status"] == "expired"

    def test_a_page_that_a_guest_is_just_submitting_is_not_called_closed(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        page = provider.start(REQUEST)
        server.have(Trouble.REFUSED, "/expire$")
        with pytest.raises(ProviderRefused):
            provider.close(REQUEST, page)


class TestDiscard:
    def test_a_payment_method_is_detached_and_twice_is_fine(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        page = provider.start(REQUEST)
        server.stripe.submit_card(page.reference, GOOD)
        (method,) = server.stripe.main.methods.values()
        for _ in range(2):
            provider.discard(MAIN, page.guest_reference, CardToken(method["id"]))
            assert method["customer"] is None
        provider.discard(MAIN, page.guest_reference, CardToken("pm_unknown"))

    @pytest.mark.parametrize("code", [None, "resource_missing"])
    def test_the_card_of_a_customer_who_was_deleted_is_done_with_and_the_log_says_so(
        self, provider: StripeProvider, server: FakeStripeServer, code: str | None
    ) -> None:
        page = provider.start(REQUEST)
        server.stripe.submit_card(page.reference, GOOD)
        (token,) = map(CardToken, server.stripe.main.methods)
        server.stripe.delete_customer(server.stripe.main, page.guest_reference)
        server.stripe.code_without_customer = code

        with capture_logs() as lines:
            provider.discard(MAIN, page.guest_reference, token)

        assert [line for line in lines if line["event"] == "stripe_discard_ended"] == [
            {"event": "stripe_discard_ended", "log_level": "warning", "account": MAIN}
        ]

    def test_a_detachment_that_is_refused_while_the_customer_is_there_is_tried_again(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        page = provider.start(REQUEST)
        server.stripe.submit_card(page.reference, GOOD)
        (token,) = map(CardToken, server.stripe.main.methods)
        server.have(Trouble.REFUSED, "/detach$")
        with pytest.raises(ProviderRefused):
            provider.discard(MAIN, page.guest_reference, token)


@pytest.mark.slow
class TestFaults:
    """F19 to F24: what may go wrong between the service and a PSP."""

    @pytest.mark.parametrize("call", [CREATE_CUSTOMER, UPDATE_CUSTOMER, CREATE_SESSION])
    def test_f19_a_call_that_timed_out_before_stripe_got_it_is_made_again(
        self,
        hurried: StripeProvider,
        provider: StripeProvider,
        server: FakeStripeServer,
        call: str,
    ) -> None:
        server.have(Trouble.LOST, call)
        with pytest.raises(ProviderUnavailable):
            hurried.start(REQUEST)
        server.recover()

        page = provider.start(REQUEST)

        assert only_session(server)["id"] == page.reference
        assert only_customer(server)["id"] == page.guest_reference

    @pytest.mark.parametrize("call", [CREATE_CUSTOMER, UPDATE_CUSTOMER, CREATE_SESSION])
    def test_f20_a_call_that_timed_out_after_stripe_acted_makes_no_second_page(
        self,
        hurried: StripeProvider,
        provider: StripeProvider,
        server: FakeStripeServer,
        call: str,
    ) -> None:
        server.have(Trouble.ANSWER_LOST, call)
        with pytest.raises(ProviderUnavailable):
            hurried.start(REQUEST)
        server.recover()

        page = provider.start(REQUEST)

        assert provider.start(REQUEST) == page
        assert only_session(server)["id"] == page.reference
        assert only_customer(server)["id"] == page.guest_reference

    def test_f20_a_detachment_that_timed_out_after_stripe_acted_is_fine_the_next_time(
        self, hurried: StripeProvider, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        page = provider.start(REQUEST)
        server.stripe.submit_card(page.reference, GOOD)
        (token,) = map(CardToken, server.stripe.main.methods)
        server.have(Trouble.ANSWER_LOST, "/detach$")
        with pytest.raises(ProviderUnavailable):
            hurried.discard(MAIN, page.guest_reference, token)
        server.recover()
        provider.discard(MAIN, page.guest_reference, token)

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
    def test_f20_a_page_is_found_among_what_others_made_for_the_customer(
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

    def test_f20_a_saved_fault_under_the_guests_key_keeps_no_guest_waiting(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        server.have(Trouble.FAULT, CREATE_CUSTOMER, times=1)
        page = provider.start(REQUEST)
        assert page == provider.start(REQUEST)
        assert only_customer(server)["id"] == page.guest_reference

    def test_f20_other_parameters_under_the_same_key_are_a_refusal(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        page = provider.start(REQUEST)
        provider.close(REQUEST, page)
        with pytest.raises(ProviderRefused):
            provider.start(replace(REQUEST, avs=False))

    def test_f20_a_repeat_that_comes_too_late_is_a_refusal_unless_stripe_knows_the_page(
        self, provider: StripeProvider, server: FakeStripeServer, clock: SettableClock
    ) -> None:
        page = provider.start(REQUEST)
        clock.advance(timedelta(minutes=10))
        assert provider.start(REQUEST) == page
        with pytest.raises(ProviderRefused):
            provider.start(NEXT)
        assert len(server.stripe.main.sessions) == 1

    @pytest.mark.parametrize(
        "trouble",
        [
            Trouble.TOO_MANY,
            Trouble.AWAY,
            Trouble.AWAY_FOR_LONG,
            Trouble.CONFLICT,
            Trouble.LOCKED,
            Trouble.UNAUTHORIZED,
            Trouble.FORBIDDEN,
            Trouble.REDIRECT,
        ],
    )
    @pytest.mark.parametrize("method", ["start", "outcome", "close", "discard"])
    def test_f22_an_outage_is_one_for_every_method(
        self, provider: StripeProvider, server: FakeStripeServer, trouble: Trouble, method: str
    ) -> None:
        page = provider.start(REQUEST)
        server.have(trouble)
        with pytest.raises(ProviderUnavailable):
            CALLS[method](provider, page)
        assert not any("elsewhere" in call for call in server.calls)

    @pytest.mark.parametrize("trouble", [Trouble.AWAY, Trouble.CONFLICT, Trouble.LOCKED])
    def test_f22_what_passes_by_itself_is_waited_for(
        self, provider: StripeProvider, server: FakeStripeServer, trouble: Trouble
    ) -> None:
        server.have(trouble, CREATE_SESSION, times=2)
        assert provider.start(REQUEST).reference == only_session(server)["id"]

    @pytest.mark.parametrize(
        ("trouble", "retry_after"),
        [(Trouble.AWAY_FOR_LONG, None), (Trouble.TOO_MANY, timedelta(seconds=7))],
    )
    def test_f22_what_stripe_does_not_want_again_is_not_sent_again(
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

    @pytest.mark.parametrize("trouble", [Trouble.NONSENSE, Trouble.UNKNOWN_STATUS])
    def test_f23_what_cannot_be_understood_makes_that_session_wait_and_no_other(
        self, provider: StripeProvider, server: FakeStripeServer, trouble: Trouble
    ) -> None:
        sick, well = provider.start(REQUEST), provider.start(NEXT)
        server.have(trouble, RETRIEVE_SESSION + sick.reference)
        server.stripe.submit_card(well.reference, GOOD)

        with pytest.raises(ProviderUnavailable):
            provider.outcome(REQUEST, sick, ())
        assert isinstance(provider.outcome(NEXT, well, ()), CardCollected)
        server.recover()
        assert provider.outcome(REQUEST, sick, ()) == Pending()

    def test_f24_a_page_that_stripe_closed_early_is_closed_and_followed_by_another(
        self, provider: StripeProvider, server: FakeStripeServer
    ) -> None:
        page = provider.start(REQUEST)
        server.stripe.expire_session(server.stripe.main, {}, page.reference)
        assert provider.outcome(REQUEST, page, ()) == PageClosed()
        assert provider.start(NEXT).reference != page.reference

    def test_f24_a_page_past_its_end_is_closed(
        self, provider: StripeProvider, clock: SettableClock
    ) -> None:
        page = provider.start(REQUEST)
        clock.advance(timedelta(minutes=32))
        assert provider.outcome(REQUEST, page, ()) == PageClosed()


CALLS: dict[str, Callable[[StripeProvider, HostedPage], object]] = {
    "start": lambda provider, _: provider.start(NEXT),
    "outcome": lambda provider, page: provider.outcome(REQUEST, page, ()),
    "close": lambda provider, page: provider.close(REQUEST, page),
    "discard": lambda provider, page: provider.discard(
        MAIN, page.guest_reference, CardToken("pm_1")
    ),
}


def test_the_requests_name_their_version_and_repeat_nothing_of_the_guest_in_their_path(
    provider: StripeProvider, server: FakeStripeServer
) -> None:
    page = provider.start(REQUEST)
    provider.outcome(REQUEST, page, ())
    assert [re.sub(r"(cus|cs_test)_[0-9]+", r"\1", call) for call in server.calls] == [
        "POST /v1/customers",
        "POST /v1/customers/cus",
        "POST /v1/checkout/sessions",
        "GET /v1/checkout/sessions/cs_test",
    ]
