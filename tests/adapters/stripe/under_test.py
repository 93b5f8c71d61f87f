"""Connects Stripe's adapter to the fake Stripe, for the contract suite."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, Final

from typing_extensions import override

from adapters.psp.http import RetryPolicy
from adapters.psp_suite.remote import RemotePspUnderTest
from adapters.psp_suite.stand_in import Response
from adapters.psp_suite.under_test import (
    EXPIRY,
    MAIN,
    OTHER,
    OTHER_SECRET,
    SECRET,
    Ability,
    Facts,
    GuestCard,
    GuestDetails,
    Method,
    PrintedCard,
    Trouble,
    WaysOut,
)
from adapters.stripe.keys import StripeKeys
from adapters.stripe.plugin import KEY, PLUGIN, SECRETS
from adapters.stripe.provider import StripeProvider
from adapters.stripe.webhooks import HEADER, REFUSED
from domain.billing import BillingInfo
from domain.identifiers import CardToken, GuestReference, MerchantAccount
from domain.psps.card import Card, Funding
from domain.psps.evidence import Evidence, EvidenceOrigin
from domain.psps.hosted_page import CardRefused, HostedPage, HostedPageRequest
from domain.psps.payment_provider import PaymentProvider
from domain.psps.webhook import WebhookDelivery
from tests.adapters.stripe.conftest import CHALLENGED, DECLINED, GOOD, OTHER_KEY, WRONG_ADDRESS
from tests.fake_stripe import server
from tests.fake_stripe.described import require_event
from tests.fake_stripe.parameters import Refused
from tests.fake_stripe.server import FakeStripeServer
from tests.fake_stripe.stripe import TEST_KEY, TEST_SECRET, Merchant, signature

_COMPLETED: Final = "checkout.session.completed"
UNKNOWN: Final = "never.heard_of"
_REFUSALS: Final[Mapping[Trouble, server.Trouble]] = {
    Trouble.REFUSED: server.Trouble.REFUSED,
    Trouble.NOT_FOUND: server.Trouble.NOT_FOUND,
    Trouble.UNAUTHORIZED: server.Trouble.UNAUTHORIZED,
    Trouble.FORBIDDEN: server.Trouble.FORBIDDEN,
    Trouble.TOO_MANY: server.Trouble.TOO_MANY,
    Trouble.OUT_OF_ORDER: server.Trouble.AWAY,
}


# Any: an event holds whatever JSON it holds.
def an_event(kind: str, subject: Mapping[str, Any], **changes: Any) -> bytes:
    """Return the body of a webhook of test mode."""
    event = {
        "id": "evt_1",
        "object": "event",
        "created": 0,
        "type": kind,
        "livemode": False,
        "pending_webhooks": 1,
        "data": {"object": subject},
    }
    return json.dumps({**event, **changes}, indent=2).encode()


class StripeUnderTest(RemotePspUnderTest):
    """A running fake Stripe with an account and a key for each of MAIN and OTHER."""

    plugin = PLUGIN
    facts = Facts(
        cards={
            GuestCard.GOOD: PrintedCard(GOOD, "visa", Funding.CREDIT),
            GuestCard.ANOTHER_GOOD: PrintedCard("5555555555554444", "mastercard", Funding.CREDIT),
            GuestCard.REFUSED: PrintedCard(DECLINED, "visa"),
            GuestCard.CHALLENGED: PrintedCard(CHALLENGED, "visa"),
            GuestCard.WRONG_ADDRESS: PrintedCard(WRONG_ADDRESS, "visa"),
            GuestCard.UNCHECKED_ADDRESS: PrintedCard("4000000000000044", "visa"),
        },
        after_refusal=CardRefused(),
        refusal_codes={
            GuestCard.REFUSED: "generic_decline",
            GuestCard.CHALLENGED: "setup_intent_authentication_failure",
        },
        # START creates the customer, writes its details and creates the page. CLOSE and DISCARD
        # read first, because Stripe refuses to do them twice.
        calls={
            Method.START: 3,
            Method.OUTCOME: 1,
            Method.OUTCOME_WITH_CARD: 1,
            Method.CLOSE: 2,
            Method.DISCARD: 2,
            Method.FORGET_GUEST: 1,
            Method.READ_CARD: 1,
            Method.LIST_CARDS: 1,
        },
        telling_events=(_COMPLETED, "checkout.session.expired", "setup_intent.setup_failed"),
        card_events=(
            "payment_method.automatically_updated",
            "payment_method.detached",
            "payment_method.updated",
            "customer.deleted",
        ),
        silent_events=("setup_intent.succeeded", "customer.updated", UNKNOWN),
        broken_events={
            "an id that is no text": an_event(_COMPLETED, {"id": "cs_1"}, id=7),
            "no mode": an_event(_COMPLETED, {"id": "cs_1"}, livemode=None),
            "no object": an_event(_COMPLETED, {}),
            "metadata that are none": an_event(_COMPLETED, {"id": "cs_1", "metadata": "x"}),
        },
        misdirected=("live mode", "a connected account"),
        nullable=(
            *("card", "fingerprint", "checks", "address_line1_check", "address_postal_code_check"),
            *("url", "setup_intent", "payment_method", "latest_attempt"),
            *("last_setup_error", "three_d_secure"),
        ),
        live_settings={KEY: "sk_live_of_main"},
        resolution=timedelta(seconds=1),
        abilities=frozenset(Ability) - {Ability.BATCHES},
    )
    keys: Sequence[str] = (TEST_KEY, OTHER_KEY)
    settings: ClassVar[Mapping[str, str]] = {KEY: TEST_KEY, SECRETS: TEST_SECRET}

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._fake = FakeStripeServer(self.clock)
        self.server = self._fake.server
        self._stripe = self._fake.stripe
        self._stripe.add_merchant(OTHER_KEY, OTHER_SECRET)

    @override
    def close(self) -> None:
        self._fake.close()

    @override
    def adapter(self, webhook_secrets: Sequence[str] = (SECRET,)) -> PaymentProvider:
        return StripeProvider(
            {
                MAIN: StripeKeys(secret_key=TEST_KEY, webhook_secrets=tuple(webhook_secrets)),
                OTHER: StripeKeys(secret_key=OTHER_KEY, webhook_secrets=(OTHER_SECRET,)),
            },
            clock=self.clock,
            api_base=self.server.url,
            # The usual deadline, without pauses between tries.
            retry_policy=RetryPolicy(pause_seconds=0),
        )

    @override
    def type_card(
        self, page: HostedPage, card: GuestCard, *, expiry: tuple[int, int] = EXPIRY
    ) -> None:
        try:
            self._stripe.submit_card(page.reference, self.facts.cards[card].number, expiry=expiry)
        except Refused:
            return

    @override
    def answer_challenge(self, page: HostedPage, *, confirmed: bool) -> None:
        try:
            self._stripe.answer_challenge(page.reference, confirmed=confirmed)
        except Refused:
            return

    @override
    def ways_out(self, page: HostedPage) -> WaysOut:
        _, session = self._stripe.open_session(page.reference)
        return WaysOut(with_card=session["success_url"], without=session["cancel_url"])

    @override
    def billing_info(self, page: HostedPage) -> BillingInfo:
        merchant, session = self._stripe.open_session(page.reference)
        address = merchant.customers[session["customer"]]["address"] or {}
        return BillingInfo(
            address=address.get("line1"),
            city=address.get("city"),
            state=address.get("state"),
            zipcode=address.get("postal_code"),
            country_code=address.get("country"),
        )

    @override
    def guest_details(self, page: HostedPage) -> GuestDetails:
        merchant, session = self._stripe.open_session(page.reference)
        customer = merchant.customers[session["customer"]]
        return GuestDetails(
            name=customer["name"], email=customer["email"], language=session["locale"]
        )

    @override
    def evidence(self, page: HostedPage) -> Sequence[Evidence]:
        # There is one piece of evidence for each event that Stripe sent about a refused card.
        return [
            Evidence(
                origin=EvidenceOrigin.WEBHOOK,
                content=f"{event['type']} {event['id']} {event['data']['object']['id']}",
                received_at=self.clock.now(),
            )
            for merchant in self._stripe.merchants.values()
            if page.reference in merchant.sessions
            for event in merchant.events
            if event["type"] == REFUSED
            and event["data"]["object"]["id"] == merchant.sessions[page.reference]["setup_intent"]
        ]

    @override
    def count_pages(self) -> int:
        return sum(len(each.sessions) for each in self._stripe.merchants.values())

    @override
    def guests(self, merchant_account: MerchantAccount) -> frozenset[GuestReference]:
        customers = self._merchant(merchant_account).customers.values()
        return frozenset(
            GuestReference(each["id"]) for each in customers if not each.get("deleted")
        )

    @override
    def forget_guest(self, merchant_account: MerchantAccount, reference: GuestReference) -> None:
        self._stripe.delete_customer(self._merchant(merchant_account), reference)

    @override
    def tokens(self, merchant_account: MerchantAccount) -> frozenset[CardToken]:
        methods = self._merchant(merchant_account).methods.values()
        guests = self.guests(merchant_account)
        return frozenset(CardToken(each["id"]) for each in methods if each["customer"] in guests)

    @override
    def update_card(self, card: Card, to: GuestCard, *, expiry: tuple[int, int]) -> None:
        self._stripe.update_card(
            self._merchant(MAIN), card.token, self.facts.cards[to].number, expiry=expiry
        )

    @override
    def error(self, trouble: Trouble) -> Response:
        return self._fake.refusal(_REFUSALS[trouble])

    @override
    def unknown_status(self, sound: Response) -> Response:
        return server.unknown_status(sound)

    @override
    def event(self, kind: str, request: HostedPageRequest, page: HostedPage) -> bytes:
        merchant = self._merchant(request.merchant_account)
        session = merchant.sessions[page.reference]
        if kind.startswith("setup_intent."):
            return self._described(kind, merchant.intents[session["setup_intent"]])
        return self._described(kind, session)

    @override
    def card_event(self, kind: str, card: Card) -> bytes:
        merchant = self._merchant(MAIN)
        if kind.startswith("customer."):
            return self._described(kind, merchant.customers[card.guest_reference])
        return self._described(kind, merchant.methods[card.token])

    def _described(self, kind: str, subject: Mapping[str, Any], **changes: Any) -> bytes:
        body = an_event(kind, subject, **changes)
        if kind != UNKNOWN:
            self._stripe.require(require_event, json.loads(body))
        return body

    @override
    def sign(self, body: bytes, *, secret: str = SECRET, at: datetime) -> WebhookDelivery:
        return WebhookDelivery(
            headers={HEADER: signature(body, secret=secret, at=at)},
            body=body,
            merchant_account=MAIN,
        )

    @override
    def misdirect(self, whom: str, request: HostedPageRequest, page: HostedPage) -> WebhookDelivery:
        session = self._merchant(MAIN).sessions[page.reference]
        elsewhere: dict[str, dict[str, Any]] = {
            "live mode": {"livemode": True},
            "a connected account": {"account": "acct_1"},
        }
        body = self._described(_COMPLETED, session, **elsewhere[whom])
        return self.sign(body, at=self.clock.now())

    def _merchant(self, account: MerchantAccount) -> Merchant:
        return self._stripe.merchants[TEST_KEY if account == MAIN else OTHER_KEY]
