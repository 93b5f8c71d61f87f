"""Remove cards that have been unknown to the PSP for a week, unless its API keys may be wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from domain.audit.entry import Action
from domain.audit.note_act import NoteAct
from domain.cards.account import MIN_REFUSAL_INTERVAL, REFUSALS_UNTIL_UNKNOWN, Account, heir_among
from domain.cards.refresh_verdict import GONE, ReadingVerdict
from domain.errors import InvalidField
from domain.identifiers import PspAccount
from domain.outside import Clock
from domain.storage import Storage, UnitOfWork, WriteUnit

MAX_UNKNOWN: Final = 10
"""The maximum number of unknown cards of a merchant account that are removed in a day, unless an
operator confirms the keys.
"""
DAY: Final = timedelta(days=1)
WEEK: Final = MIN_REFUSAL_INTERVAL * (REFUSALS_UNTIL_UNKNOWN - 1)


def judge_refusal(
    unit: WriteUnit, account: Account, others: Sequence[Account], now: datetime
) -> ReadingVerdict:
    """Decide what happens to an account whose card the PSP does not know.

    Wrong keys must not remove all cards of a center. An unknown card is therefore removed only if:

    - the merchant's identity is stored, so that each call to the PSP has checked that the keys
      belong to that merchant;
    - another card of the merchant account was read in the last week;
    - the removal of the merchant account's unknown cards has not stopped. It stops after 10
      removals in a day, unless an operator confirmed the keys in the last day.
    """
    refused = account.refused(now)
    waits = ReadingVerdict(kept=refused)
    if not refused.is_unknown or not _are_keys_right(unit, account, now):
        return waits
    standing = unit.merchant_standings.of(account.psp_account)
    if standing.stopped_at is not None:
        return waits
    is_confirmed = standing.confirmed_at is not None and now < standing.confirmed_at + DAY
    gone = unit.accounts.count_unknown(account.psp_account, since=now - DAY)
    if gone >= MAX_UNKNOWN and not is_confirmed:
        unit.merchant_standings.put(replace(standing, stopped_at=now))
        return replace(waits, has_stopped=True)
    return ReadingVerdict(kept=heir_among(others), removed=refused.removed(now), reason=GONE)


def _are_keys_right(unit: UnitOfWork, account: Account, now: datetime) -> bool:
    is_identity_stored = unit.merchant_identities.get(*account.psp_account) is not None
    return is_identity_stored and unit.accounts.was_another_read(account, since=now - WEEK)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmKeys:
    """Use case: confirm that a merchant account's keys are right.

    Only operators call it, after the removal of unknown cards has stopped. For the next day,
    unknown cards of the merchant account are removed without a limit. Raises InvalidField if the
    removal has not stopped.
    """

    storage: Storage
    clock: Clock
    note_act: NoteAct

    def __call__(self, psp_account: PspAccount) -> None:
        """Confirm the keys of the merchant account, and note that in the audit trail."""

        def confirm(unit: WriteUnit) -> None:
            standing = unit.merchant_standings.of(psp_account)
            if standing.stopped_at is None:
                expected = "an account at which the removal of unknown cards has stopped"
                raise InvalidField("merchant_account", expected)
            unit.merchant_standings.put(standing.confirmed(self.clock.now()))
            self.note_act(unit, Action.KEYS_CONFIRMED, "/".join(psp_account))
            unit.commit()

        self.storage.transact(confirm)
