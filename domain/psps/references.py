"""The stored references by which PSPs identify guests and merchants."""

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
    """Repository of the references by which PSPs identify guests."""

    def get(self, guest: PspGuest) -> GuestReference | None:
        """Return the guest's reference, or None."""
        ...

    def of(self, guest_id: GuestId) -> Sequence[tuple[PspAccount, GuestReference]]:
        """Return every reference of a guest, with its merchant account, without duplicates.

        The result includes references that were replaced, and references that are stored with the
        guest's cards and pages.
        """
        ...

    def guests(self, psp_account: PspAccount, reference: GuestReference) -> frozenset[GuestId]:
        """Return the guests that this reference identifies at the PSP, or once identified.

        Guests that the PSP has deleted are left out. In a write unit, this call also locks the
        reference. Other write units that make this call for the reference wait until the first
        unit ends.
        """
        ...

    def keep(self, guest: PspGuest, reference: GuestReference) -> None:
        """Store the reference of a guest, in place of any stored reference.

        The PSP still knows the former reference, so `of` still returns it.
        """
        ...

    def keep_former(
        self, guest_id: GuestId, psp_account: PspAccount, reference: GuestReference
    ) -> None:
        """Store a reference of a guest in addition to the reference that is used for new pages.

        When the guest is erased, the PSP is asked to delete the guest under this reference too.
        """
        ...

    def remove(self, guest_id: GuestId) -> None:
        """Delete the stored references of a guest. References in accounts and pages stay."""
        ...


class MerchantIdentities(Protocol):
    """Repository of the merchants' identities at PSPs, by merchant account.

    An identity is the PSP's id of a merchant. The stored identity is the first one that the PSP
    reported for the keys of the merchant account.
    """

    def of_original(self, provider: ProviderName) -> frozenset[str]:
        """Return the identities of the original installation's merchant accounts at a PSP.

        The original installation stored them before its records were copied to this installation.
        The result is empty if the records are not a copy.
        """
        ...

    def get(self, provider: ProviderName, merchant_account: MerchantAccount) -> str | None:
        """Return the stored identity, or None."""
        ...

    def claim(
        self, provider: ProviderName, merchant_account: MerchantAccount, identity: str
    ) -> str:
        """Store an identity unless one is stored.

        Return the identity that is now stored. If several processes claim at once, the first wins.
        """
        ...

    def forget(self, provider: ProviderName, merchant_account: MerchantAccount) -> None:
        """Delete the stored identity, if there is one."""
        ...
