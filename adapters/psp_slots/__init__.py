"""Limits on calls to PSPs: how many are under way at once, and how long one that hangs is tried."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import BoundedSemaphore, Lock
from typing import Final

import structlog
from typing_extensions import override

from domain.hosted_pages import (
    Evidence,
    HostedPage,
    HostedPageRequest,
    Outcome,
    WebhookDelivery,
    WebhookNotice,
)
from domain.identifiers import CardToken, GuestReference, MerchantAccount, ProviderName
from domain.ports import PaymentProvider, ProviderUnavailable

WAIT_SECONDS: Final = 0.5
"""How long a call waits for its turn: longer than a burst of guests takes, shorter than a hang."""

HANGS_AFTER_SECONDS: Final = 4.0
"""A call that ended without an answer after so long ran out of time; a quick refusal did not."""

HANGS_BEFORE_REST: Final = 3
REST_SECONDS: Final = 10.0

log = structlog.get_logger()


class PspSlots:
    """How many calls may be under way, so that a PSP that hangs cannot hold every thread."""

    def __init__(self, slots: int) -> None:
        """Take how many there are."""
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


class Rest:
    """Leaves a PSP alone for 10 seconds when three calls in a row ran out of time, and again then.

    The reconciler works through the sessions of all PSPs one by one: without this, a hundred of a
    PSP that hangs would keep those of the others waiting for eight minutes.
    """

    def __init__(self, provider: ProviderName, now: Callable[[], float] = time.monotonic) -> None:
        self._provider = provider
        self._now = now
        self._lock = Lock()
        self._hangs = 0
        self._until = now()

    @contextmanager
    def around_call(self) -> Iterator[None]:
        """Watch over a call. Raises ProviderUnavailable at once while the PSP is left alone."""
        begun_at = self._now()
        with self._lock:
            if begun_at < self._until:
                raise ProviderUnavailable("the PSP hangs, and is left alone for a while")
            if self._hangs >= HANGS_BEFORE_REST:
                # This call alone finds out whether it still hangs.
                self._until = begun_at + REST_SECONDS
        has_hung = False
        try:
            yield
        except ProviderUnavailable:
            has_hung = self._now() - begun_at >= HANGS_AFTER_SECONDS
            raise
        finally:
            self._note(has_hung)

    def _note(self, has_hung: bool) -> None:
        with self._lock:
            self._hangs = self._hangs + 1 if has_hung else 0
            is_resting = self._hangs >= HANGS_BEFORE_REST
            self._until = self._now() + (REST_SECONDS if is_resting else 0)
        if is_resting:
            log.warning("psp_hangs", provider=self._provider)


class SlottedProvider(PaymentProvider):
    """A PSP whose every call holds a slot that all PSPs share, unless it is left alone just now."""

    def __init__(self, provider: PaymentProvider, slots: PspSlots, rest: Rest) -> None:
        self._provider = provider
        self._slots = slots
        self._rest = rest

    @contextmanager
    def _call(self) -> Iterator[None]:
        with self._slots.one(), self._rest.around_call():
            yield

    @property
    @override
    def return_parameters(self) -> frozenset[str]:
        return self._provider.return_parameters

    @override
    def start(self, request: HostedPageRequest) -> HostedPage:
        with self._call():
            return self._provider.start(request)

    @override
    def outcome(
        self, request: HostedPageRequest, page: HostedPage, evidence: Sequence[Evidence]
    ) -> Outcome:
        with self._call():
            return self._provider.outcome(request, page, evidence)

    @override
    def close(self, request: HostedPageRequest, page: HostedPage) -> None:
        with self._call():
            self._provider.close(request, page)

    @override
    def discard(
        self, merchant_account: MerchantAccount, guest_reference: GuestReference, token: CardToken
    ) -> None:
        with self._call():
            self._provider.discard(merchant_account, guest_reference, token)

    @override
    def read_webhook(self, delivery: WebhookDelivery) -> Sequence[WebhookNotice]:
        # It makes no call.
        return self._provider.read_webhook(delivery)
