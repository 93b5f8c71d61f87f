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
    """Checks that the keys of a merchant account still belong to the same merchant.

    Each account is checked once per process, before the first call with its keys. This is enough,
    because keys are read only when the process starts.
    """

    def __init__(self, recognize: RecognizeMerchant) -> None:
        self._recognize = recognize
        self._lock = Lock()
        self._verdicts: dict[PspAccount, AnotherMerchant | None] = {}

    def require_known(self, account: PspAccount, provider: PaymentProvider) -> None:
        """Raise AnotherMerchant if the keys belong, or may belong, to another merchant.

        The first failure is logged. Raises ProviderUnavailable while the PSP does not respond; the
        next call then repeats the check.
        """
        if account not in self._verdicts:
            self._check(account, provider)
        verdict = self._verdicts[account]
        if verdict is not None:
            raise type(verdict)(kept=verdict.kept, given=verdict.given)

    def _check(self, account: PspAccount, provider: PaymentProvider) -> None:
        """Check an account, and keep the result.

        If several threads check at once, the first result is kept.
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
                do="give this copy the keys of another merchant, under another account "
                "name (configure-payments --account)",
            )
        else:
            log.error(
                "psp_keys_of_another_merchant",
                **known,
                do="set keys that belong to the merchant `kept` and may read the account; to use "
                "keys of another merchant, choose another account name (configure-payments "
                "--account)",
            )
