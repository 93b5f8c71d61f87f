"""A limit on how many calls to PSPs are under way at once in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import BoundedSemaphore
from typing import Final

from typing_extensions import override

from domain.hosted_pages import (
    Evidence,
    HostedPage,
    HostedPageRequest,
    Outcome,
    WebhookDelivery,
    WebhookNotice,
)
from domain.identifiers import CardToken, GuestReference, MerchantAccount
from domain.ports import PaymentProvider, ProviderUnavailable

WAIT_SECONDS: Final = 0.5
"""How long a call waits for its turn: longer than a burst of guests takes, shorter than a hang."""


class PspSlots:
    """How many calls may be under way, so that a PSP that hangs cannot hold every thread."""

    def __init__(self, slots: int) -> None:
        self._free = BoundedSemaphore(slots)

    @contextmanager
    def one(self) -> Iterator[None]:
        """Hold a slot. Raises ProviderUnavailable when none gets free within half a second."""
        if not self._free.acquire(timeout=WAIT_SECONDS):
            raise ProviderUnavailable("too many calls to PSPs are under way")
        try:
            yield
        finally:
            self._free.release()


class SlottedProvider(PaymentProvider):
    """A PSP whose every call holds a slot that all PSPs share."""

    def __init__(self, provider: PaymentProvider, slots: PspSlots) -> None:
        self._provider = provider
        self._slots = slots

    @property
    @override
    def return_parameters(self) -> frozenset[str]:
        return self._provider.return_parameters

    @override
    def start(self, request: HostedPageRequest) -> HostedPage:
        with self._slots.one():
            return self._provider.start(request)

    @override
    def outcome(
        self, request: HostedPageRequest, page: HostedPage, evidence: Sequence[Evidence]
    ) -> Outcome:
        with self._slots.one():
            return self._provider.outcome(request, page, evidence)

    @override
    def close(self, request: HostedPageRequest, page: HostedPage) -> None:
        with self._slots.one():
            self._provider.close(request, page)

    @override
    def discard(
        self, merchant_account: MerchantAccount, guest_reference: GuestReference, token: CardToken
    ) -> None:
        with self._slots.one():
            self._provider.discard(merchant_account, guest_reference, token)

    @override
    def read_webhook(self, delivery: WebhookDelivery) -> Sequence[WebhookNotice]:
        # It makes no call.
        return self._provider.read_webhook(delivery)
