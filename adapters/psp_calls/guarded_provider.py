"""The wrapper around every PSP adapter: bulkhead, circuit breaker, outage log and checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Final

from typing_extensions import override

from adapters.psp_calls.bulkhead import Bulkhead
from adapters.psp_calls.circuit_breaker import CircuitBreakers
from adapters.psp_calls.merchants import MerchantCheck
from adapters.psp_calls.outages import OutageLog
from domain.identifiers import CardToken, GuestReference, MerchantAccount, ProviderName, PspAccount
from domain.psps.card import CardList, CardReading
from domain.psps.credibility import (
    is_credible,
    is_credible_list,
    is_credible_page,
    is_credible_reading,
    without_false_details,
    without_false_facts,
)
from domain.psps.evidence import Evidence
from domain.psps.hosted_page import HostedPage, HostedPageRequest, NoCardCollected, Outcome
from domain.psps.payment_provider import FailureDetails, PaymentProvider, ProviderUnavailable
from domain.psps.webhook import WebhookDelivery, WebhookNotice

PSP_NOTE: Final = "PSP: "
"""The prefix of the note that is added to an adapter's exception. The PSP's name follows it."""


class GuardedProvider(PaymentProvider):
    """Wraps a PSP: every call goes through an optional bulkhead, a circuit breaker and a check.

    The check ensures that the keys still belong to the same merchant (`merchants.py`).

    A response with impossible values is treated like a missing response. If only a refusal code or
    an optional fact about a card is impossible, only that value is dropped. Outages are logged. A
    call that the bulkhead or the breaker stops does not reach the PSP, so it is not logged as an
    outage.
    """

    def __init__(
        self,
        name: ProviderName,
        provider: PaymentProvider,
        *,
        bulkhead: Bulkhead | None,
        breakers: CircuitBreakers,
        outages: OutageLog,
        merchants: MerchantCheck,
    ) -> None:
        self._name = name
        self._provider = provider
        self._bulkhead = bulkhead
        self._breakers = breakers
        self._outages = outages
        self._merchants = merchants

    @contextmanager
    def _call(self, merchant_account: MerchantAccount, operation: str) -> Iterator[PaymentProvider]:
        account = PspAccount(self._name, merchant_account)
        with (
            self._naming_this_psp(),
            self._bulkhead.around_call() if self._bulkhead else nullcontext(),
            self._breakers.of(account).around_call(),
            self._outages.around_call(account, operation),
        ):
            self._merchants.require_known(account, self._provider)
            yield self._provider

    @property
    @override
    def return_parameters(self) -> frozenset[str]:
        return self._provider.return_parameters

    @override
    def identity(self, merchant_account: MerchantAccount) -> str | None:
        return self._provider.identity(merchant_account)

    @override
    def start(self, request: HostedPageRequest) -> HostedPage:
        with self._call(request.merchant_account, "start") as psp:
            page = psp.start(request)
            _require(is_credible_page(page))
            return page

    @override
    def outcome(
        self, request: HostedPageRequest, page: HostedPage, evidence: Sequence[Evidence]
    ) -> Outcome:
        with self._call(request.merchant_account, "outcome") as psp:
            outcome = psp.outcome(request, page, evidence)
            _require(is_credible(outcome, page))
            if isinstance(outcome, NoCardCollected) and outcome.missing is not None:
                account = PspAccount(self._name, request.merchant_account)
                self._outages.note_missing(account, "outcome", outcome.missing)
            return without_false_details(outcome)

    @override
    def close(self, request: HostedPageRequest, page: HostedPage) -> None:
        with self._call(request.merchant_account, "close") as psp:
            psp.close(request, page)

    @override
    def discard(
        self, merchant_account: MerchantAccount, guest_reference: GuestReference, token: CardToken
    ) -> None:
        with self._call(merchant_account, "discard") as psp:
            psp.discard(merchant_account, guest_reference, token)

    @override
    def read_card(
        self, merchant_account: MerchantAccount, guest_reference: GuestReference, token: CardToken
    ) -> CardReading:
        with self._call(merchant_account, "read_card") as psp:
            reading = psp.read_card(merchant_account, guest_reference, token)
            _require(is_credible_reading(reading, guest_reference, token))
            return replace(reading, card=reading.card and without_false_facts(reading.card))

    @override
    def list_cards(self, merchant_account: MerchantAccount, after: str | None = None) -> CardList:
        with self._call(merchant_account, "list_cards") as psp:
            found = psp.list_cards(merchant_account, after)
            _require(is_credible_list(found, after))
            return found

    @override
    def forget_guest(
        self, merchant_account: MerchantAccount, guest_reference: GuestReference
    ) -> None:
        with self._call(merchant_account, "forget_guest") as psp:
            psp.forget_guest(merchant_account, guest_reference)

    @override
    def read_webhook(self, delivery: WebhookDelivery) -> Sequence[WebhookNotice]:
        # No call is made, and the webhook secret shows to which merchant the webhook belongs.
        with self._naming_this_psp():
            return self._provider.read_webhook(delivery)

    @contextmanager
    def _naming_this_psp(self) -> Iterator[None]:
        """Add the PSP's name to any exception that the adapter raises in a `with` block, for the log."""
        try:
            yield
        except Exception as fault:
            fault.add_note(f"{PSP_NOTE}{self._name}")
            raise


def _require(is_credible: bool) -> None:
    if not is_credible:
        raise ProviderUnavailable(
            "the response contains impossible values", details=FailureDetails(error="NotCredible")
        )
