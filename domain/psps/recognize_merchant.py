"""Refuse keys of another merchant than the one that the stored records belong to."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from domain.identifiers import MerchantAccount, ProviderName
from domain.psps.payment_provider import ProviderUnavailable
from domain.storage import Storage, WriteUnit


class AnotherMerchant(ProviderUnavailable):
    """The keys belong to another merchant than before.

    With them the PSP would report every page and token as unknown, and their sessions would end.
    So this counts as an outage, until the keys are right again.
    """

    def __init__(self, *, kept: str | None, given: str | None) -> None:
        super().__init__("the keys belong to another merchant than before, or may")
        self.kept = kept
        self.given = given


class MerchantOfOriginal(AnotherMerchant):
    """These records are a copy, and the keys belong to a merchant of the original, or may.

    With them the copy would discard cards of the original.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class RecognizeMerchant:
    """Step before the first call to a PSP: check that the keys are the same merchant's.

    The first identity that the PSP reports is stored for good. Keys without an identity are
    accepted only while none is stored. Once these records are a copy, keys of a merchant of the
    original, and keys without an identity, are refused for good, but for PSPs `without_keys`.
    """

    storage: Storage
    without_keys: Collection[ProviderName] = ()

    def __call__(
        self, provider: ProviderName, merchant_account: MerchantAccount, identity: str | None
    ) -> None:
        """Store the first identity. Raises as `compare`."""
        kept = self.compare(provider, merchant_account, identity)
        if kept is None and identity is not None:
            kept = self._claim(provider, merchant_account, identity)
            _require_same(kept, identity)

    def compare(
        self, provider: ProviderName, merchant_account: MerchantAccount, identity: str | None
    ) -> str | None:
        """Return the stored identity, and store nothing.

        Raises AnotherMerchant if it differs, and MerchantOfOriginal.
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
        """Store the identity unless another process was faster; return the stored one."""

        def claim(unit: WriteUnit) -> str:
            claimed = unit.merchant_identities.claim(provider, merchant_account, identity)
            unit.commit()
            return claimed

        return self.storage.transact(claim)


def _require_same(kept: str, identity: str | None) -> None:
    if kept != identity:
        raise AnotherMerchant(kept=kept, given=identity)
