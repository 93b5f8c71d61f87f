"""Refuse keys that belong to a different merchant than the stored records."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from domain.identifiers import MerchantAccount, ProviderName
from domain.psps.payment_provider import ProviderUnavailable
from domain.storage import Storage, WriteUnit


class AnotherMerchant(ProviderUnavailable):
    """The keys belong to a different merchant than the keys that were used first.

    With the wrong keys, the PSP would report every page and token as unknown. Open pages would then
    count as over, and the cards that guests type there would be lost. So wrong keys are treated as
    an outage until the keys are right again.
    """

    def __init__(self, *, kept: str | None, given: str | None) -> None:
        super().__init__("the keys belong, or may belong, to another merchant than before")
        self.kept = kept
        self.given = given


class MerchantOfOriginal(AnotherMerchant):
    """The records are a copy, and the keys may belong to a merchant of the original installation.

    With such keys, the copy would discard the original's cards.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class RecognizeMerchant:
    """Step: check that a merchant account's keys still belong to the same merchant.

    This check precedes the first call to a PSP. The first identity that the PSP reports is stored
    permanently. Keys without an identity are accepted only while no identity is stored.

    If the records are a copy, keys of the original's merchants and keys without an identity are
    refused. PSPs that need no keys (`without_keys`) are exempt.
    """

    storage: Storage
    without_keys: Collection[ProviderName] = ()

    def __call__(
        self, provider: ProviderName, merchant_account: MerchantAccount, identity: str | None
    ) -> None:
        """Check the identity, and store it if it is the first. Raises the errors of `compare`."""
        kept = self.compare(provider, merchant_account, identity)
        if kept is None and identity is not None:
            kept = self._claim(provider, merchant_account, identity)
            _require_same(kept, identity)

    def compare(
        self, provider: ProviderName, merchant_account: MerchantAccount, identity: str | None
    ) -> str | None:
        """Check the identity without storing it. Return the stored identity, or None.

        Raises AnotherMerchant if the identity differs from the stored identity. Raises
        MerchantOfOriginal if the records are a copy and the identity may be one of the original's.
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
        """Store the identity, unless another process has stored an identity first.

        Return the stored identity.
        """

        def claim(unit: WriteUnit) -> str:
            claimed = unit.merchant_identities.claim(provider, merchant_account, identity)
            unit.commit()
            return claimed

        return self.storage.transact(claim)


def _require_same(kept: str, identity: str | None) -> None:
    if kept != identity:
        raise AnotherMerchant(kept=kept, given=identity)
