"""The fake PSP with two merchant accounts. At one of them, a card always has the same token."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from typing import Final

import msgspec
from typing_extensions import override

from adapters.fake_psp.psp import FakePsp, PageState, PspPage
from adapters.psp_suite.clock import START
from domain.identifiers import CardToken, GuestReference, MerchantAccount
from domain.psps.card import Card, CardReading
from domain.psps.evidence import Evidence
from domain.psps.hosted_page import CardCollected, HostedPage, HostedPageRequest, Outcome, Pending
from domain.psps.payment_provider import PaymentProvider
from domain.psps.webhook import WebhookDelivery, WebhookNotice

NEW_TOKENS: Final = MerchantAccount("default")
"""The merchant account at which a card gets a new token each time it is typed."""

LASTING_TOKENS: Final = MerchantAccount("lasting")
"""The merchant account at which a guest's card always has the same token, as at some PSPs."""


def pages_at(psp: FakePsp) -> list[PspPage]:
    """Return every page of the PSP, oldest first."""
    found = psp._database.read("SELECT page FROM pages ORDER BY rowid", ())
    return [msgspec.json.decode(str(row["page"]), type=PspPage) for row in found]


def token_of(merchant_account: MerchantAccount, card: Card) -> CardToken:
    """Return the token of a card at a merchant account."""
    if merchant_account == LASTING_TOKENS:
        return CardToken(f"{card.guest_reference}/{card.fingerprint[:16]}")
    return card.token


def tokens_at(psp: FakePsp, pages: Sequence[PspPage]) -> set[tuple[MerchantAccount, CardToken]]:
    """Return every token that can be charged at the PSP."""
    alive = {row["token"] for row in psp._database.read("SELECT token FROM cards", ())}
    return {
        (page.request.merchant_account, token_of(page.request.merchant_account, page.card))
        for page in pages
        if page.state is PageState.COMPLETED and page.card and page.card.token in alive
    }


class LastingTokens(PaymentProvider):
    """The adapter of the fake PSP, with permanent tokens at one merchant account.

    A parameter of the return address is evidence, as it is with some PSPs. `late` contains the
    references of pages. For these pages, `outcome` reports a collected card as still pending.
    """

    def __init__(self, provider: PaymentProvider, psp: FakePsp, late: Set[str]) -> None:
        self._provider = provider
        self._psp = psp
        self._late = late

    @property
    @override
    def return_parameters(self) -> frozenset[str]:
        return frozenset({"status"})

    @override
    def identity(self, merchant_account: MerchantAccount) -> str | None:
        return f"the merchant of {merchant_account}"

    @override
    def start(self, request: HostedPageRequest) -> HostedPage:
        return self._provider.start(request)

    @override
    def outcome(
        self, request: HostedPageRequest, page: HostedPage, evidence: Sequence[Evidence]
    ) -> Outcome:
        outcome = self._provider.outcome(request, page, evidence)
        if not isinstance(outcome, CardCollected):
            return outcome
        if page.reference in self._late:
            return Pending()
        token = token_of(request.merchant_account, outcome.card)
        return replace(outcome, card=replace(outcome.card, token=token))

    @override
    def close(self, request: HostedPageRequest, page: HostedPage) -> None:
        self._provider.close(request, page)

    @override
    def discard(
        self, merchant_account: MerchantAccount, guest_reference: GuestReference, token: CardToken
    ) -> None:
        for page in pages_at(self._psp):
            card = page.card
            if card is None or page.request.merchant_account != merchant_account:
                continue
            if token_of(merchant_account, card) == token:
                self._provider.discard(merchant_account, guest_reference, card.token)

    @override
    def read_card(
        self, merchant_account: MerchantAccount, guest_reference: GuestReference, token: CardToken
    ) -> CardReading:
        reading = CardReading(card=None, read_at=self._psp.clock.now())
        collected = [page for page in pages_at(self._psp) if page.card and page.collected_at]
        # If a card was typed several times, use the details that were typed last.
        for page in sorted(collected, key=lambda page: page.collected_at or START):
            card = page.card
            if card is None or page.request.merchant_account != merchant_account:
                continue
            if token_of(merchant_account, card) == token:
                read = self._provider.read_card(merchant_account, guest_reference, card.token)
                if read.card is not None:
                    reading = replace(read, card=replace(read.card, token=token))
        return reading

    @override
    def forget_guest(
        self, merchant_account: MerchantAccount, guest_reference: GuestReference
    ) -> None:
        self._provider.forget_guest(merchant_account, guest_reference)

    @override
    def read_webhook(self, delivery: WebhookDelivery) -> Sequence[WebhookNotice]:
        return self._provider.read_webhook(delivery)
