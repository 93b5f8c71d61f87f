"""Connects Mollie's adapter to the fake Mollie, for the contract suite."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import ClassVar, Final

from typing_extensions import override

from adapters.mollie.payloads import LOCALES
from adapters.mollie.plugin import CURRENCY, KEY, PLUGIN
from adapters.mollie.provider import MollieKeys, MollieProvider, MollieSettings
from adapters.psp.http import RetryPolicy
from adapters.psp_suite.remote import RemotePspUnderTest
from adapters.psp_suite.stand_in import Response, json_response
from adapters.psp_suite.under_test import (
    EXPIRY,
    MAIN,
    OTHER,
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
from domain.billing import BillingInfo
from domain.identifiers import CardToken, GuestReference, MerchantAccount
from domain.psps.card import Card, Funding
from domain.psps.hosted_page import HostedPage, HostedPageRequest, PageClosed
from domain.psps.payment_provider import PaymentProvider
from domain.psps.webhook import WebhookDelivery
from tests.fake_mollie import mollie
from tests.fake_mollie.mollie import PAGE_LIFETIME, TEST_KEY, FakeMollie, Merchant, an_error

OTHER_KEY: Final = "test_other"
_STATUSES: Final[Mapping[Trouble, int]] = {
    Trouble.REFUSED: 422,
    Trouble.NOT_FOUND: 404,
    Trouble.UNAUTHORIZED: 401,
    Trouble.FORBIDDEN: 403,
    Trouble.TOO_MANY: 429,
    Trouble.OUT_OF_ORDER: 503,
}
_TAGS: Final = {locale: tag for tag, locale in LOCALES.items()}


class MollieUnderTest(RemotePspUnderTest):
    """A running fake Mollie with a merchant and a key for each of MAIN and OTHER."""

    plugin = PLUGIN
    facts = Facts(
        cards={
            GuestCard.GOOD: PrintedCard(mollie.GOOD, "visa", Funding.CREDIT),
            GuestCard.ANOTHER_GOOD: PrintedCard(mollie.ANOTHER_GOOD, "amex", Funding.CREDIT),
            GuestCard.REFUSED: PrintedCard(mollie.REFUSED, "visa"),
            GuestCard.CHALLENGED: PrintedCard(mollie.CHALLENGED, "mastercard"),
        },
        after_refusal=PageClosed(refused_cards=1),
        refusal_codes={
            GuestCard.REFUSED: "insufficient_funds",
            GuestCard.CHALLENGED: "authentication_failed",
        },
        # START creates the customer, writes its details and creates the payment.
        # OUTCOME_WITH_CARD reads the mandate too.
        # CLOSE reads whether the payment can be cancelled.
        calls={
            Method.START: 3,
            Method.OUTCOME: 1,
            Method.OUTCOME_WITH_CARD: 2,
            Method.CLOSE: 2,
            Method.DISCARD: 1,
            Method.FORGET_GUEST: 1,
            Method.READ_CARD: 1,
        },
        telling_events=("payment",),
        silent_events=("order", "subscription"),
        broken_events={
            "nothing": b"",
            "no id": b"name=tr_1",
            "an empty id": b"id=",
            "two ids": b"id=tr_1&id=tr_2",
            "an id that is none": b"id=tr_1%20or%202",
            "no text": b"id=tr_\xff",
            "JSON": b'{"id": "tr_1"}',
            "many fields": b"id=tr_1" + b"&a=b" * 99,
        },
        misdirected=(),
        live_settings={KEY: "live_main"},
        nullable=(
            *("cardNumber", "cardExpiryDate", "cardLabel", "cardFingerprint", "cardHolder"),
            *("cardSecurity", "failureReason", "details", "scopes", "metadata", "customerId"),
            *("mandateId", "paidAt", "expiresAt", "isCancelable", "checkout"),
        ),
        address_fields=frozenset(),
        resolution=timedelta(seconds=1),
        page_lifetime=PAGE_LIFETIME,
        abilities=frozenset(Ability)
        - {
            *(Ability.SIGNED_WEBHOOKS, Ability.SIGNED_TIMES, Ability.BATCHES),
            Ability.CHECKS_ADDRESSES,
            *(Ability.SECOND_CARD, Ability.COUNTS_REFUSALS, Ability.LISTS_CARDS),
        },
    )
    keys: Sequence[str] = (TEST_KEY, OTHER_KEY)
    settings: ClassVar[Mapping[str, str]] = {KEY: TEST_KEY, CURRENCY: "EUR"}

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.mollie = FakeMollie(self.clock)
        self.mollie.merchants[OTHER_KEY] = Merchant(OTHER_KEY)
        for merchant in self.mollie.merchants.values():
            merchant.cancelable = True
        self.server = self.mollie.server

    @override
    def close(self) -> None:
        self.mollie.close()

    @override
    def adapter(self, webhook_secrets: Sequence[str] = (SECRET,)) -> PaymentProvider:
        settings = MollieSettings(
            accounts={
                MAIN: MollieKeys(api_key=TEST_KEY, currency="EUR"),
                OTHER: MollieKeys(api_key=OTHER_KEY, currency="EUR"),
            },
            webhooks_url="https://pay.example/webhooks/mollie",
            api_base=self.server.url,
        )
        # The usual deadline, without pauses between tries.
        return MollieProvider(settings, clock=self.clock, retry_policy=RetryPolicy(pause_seconds=0))

    @override
    def type_card(
        self, page: HostedPage, card: GuestCard, *, expiry: tuple[int, int] = EXPIRY
    ) -> None:
        self.mollie.type_card(page.reference, self.facts.cards[card].number, expiry)

    @override
    def answer_challenge(self, page: HostedPage, *, confirmed: bool) -> None:
        self.mollie.answer_challenge(page.reference, confirmed=confirmed)

    @override
    def ways_out(self, page: HostedPage) -> WaysOut:
        _, payment = self.mollie.open_payment(page.reference)
        return WaysOut(with_card=payment["redirectUrl"], without=payment["cancelUrl"])

    @override
    def billing_info(self, page: HostedPage) -> BillingInfo:
        return BillingInfo()

    @override
    def guest_details(self, page: HostedPage) -> GuestDetails:
        merchant, payment = self.mollie.open_payment(page.reference)
        customer = merchant.customers[payment["customerId"]]
        return GuestDetails(
            name=customer["name"], email=customer["email"], language=_TAGS[payment["locale"]]
        )

    @override
    def count_pages(self) -> int:
        return sum(len(merchant.payments) for merchant in self.mollie.merchants.values())

    @override
    def guests(self, merchant_account: MerchantAccount) -> frozenset[GuestReference]:
        merchant = self._merchant(merchant_account)
        return frozenset(map(GuestReference, merchant.customers.keys() - merchant.gone))

    @override
    def forget_guest(self, merchant_account: MerchantAccount, reference: GuestReference) -> None:
        self.mollie.delete_customer(self._merchant(merchant_account), reference)

    @override
    def tokens(self, merchant_account: MerchantAccount) -> frozenset[CardToken]:
        merchant = self._merchant(merchant_account)
        return frozenset(map(CardToken, merchant.mandates.keys() - merchant.gone))

    @override
    def update_card(self, card: Card, to: GuestCard, *, expiry: tuple[int, int]) -> None:
        number = self.facts.cards[to].number
        self.mollie.update_card(self.mollie.main, card.token, number, expiry)

    @override
    def error(self, trouble: Trouble) -> Response:
        status = _STATUSES[trouble]
        return json_response(an_error(status, about="amount.value"), status)

    @override
    def unknown_status(self, sound: Response) -> Response:
        changed = {**json.loads(sound.body), "status": "resting"}
        return Response(200, json.dumps(changed).encode())

    @override
    def event(self, kind: str, request: HostedPageRequest, page: HostedPage) -> bytes:
        subjects = {"payment": page.reference, "order": "ord_1", "subscription": "sub_1"}
        return f"id={subjects[kind]}".encode()

    @override
    def sign(self, body: bytes, *, secret: str = SECRET, at: datetime) -> WebhookDelivery:
        return WebhookDelivery(headers={}, body=body, merchant_account=MAIN)

    def _merchant(self, account: MerchantAccount) -> Merchant:
        return self.mollie.merchants[TEST_KEY if account == MAIN else OTHER_KEY]
