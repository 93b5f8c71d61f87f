"""Refuse keys that belong to a different merchant than the stored records."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from domain.identifiers import MerchantAccount, ProviderName
from domain.psps.payment_provider import ProviderUnavailable
from domain.storage import Storage, WriteUnit


class AnotherMerchant(ProviderUnavailable):
    """The keys belong to another merchant than before.

    With these keys, the PSP would report every page and token as unknown, and the sessions would
    end. So this counts as an outage until the keys are right again.
    """

    def __init__(self, *, kept: str | None, given: str | None) -> None:
        super().__init__("the keys belong, or may belong, to another merchant than before")
        self.kept = kept
        self.given = given


class MerchantOfOriginal(AnotherMerchant):
    """These records are a copy, and the keys belong, or may belong, to a merchant of the original.

    With these keys, the copy would discard the original's cards.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class RecognizeMerchant:
    """Step before the first call to a PSP: check that the keys belong to the same merchant.

    The first identity that the PSP reports is stored permanently. Keys without an identity are
    accepted only while no identity is stored. If these records are a copy, keys of the original's
    merchants and keys without an identity are refused, except for PSPs `without_keys`.
    """

    storage: Storage
    without_keys: Collection[ProviderName] = ()

    def __call__(
        self, provider: ProviderName, merchant_account: MerchantAccount, identity: str | None
    ) -> None:
        """Check the identity, and store it if it is the first. Raises as `compare` does."""
        kept = self.compare(provider, merchant_account, identity)
        if kept is None and identity is not None:
            kept = self._claim(provider, merchant_account, identity)
            _require_same(kept, identity)

    def compare(
        self, provider: ProviderName, merchant_account: MerchantAccount, identity: str | None
    ) -> str | None:
        """Check the identity without storing it; return the stored identity.

        Raises AnotherMerchant if the identity differs, and MerchantOfOriginal.
        """
        with self.storage.read() as unit:
            kept = unit.merchant_identities.get(provider, merchant_account)
            of_original = unit.merchant_identities.of_original(provider)
            is_copy = unit.installations.get().is_copy
        if is_copy and provider not in self.without_keys:
            if identity is None or identity in of_original:
                raise MerchantOfOriginal(kept=kept, given=identity)

        if kept is not None:
            _require_same(kept, identity)
        return kept

    def _claim(
        self, provider: ProviderName, merchant_account: MerchantAccount, identity: str
    ) -> str:
        """Store the identity unless another process stored one first; return the stored identity."""

        def claim(unit: WriteUnit) -> str:
            claimed = unit.merchant_identities.claim(provider, merchant_account, identity)
            unit.commit()
            return claimed

        return self.storage.transact(claim)


def _require_same(kept: str, identity: str | None) -> None:
    if kept != identity:
        raise AnotherMerchant(kept=kept, given=identity)
