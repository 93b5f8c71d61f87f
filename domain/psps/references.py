"""What is remembered of a PSP: its references for guests, and the merchants behind its accounts."""

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
    """The PSPs' own references for our guests."""

    def get(self, guest: PspGuest) -> GuestReference | None:
        """Return the reference, or None when the guest has none there."""
        ...

    def of(self, guest_id: GuestId) -> Sequence[tuple[PspAccount, GuestReference]]:
        """Return every reference of a guest and where it is, each once.

        Also those that were replaced, and those that accounts and pages name.
        """
        ...

    def guests(self, psp_account: PspAccount, reference: GuestReference) -> frozenset[GuestId]:
        """Return whom a reference is or was of, until they are erased there.

        A write unit locks the reference: other units wait here until it ends.
        """
        ...

    def keep(self, guest: PspGuest, reference: GuestReference) -> None:
        """Store a reference; it replaces the one before, which stays known to the PSP."""
        ...

    def keep_former(
        self, guest_id: GuestId, psp_account: PspAccount, reference: GuestReference
    ) -> None:
        """Store a reference that no page uses any more, so that an erasure finds the guest there."""
        ...

    def remove(self, guest_id: GuestId) -> None:
        """Delete the references of a guest, except in accounts and pages."""
        ...


class MerchantIdentities(Protocol):
    """The merchant whose keys each merchant account had when it was first used."""

    def of_original(self, provider: ProviderName) -> frozenset[str]:
        """Return those at a PSP that were stored before these records became a copy."""
        ...

    def get(self, provider: ProviderName, merchant_account: MerchantAccount) -> str | None:
        """Return the stored identity, or None."""
        ...

    def claim(
        self, provider: ProviderName, merchant_account: MerchantAccount, identity: str
    ) -> str:
        """Store an identity unless there is one.

        Return the one that is stored now. If several processes claim at once, one succeeds.
        """
        ...

    def forget(self, provider: ProviderName, merchant_account: MerchantAccount) -> None:
        """Delete the stored identity, if there is one."""
        ...
