"""The standing of a merchant account: whether it is closed, and whether its keys are right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from domain.identifiers import MerchantAccount, ProviderName, PspAccount


@dataclass(frozen=True, slots=True, kw_only=True)
class MerchantStanding:
    """Whether the PSP is still called for a merchant account, and whether its keys may be wrong.

    - `closed_at`: when an operator closed the account here. After that, the PSP is not called.
    - `stopped_at`: when the service stopped removing cards that the PSP does not know. There were
      so many of them that the keys may be wrong.
    - `confirmed_at`: when an operator confirmed the keys, so that the removals could resume.
    """

    provider: ProviderName
    merchant_account: MerchantAccount
    closed_at: datetime | None = None
    stopped_at: datetime | None = None
    confirmed_at: datetime | None = None

    @classmethod
    def of(cls, psp_account: PspAccount) -> MerchantStanding:
        """Return the standing of an account for which nothing is stored."""
        return cls(provider=psp_account.provider, merchant_account=psp_account.merchant_account)

    @property
    def psp_account(self) -> PspAccount:
        """The PSP and the merchant account whose standing this is."""
        return PspAccount(self.provider, self.merchant_account)

    def confirmed(self, now: datetime) -> MerchantStanding:
        """Return the new standing after an operator confirmed the keys.

        The removal of cards that the PSP does not know then resumes.
        """
        return replace(self, stopped_at=None, confirmed_at=now)

    @property
    def is_closed(self) -> bool:
        """Whether an operator has closed the account, so that the PSP is no longer called."""
        return self.closed_at is not None


class MerchantStandings(Protocol):
    """Repository of the standings of merchant accounts."""

    def of(self, psp_account: PspAccount) -> MerchantStanding:
        """Return the standing of an account. In a write unit, this call also locks the standing."""
        ...

    def put(self, standing: MerchantStanding) -> None:
        """Store the standing of an account, in place of any stored standing."""
        ...

    def all(self) -> Sequence[MerchantStanding]:
        """Return all stored standings, sorted by PSP and account."""
        ...

    def closed(self) -> frozenset[PspAccount]:
        """Return the merchant accounts that are closed."""
        ...
