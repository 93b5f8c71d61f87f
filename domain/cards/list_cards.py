"""List the cards on file of all guests, for an operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from domain.cards.account import Account, AccountFilter
from domain.centers.center import CenterNotFound
from domain.fields import parse_uuid
from domain.identifiers import CenterId, GuestId, MerchantAccount
from domain.outside import Clock, time_before
from domain.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class ListCards:
    """Use case: return active cards on file, or those that were removed.

    Those that expire first come first, or without a limit on the expiry the newest. A card expires
    on the last day of its month. `added_within` is the time until now in which a card was added. The
    guest need not be on file. Raises InvalidField or CenterNotFound.
    """

    storage: Storage
    clock: Clock

    def __call__(
        self,
        *,
        guest: str | None = None,
        center: str | None = None,
        merchant_account: str | None = None,
        expires_from: date | None = None,
        expires_before: date | None = None,
        added_within: timedelta | None = None,
        removed: bool = False,
        limit: int,
    ) -> Sequence[Account]:
        guest_id = None if guest is None else GuestId(parse_uuid("guest", guest))
        center_id = None if center is None else CenterId(parse_uuid("center", center))
        account = None if merchant_account is None else MerchantAccount(merchant_account)
        since = None if added_within is None else time_before(self.clock.now(), added_within)
        with self.storage.read() as unit:
            if center_id is not None and unit.centers.get(center_id) is None:
                raise CenterNotFound(center_id)
            wanted = AccountFilter(
                guest_id=guest_id,
                center_id=center_id,
                merchant_account=account,
                expires_from=expires_from,
                expires_before=expires_before,
                added_since=since,
                are_removed=removed,
            )
            return unit.accounts.search(wanted, limit=limit)
