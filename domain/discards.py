"""PSP tokens that we do not keep, and must therefore be discarded at the PSP."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from domain.identifiers import CardToken, GuestReference, MerchantAccount, ProviderName

RETRY_FIRST: Final = timedelta(seconds=30)
RETRY_AT_MOST: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Discard:
    """A token that is to be discarded, written down in the commit that decided it.

    `begun_at` is set once a process has started to discard it. From then on it can only be
    finished: whether the PSP has acted is unknown, and doing it twice is fine.
    """

    provider: ProviderName
    merchant_account: MerchantAccount
    guest_reference: GuestReference
    token: CardToken
    due_at: datetime
    begun_at: datetime | None = None
    tries: int = 0

    def tried_in_vain(self, now: datetime) -> Discard:
        """Note that the PSP did not answer; it is tried less and less often."""
        wait = min(RETRY_FIRST * 2 ** min(self.tries, 16), RETRY_AT_MOST)
        return replace(self, tries=self.tries + 1, due_at=now + wait)
