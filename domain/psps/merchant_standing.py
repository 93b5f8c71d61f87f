"""An operator's statements about a merchant account: that it is closed, or that its keys are right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from domain.identifiers import MerchantAccount, ProviderName, PspAccount


@dataclass(frozen=True, slots=True, kw_only=True)
class MerchantStanding:
    """Whether a PSP is still asked about a merchant account.

    - `closed_at`: when an operator closed the account here. Since then, the PSP is not asked.
    - `stopped_at`: when there were so many unknown cards that the keys may be wrong. Since then,
      unknown cards are not removed.
    - `confirmed_at`: when an operator vouched for the keys.
    """

    provider: ProviderName
    merchant_account: MerchantAccount
    closed_at: datetime | None = None
    stopped_at: datetime | None = None
    confirmed_at: datetime | None = None

    @classmethod
    def of(cls, psp_account: PspAccount) -> MerchantStanding:
        """Return the standing of an account about which nothing is stated."""
        return cls(provider=psp_account.provider, merchant_account=psp_account.merchant_account)

    @property
    def psp_account(self) -> PspAccount:
        """The merchant account at its PSP."""
        return PspAccount(self.provider, self.merchant_account)

    def confirmed(self, now: datetime) -> MerchantStanding:
        """Note that an operator vouches for the keys: the removal of unknown cards resumes."""
        return replace(self, stopped_at=None, confirmed_at=now)

    @property
    def is_closed(self) -> bool:
        """Whether the PSP can no longer be asked."""
        return self.closed_at is not None


class MerchantStandings(Protocol):
    """The standing of each merchant account."""

    def of(self, psp_account: PspAccount) -> MerchantStanding:
        """Return the standing of an account. A write unit locks it."""
        ...

    def put(self, standing: MerchantStanding) -> None:
        """Store a standing. It replaces the former one."""
        ...

    def all(self) -> Sequence[MerchantStanding]:
        """Return every stored standing, by PSP and account."""
        ...

    def closed(self) -> frozenset[PspAccount]:
        """Return the merchant accounts that are closed."""
        ...
