"""Refuse keys of another merchant than the one that the stored records belong to."""

from __future__ import annotations

from dataclasses import dataclass

from domain.identifiers import MerchantAccount, ProviderName
from domain.psps.payment_provider import ProviderUnavailable
from domain.storage import Storage, WriteUnit


class AnotherMerchant(ProviderUnavailable):
    """The keys belong to another merchant than before.

    With them the PSP would report every page and token as unknown, and their sessions would end.
    So this counts as an outage, until the keys are right again.
    """

    def __init__(self, *, kept: str, given: str | None) -> None:
        super().__init__("the keys belong to another merchant than before, or may")
        self.kept = kept
        self.given = given


@dataclass(frozen=True, slots=True, kw_only=True)
class RecognizeMerchant:
    """Step before the first call to a PSP: check that the keys are the same merchant's.

    The first identity that the PSP reports is stored for good. Keys without an identity are
    accepted only while none is stored.
    """

    storage: Storage

    def __call__(
        self, provider: ProviderName, merchant_account: MerchantAccount, identity: str | None
    ) -> None:
        """Store the first identity. Raises AnotherMerchant if it differs from the stored one."""
        with self.storage.read() as unit:
            kept = unit.merchant_identities.get(provider, merchant_account)

        if kept is None and identity is not None:
            kept = self._claim(provider, merchant_account, identity)
        if kept is not None and kept != identity:
            raise AnotherMerchant(kept=kept, given=identity)

    def _claim(
        self, provider: ProviderName, merchant_account: MerchantAccount, identity: str
    ) -> str:
        """Store the identity unless another process was faster; return the stored one."""

        def claim(unit: WriteUnit) -> str:
            claimed = unit.merchant_identities.claim(provider, merchant_account, identity)
            unit.commit()
            return claimed

        return self.storage.transact(claim)
