"""Stored references of PSPs: to guests, and to the merchants behind merchant accounts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from domain.identifiers import (
    GuestId,
    GuestReference,
    MerchantAccount,
    ProviderName,
    PspAccount,
)
from domain.psps.hosted_page import PspGuest


class GuestReferences(Protocol):
    """The references by which PSPs name guests."""

    def get(self, guest: PspGuest) -> GuestReference | None:
        """Return the reference, or None if the guest has no reference there."""
        ...

    def of(self, guest_id: GuestId) -> Sequence[tuple[PspAccount, GuestReference]]:
        """Return every reference of a guest, with its merchant account, without duplicates.

        Includes references that were replaced, and those that accounts and pages name.
        """
        ...

    def guests(self, psp_account: PspAccount, reference: GuestReference) -> frozenset[GuestId]:
        """Return the guests to whom a reference belongs or belonged, until they are erased there.

        A write unit locks the reference: other units wait here until it ends.
        """
        ...

    def keep(self, guest: PspGuest, reference: GuestReference) -> None:
        """Store a reference. It replaces the former one, which the PSP still knows."""
        ...

    def keep_former(
        self, guest_id: GuestId, psp_account: PspAccount, reference: GuestReference
    ) -> None:
        """Store a reference that no page uses, so that an erasure finds the guest there."""
        ...

    def remove(self, guest_id: GuestId) -> None:
        """Delete the references of a guest, except in accounts and pages."""
        ...


class MerchantIdentities(Protocol):
    """The account at the PSP to which each merchant account's keys belonged at their first use."""

    def of_original(self, provider: ProviderName) -> frozenset[str]:
        """Return the identities at a PSP that were stored before these records became a copy."""
        ...

    def get(self, provider: ProviderName, merchant_account: MerchantAccount) -> str | None:
        """Return the stored identity, or None."""
        ...

    def claim(
        self, provider: ProviderName, merchant_account: MerchantAccount, identity: str
    ) -> str:
        """Store an identity unless one is stored.

        Return the identity that is now stored. If several processes claim at once, one succeeds.
        """
        ...

    def forget(self, provider: ProviderName, merchant_account: MerchantAccount) -> None:
        """Delete the stored identity, if there is one."""
        ...
