"""Classes that let cardonfile's contract suite test Acme's adapter with the fake Acme."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import ClassVar

from adapters.psp.webhooks import sign
from adapters.psp_example import fake_acme
from adapters.psp_example.adapter import PLUGIN, AcmeProvider, Keys
from adapters.psp_example.fake_acme import FakeAcme, Json, Merchant
from adapters.psp_example.webhook_only import AcmeByWebhook
from adapters.psp_example.without_keys import LIST_LAG, AcmeWithoutKeys
from adapters.psp_suite.remote import RemotePspUnderTest
from adapters.psp_suite.stand_in import Response, StandInServer
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
    WaysOut,
)
from domain.billing import BillingInfo
from domain.identifiers import CardToken, GuestReference, MerchantAccount
from domain.psps.card import Card
from domain.psps.evidence import Evidence, EvidenceOrigin
from domain.psps.hosted_page import CardRefused, HostedPage, HostedPageRequest
from domain.psps.webhook import WebhookDelivery

KEYS = {MAIN: "key_of_main", OTHER: "key_of_other"}


class AcmeUnderTest(RemotePspUnderTest):
    """Serves a fake Acme over HTTP, with one merchant for MAIN and another for OTHER."""

    plugin = PLUGIN
    provider: type[AcmeProvider] = AcmeProvider
    keys: Sequence[str] = tuple(KEYS.values())
    settings: ClassVar[Mapping[str, str]] = {
        "URL": "https://api.acme.example/v1",
        "API_KEY": KEYS[MAIN],
        "WEBHOOK_SECRETS": SECRET,
    }
    facts = Facts(
        cards={
            GuestCard.GOOD: PrintedCard(fake_acme.GOOD, "visa"),
            GuestCard.ANOTHER_GOOD: PrintedCard(fake_acme.ANOTHER_GOOD, "mastercard"),
            GuestCard.REFUSED: PrintedCard(fake_acme.REFUSED, "visa"),
            GuestCard.CHALLENGED: PrintedCard(fake_acme.CHALLENGED, "visa"),
            GuestCard.WRONG_ADDRESS: PrintedCard(fake_acme.WRONG_ADDRESS, "visa"),
            GuestCard.UNCHECKED_ADDRESS: PrintedCard(fake_acme.UNCHECKED_ADDRESS, "visa"),
        },
        after_refusal=CardRefused(),
        refusal_codes={
            GuestCard.REFUSED: "do_not_honor",
            GuestCard.CHALLENGED: "authentication_failed",
        },
        calls=dict.fromkeys(Method, 1),
        telling_events=("page.done", "page.closed"),
        card_events=("card.updated", "card.deleted"),
        silent_events=("payout.paid",),
        broken_events={
            "no list": b'{"id": "event_1", "reference": "1"}',
            "an id that is no text": b'[{"id": 1, "reference": "1"}]',
        },
        misdirected=(),
        abilities=frozenset(Ability)
        - {Ability.COUNTS_REFUSALS, Ability.FORGETS_GUESTS, Ability.LISTS_CARDS},
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.fake = FakeAcme(self.clock.now)
        self.fake.merchants = {key: Merchant(account) for account, key in KEYS.items()}
        self.server = StandInServer(self.fake.respond, api="/v1/")
        self.fake.url = self.server.url

    def adapter(self, webhook_secrets: Sequence[str] = (SECRET,)) -> AcmeProvider:
        url, secrets = f"{self.server.url}/v1", {MAIN: webhook_secrets, OTHER: (OTHER_SECRET,)}
        return self.provider(
            {account: Keys(url, key, secrets[account]) for account, key in KEYS.items()}, self.clock
        )

    def type_card(
        self, page: HostedPage, card: GuestCard, *, expiry: tuple[int, int] = EXPIRY
    ) -> None:
        self.fake.type_card(page.reference, self.facts.cards[card].number, expiry)

    def answer_challenge(self, page: HostedPage, *, confirmed: bool) -> None:
        self.fake.answer_challenge(page.reference, confirmed=confirmed)

    def ways_out(self, page: HostedPage) -> WaysOut:
        asked = self.fake.page(page.reference)["asked"]["ways_out"]
        return WaysOut(with_card=asked["done"], without=asked["cancel"])

    def billing_info(self, page: HostedPage) -> BillingInfo:
        return BillingInfo(**(self.fake.page(page.reference)["asked"]["address"] or {}))

    def guest_details(self, page: HostedPage) -> GuestDetails:
        asked = self.fake.page(page.reference)["asked"]
        return GuestDetails(
            name=asked["guest_name"], email=asked["guest_email"], language=asked["language"]
        )

    def count_pages(self) -> int:
        return sum(len(merchant.pages) for merchant in self.fake.merchants.values())

    def guests(self, merchant_account: MerchantAccount) -> frozenset[GuestReference]:
        return frozenset(map(GuestReference, self._merchant(merchant_account).guests))

    def forget_guest(self, merchant_account: MerchantAccount, reference: GuestReference) -> None:
        del self._merchant(merchant_account).guests[reference]

    def tokens(self, merchant_account: MerchantAccount) -> frozenset[CardToken]:
        return frozenset(map(CardToken, self._merchant(merchant_account).tokens))

    def update_card(self, card: Card, to: GuestCard, *, expiry: tuple[int, int]) -> None:
        self.fake.update_card(card.token, self.facts.cards[to].number, expiry)

    def unknown_status(self, sound: Response) -> Response:
        changed = {**json.loads(sound.body), "status": "half-done"}
        return Response(200, json.dumps(changed).encode())

    def event(self, kind: str, request: HostedPageRequest, page: HostedPage) -> bytes:
        subject = request.idempotency_key if kind.startswith("page.") else None
        return json.dumps([{"id": "event_1", "type": kind, "reference": subject}]).encode()

    def card_event(self, kind: str, card: Card) -> bytes:
        return json.dumps([{"id": "event_2", "type": kind, "card": card.token}]).encode()

    def batch(self, bodies: Sequence[bytes]) -> bytes:
        return json.dumps([event for body in bodies for event in json.loads(body)]).encode()

    def sign(self, body: bytes, *, secret: str = SECRET, at: datetime) -> WebhookDelivery:
        time = str(int(at.timestamp()))
        signature = f"{time}.{sign(time.encode() + b'.' + body, secret)}"
        return WebhookDelivery(
            headers={"acme-signature": signature}, body=body, merchant_account=MAIN
        )

    def _merchant(self, account: MerchantAccount) -> Merchant:
        return self.fake.merchants[KEYS[account]]


class AcmeWithoutKeysUnderTest(AcmeUnderTest):
    """A fake Acme without idempotency keys, whose lists show new pages late."""

    facts = replace(
        AcmeUnderTest.facts,
        abilities=AcmeUnderTest.facts.abilities - {Ability.IDEMPOTENCY_KEYS},
        list_lag=LIST_LAG,
    )
    provider: type[AcmeProvider] = AcmeWithoutKeys


class AcmeByWebhookUnderTest(AcmeUnderTest):
    """A fake Acme that reports the outcome of a page only by webhook."""

    facts = replace(
        AcmeUnderTest.facts,
        telling_events=("page.done", "page.refused", "page.closed"),
        calls={**AcmeUnderTest.facts.calls, Method.OUTCOME: 0, Method.OUTCOME_WITH_CARD: 0},
        abilities=AcmeUnderTest.facts.abilities - {Ability.TELLS_OUTCOME},
    )
    provider: type[AcmeProvider] = AcmeByWebhook

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._told: dict[str, list[Evidence]] = defaultdict(list)

    def type_card(
        self, page: HostedPage, card: GuestCard, *, expiry: tuple[int, int] = EXPIRY
    ) -> None:
        super().type_card(page, card, expiry=expiry)
        self._tell(page)

    def answer_challenge(self, page: HostedPage, *, confirmed: bool) -> None:
        super().answer_challenge(page, confirmed=confirmed)
        self._tell(page)

    def evidence(self, page: HostedPage) -> Sequence[Evidence]:
        if self.fake.shown(page.reference)["status"] == "closed":
            self._tell(page)
        return tuple(self._told[page.reference])

    def _tell(self, page: HostedPage) -> None:
        """Pass a webhook about the page to the adapter, and store the evidence that it returns.

        For each webhook, the service does the same.
        """
        report, now = self._report("page.told", self.fake.shown(page.reference)), self.clock.now()
        (notice,) = self.adapter().read_webhook(self.sign(report, at=now))
        told = Evidence(origin=EvidenceOrigin.WEBHOOK, content=notice.content, received_at=now)
        self._told[page.reference].append(told)

    def event(self, kind: str, request: HostedPageRequest, page: HostedPage) -> bytes:
        if kind.startswith("page."):
            return self._report(kind, self.fake.shown(page.reference))
        return super().event(kind, request, page)

    @staticmethod
    def _report(kind: str, shown: Json) -> bytes:
        event = {"id": "event_1", "type": kind, "reference": shown["reference"], "page": shown}
        return json.dumps([event]).encode()
