"""What stands around calls to PSPs: a bulkhead, circuit breakers, and a log of outages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from threading import BoundedSemaphore
from typing import Final

from typing_extensions import override

from adapters.psp_limits.circuit_breaker import CircuitBreakers
from adapters.psp_limits.outages import OutageLog
from domain.hosted_pages import (
    Evidence,
    HostedPage,
    HostedPageRequest,
    Outcome,
    WebhookDelivery,
    WebhookNotice,
)
from domain.identifiers import (
    CardToken,
    GuestReference,
    MerchantAccount,
    ProviderName,
    PspAccount,
)
from domain.ports import PaymentProvider, ProviderUnavailable

WAIT_SECONDS: Final = 0.5
"""How long a call waits for its turn: longer than a burst of guests takes, shorter than a hang."""


class Bulkhead:
    """Bounds how many calls are under way, so that a PSP that hangs cannot hold every thread."""

    def __init__(self, calls: int) -> None:
        """Take how many calls there may be at once."""
        self._free = BoundedSemaphore(calls)

    @contextmanager
    def around_call(self) -> Iterator[None]:
        """Hold a place. Raises ProviderUnavailable when none gets free within half a second."""
        if not self._free.acquire(timeout=WAIT_SECONDS):
            raise ProviderUnavailable("too many calls to PSPs are under way")
        try:
            yield
        finally:
            self._free.release()


class GuardedProvider(PaymentProvider):
    """A PSP whose calls pass a bulkhead, if there is one, and a circuit breaker.

    Its outages are logged. A call that is stopped before it reaches the PSP says nothing of the PSP
    and is not logged.
    """

    def __init__(
        self,
        name: ProviderName,
        provider: PaymentProvider,
        *,
        bulkhead: Bulkhead | None,
        breakers: CircuitBreakers,
        outages: OutageLog,
    ) -> None:
        self._name = name
        self._provider = provider
        self._bulkhead = bulkhead
        self._breakers = breakers
        self._outages = outages

    @contextmanager
    def _call(self, merchant_account: MerchantAccount, operation: str) -> Iterator[None]:
        account = PspAccount(self._name, merchant_account)
        with (
            self._bulkhead.around_call() if self._bulkhead else nullcontext(),
            self._breakers.of(account).around_call(),
            self._outages.around_call(account, operation),
        ):
            yield

    @property
    @override
    def return_parameters(self) -> frozenset[str]:
        return self._provider.return_parameters

    @override
    def identity(self, merchant_account: MerchantAccount) -> str | None:
        with self._call(merchant_account, "identity"):
            return self._provider.identity(merchant_account)

    @override
    def start(self, request: HostedPageRequest) -> HostedPage:
        with self._call(request.merchant_account, "start"):
            return self._provider.start(request)

    @override
    def outcome(
        self, request: HostedPageRequest, page: HostedPage, evidence: Sequence[Evidence]
    ) -> Outcome:
        with self._call(request.merchant_account, "outcome"):
            return self._provider.outcome(request, page, evidence)

    @override
    def close(self, request: HostedPageRequest, page: HostedPage) -> None:
        with self._call(request.merchant_account, "close"):
            self._provider.close(request, page)

    @override
    def discard(
        self, merchant_account: MerchantAccount, guest_reference: GuestReference, token: CardToken
    ) -> None:
        with self._call(merchant_account, "discard"):
            self._provider.discard(merchant_account, guest_reference, token)

    @override
    def read_webhook(self, delivery: WebhookDelivery) -> Sequence[WebhookNotice]:
        # It makes no call.
        return self._provider.read_webhook(delivery)
