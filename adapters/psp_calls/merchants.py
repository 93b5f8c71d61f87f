"""The check that a merchant account's keys still belong to the same merchant."""

from __future__ import annotations

from contextlib import suppress
from threading import Lock

import structlog

from domain.identifiers import PspAccount
from domain.psps.payment_provider import PaymentProvider, ProviderRefused
from domain.psps.recognize_merchant import AnotherMerchant, MerchantOfOriginal, RecognizeMerchant

log = structlog.get_logger()


class MerchantCheck:
    """Checks each merchant account once per process, before the first call with its keys.

    Once is enough, because keys are read when the process starts. An account passes if its PSP has
    never reported an identity for it.
    """

    def __init__(self, recognize: RecognizeMerchant) -> None:
        self._recognize = recognize
        self._lock = Lock()
        self._verdicts: dict[PspAccount, AnotherMerchant | None] = {}

    def require_known(self, account: PspAccount, provider: PaymentProvider) -> None:
        """Raise AnotherMerchant if the keys belong, or may belong, to another merchant.

        The first failure is logged. While the PSP does not respond, raises ProviderUnavailable and
        checks again at the next call.
        """
        if account not in self._verdicts:
            self._check(account, provider)
        verdict = self._verdicts[account]
        if verdict is not None:
            raise type(verdict)(kept=verdict.kept, given=verdict.given)

    def _check(self, account: PspAccount, provider: PaymentProvider) -> None:
        """Keep the verdict on an account.

        If several threads check at once, the first verdict is kept.
        """
        verdict: AnotherMerchant | None = None
        identity: str | None = None
        # A PSP that refuses to identify the merchant counts as a PSP that never identifies
        # merchants.
        with suppress(ProviderRefused):
            identity = provider.identity(account.merchant_account)
        try:
            self._recognize(account.provider, account.merchant_account, identity)
        except AnotherMerchant as another:
            verdict = another
        with self._lock:
            is_first = account not in self._verdicts
            self._verdicts.setdefault(account, verdict)
        if not is_first or verdict is None:
            return
        known = {
            "provider": account.provider,
            "account": account.merchant_account,
            "kept": verdict.kept,
            "given": verdict.given,
        }
        if isinstance(verdict, MerchantOfOriginal):
            log.error(
                "psp_keys_of_original",
                **known,
                do="give this copy keys of a merchant of its own, under a name of their own "
                "(configure-payments --account)",
            )
        else:
            log.error(
                "psp_keys_of_another_merchant",
                **known,
                do="set keys of the merchant in `kept` that may read their account, and give those "
                "of another merchant a name of their own (configure-payments --account)",
            )
