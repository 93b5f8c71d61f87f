"""Refuse to work with keys of another merchant account than the one that records are about."""

from __future__ import annotations

from dataclasses import dataclass

from domain.identifiers import MerchantAccount, ProviderName
from domain.ports import ProviderUnavailable, Storage, WriteUnit


class AnotherMerchant(ProviderUnavailable):
    """The keys belong to another merchant than before, whose PSP knows none of our records.

    Asked with them, it would call every page and every token unknown, and so over and done with.
    The work waits until the keys are right again.
    """

    def __init__(self, *, kept: str, given: str | None) -> None:
        super().__init__("the keys belong to another merchant than before, or may")
        self.kept = kept
        self.given = given


@dataclass(frozen=True, slots=True, kw_only=True)
class RecognizeMerchant:
    """Step before the first call to a PSP: hold whose keys a merchant account has against whose it had.

    The first identity that a PSP tells is kept for good. Keys that do not tell whose they are pass
    only as long as none is kept.
    """

    storage: Storage

    def __call__(
        self, provider: ProviderName, merchant_account: MerchantAccount, identity: str | None
    ) -> None:
        """Keep the identity if there is none yet. Raises AnotherMerchant if it is not the one kept."""
        with self.storage.read() as unit:
            kept = unit.merchant_identities.get(provider, merchant_account)

        if kept is None and identity is not None:
            kept = self._claim(provider, merchant_account, identity)
        if kept is not None and kept != identity:
            raise AnotherMerchant(kept=kept, given=identity)

    def _claim(
        self, provider: ProviderName, merchant_account: MerchantAccount, identity: str
    ) -> str:
        """Keep the identity, unless another process was faster; give the one that is kept."""

        def claim(unit: WriteUnit) -> str:
            claimed = unit.merchant_identities.claim(provider, merchant_account, identity)
            unit.commit()
            return claimed

        return self.storage.transact(claim)
