"""No call to a PSP before it is known whose keys the call would be made with."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from threading import Lock

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
from domain.ports import PaymentProvider, ProviderRefused
from domain.recognize_merchant import AnotherMerchant, RecognizeMerchant

log = structlog.get_logger()


class RecognizedProvider(PaymentProvider):
    """A PSP whose keys are recognized before the first call of this process for each account.

    Keys are read at the start of a process, so once is enough. Where the PSP has never told whose
    they are, calls go on. Where they are another merchant's, or may be, every call raises
    AnotherMerchant, which is logged once.
    """

    def __init__(
        self, name: ProviderName, provider: PaymentProvider, recognize: RecognizeMerchant
    ) -> None:
        self._name = name
        self._provider = provider
        self._recognize = recognize
        self._lock = Lock()
        self._verdicts: dict[MerchantAccount, AnotherMerchant | None] = {}

    def _for(self, account: MerchantAccount) -> PaymentProvider:
        """Give the PSP, for calls with the keys of this account. Raises AnotherMerchant."""
        if account not in self._verdicts:
            self._judge(account)
        verdict = self._verdicts[account]
        if verdict is not None:
            raise AnotherMerchant(kept=verdict.kept, given=verdict.given)
        return self._provider

    def _judge(self, account: MerchantAccount) -> None:
        """Keep the verdict on the keys of an account; of several at once, one counts."""
        verdict: AnotherMerchant | None = None
        identity: str | None = None
        # Refused for good, it will never be told.
        with suppress(ProviderRefused):
            identity = self._provider.identity(account)
        try:
            self._recognize(self._name, account, identity)
        except AnotherMerchant as another:
            verdict = another
        with self._lock:
            is_first = account not in self._verdicts
            self._verdicts.setdefault(account, verdict)
        if is_first and verdict is not None:
            log.error(
                "psp_keys_of_another_merchant",
                provider=self._name,
                account=account,
                kept=verdict.kept,
                given=verdict.given,
                do="set keys of the merchant in `kept` that may read their account, and give those "
                "of another merchant a name of their own (configure-payments --account)",
            )

    @property
    @override
    def return_parameters(self) -> frozenset[str]:
        return self._provider.return_parameters

    @override
    def identity(self, merchant_account: MerchantAccount) -> str | None:
        return self._provider.identity(merchant_account)

    @override
    def start(self, request: HostedPageRequest) -> HostedPage:
        return self._for(request.merchant_account).start(request)

    @override
    def outcome(
        self, request: HostedPageRequest, page: HostedPage, evidence: Sequence[Evidence]
    ) -> Outcome:
        return self._for(request.merchant_account).outcome(request, page, evidence)

    @override
    def close(self, request: HostedPageRequest, page: HostedPage) -> None:
        self._for(request.merchant_account).close(request, page)

    @override
    def discard(
        self, merchant_account: MerchantAccount, guest_reference: GuestReference, token: CardToken
    ) -> None:
        self._for(merchant_account).discard(merchant_account, guest_reference, token)

    @override
    def read_webhook(self, delivery: WebhookDelivery) -> Sequence[WebhookNotice]:
        # It makes no call: its secret shows whose it is.
        return self._provider.read_webhook(delivery)
