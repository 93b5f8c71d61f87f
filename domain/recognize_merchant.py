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

    def __init__(self, *, kept: str, given: str) -> None:
        super().__init__("the keys belong to another merchant than before")
        self.kept = kept
        self.given = given


@dataclass(frozen=True, slots=True, kw_only=True)
class RecognizeMerchant:
    """Step before the first call to a PSP: hold whose keys a merchant account has against whose it had.

    The first identity that a PSP tells is kept for good.
    """

    storage: Storage

    def __call__(
        self, provider: ProviderName, merchant_account: MerchantAccount, identity: str
    ) -> None:
        """Keep the identity if there is none yet. Raises AnotherMerchant if it is another."""
        with self.storage.read() as unit:
            kept = unit.merchant_identities.get(provider, merchant_account)

        def claim(unit: WriteUnit) -> str:
            claimed = unit.merchant_identities.claim(provider, merchant_account, identity)
            unit.commit()
            return claimed

        if kept is None:
            kept = self.storage.transact(claim)
        if kept != identity:
            raise AnotherMerchant(kept=kept, given=identity)
