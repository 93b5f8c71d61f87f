"""Read a card on file at its PSP: it may have been reissued, or be gone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial

from domain.cards.account import READ_LEASE, Account, heir_among
from domain.cards.discard import UnkeptToken
from domain.cards.discard_tokens import note_discard
from domain.cards.find_account import lock_account
from domain.cards.note_account_event import note_account_event
from domain.cards.refresh_verdict import CLOSED, GONE, REPLACED, ReadingVerdict
from domain.cards.unknown_card import judge_refusal
from domain.centers.configure_payments import LoadedPsp, reads_cards
from domain.errors import PaymentAccountNotFound
from domain.events.event import EventType
from domain.events.note_event import NoteEvent
from domain.identifiers import ProviderName, PspAccount
from domain.outside import Clock
from domain.psps.card import CardReading
from domain.psps.payment_provider import ProviderRefused, Providers, ProviderUnavailable
from domain.retries import CLOCKS_DIFFER_BY
from domain.storage import Storage, WriteUnit, take_due


def judge_reading(
    account: Account, others: Sequence[Account], reading: CardReading | None, now: datetime
) -> ReadingVerdict:
    """Judge what was read of an account; `others` are the guest's active ones at its center.

    The reading is None if the PSP did not respond. Of two accounts that turn out to be one card, the
    one with the later consent stays, and is the default if one of them was.
    """
    if reading is None:
        return ReadingVerdict(kept=account.psp_unavailable(now))
    # What is stored may be from a clock that was ahead, and would hide every reading.
    if reading.read_at <= account.is_true_at <= now + CLOCKS_DIFFER_BY:
        return ReadingVerdict(kept=account.read_too_early(reading.read_at, now))
    if reading.card is None:
        return ReadingVerdict(kept=heir_among(others), removed=account.removed(now), reason=GONE)
    read = account.read(reading.card, read_at=reading.read_at, now=now)
    twin = next((each for each in others if each.is_same_card(read, read.psp_account)), None)
    is_updated = any(getattr(read, name) != getattr(account, name) for name in asdict(reading.card))
    if twin is None:
        return ReadingVerdict(kept=read, is_updated=is_updated)
    stays, goes = (twin, account) if twin.consented_at >= read.consented_at else (read, twin)
    is_default = read.is_default or twin.is_default
    return ReadingVerdict(
        kept=replace(stays, is_default=is_default),
        is_updated=stays is read,
        removed=goes.removed(now),
        reason=REPLACED,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshAccount:
    """Use case: read at its PSP an account that was taken, and apply what is read.

    The reading is applied to the account as it is when it is read again under lock, and only if it is
    later, by the PSP's clock, than what is stored. Clients are told of a change; `log_lost` is called
    with an account that was removed, and why, once that is committed. While the PSP does not respond,
    the account is due again later. One whose PSP cannot read cards waits. One at a merchant account that
    is closed is removed. One that the PSP has not known for a week is gone, unless the keys may be wrong:
    `log_stopped` is called with a merchant account once too many are.
    """

    storage: Storage
    providers: Providers
    psps: Mapping[ProviderName, LoadedPsp]
    clock: Clock
    note_event: NoteEvent
    log_lost: Callable[[Account, str], None]
    log_stopped: Callable[[PspAccount], None]

    def take(self, *, except_at: Collection[PspAccount] = ()) -> Account | None:
        """Take an account that is due; None when none is. Merchant accounts take turns.

        It is leased for an hour. Those at the merchant accounts in `except_at` are left out. When
        none is due, nothing is written.
        """
        now = self.clock.now()
        return take_due(
            self.storage,
            lambda unit: unit.accounts.is_any_due(now, except_at=except_at),
            lambda unit: unit.accounts.take_due(now, until=now + READ_LEASE, except_at=except_at),
        )

    def __call__(self, taken: Account) -> Account | None:
        """Read the card and apply it. Return the account that is kept; None if none is."""
        with self.storage.read() as unit:
            account = unit.accounts.get(taken.account_id)
            is_closed = unit.merchant_standings.of(taken.psp_account).is_closed
        # Nobody's card is read who was erased, or that was removed, since it was taken.
        if account is None or account.due_at != taken.due_at:
            return account
        found = None if is_closed else self._read(account)
        now = self.clock.now()

        def apply(unit: WriteUnit) -> ReadingVerdict:
            try:
                current, others = lock_account(unit, account)
            except PaymentAccountNotFound:
                self._never_again(unit, account)
                return ReadingVerdict()
            if (current.token, current.due_at) != (account.token, account.due_at):
                # It was renewed, a webhook has come, or another process has taken it: it is read
                # again, and what was read here may be older.
                return ReadingVerdict(kept=current)
            if is_closed:
                heir, removed = heir_among(others), current.removed(now)
                verdict = ReadingVerdict(kept=heir, removed=removed, reason=CLOSED)
            elif not reads_cards(self.psps, account.psp_account):
                verdict = ReadingVerdict(kept=current.waiting(now))
            elif isinstance(found, ProviderRefused):
                verdict = judge_refusal(unit, current, others, now)
            else:
                verdict = judge_reading(current, others, found, now)
            self._store(unit, verdict, now)
            unit.commit()
            return verdict

        verdict = self.storage.transact(apply)
        if verdict.removed is not None and verdict.reason in (GONE, REPLACED):
            self.log_lost(verdict.removed, verdict.reason)
        if verdict.has_stopped:
            self.log_stopped(account.psp_account)
        return verdict.kept

    def _read(self, account: Account) -> CardReading | ProviderRefused | None:
        """Read a card, if its PSP can; return None if the PSP does not respond, and its refusal."""
        if account.removed_at is not None or not reads_cards(self.psps, account.psp_account):
            return None
        try:
            return self.providers[account.provider].read_card(
                account.merchant_account, account.guest_reference, account.token
            )
        except ProviderRefused as refusal:
            return refusal
        except ProviderUnavailable:
            return None

    def _store(self, unit: WriteUnit, verdict: ReadingVerdict, now: datetime) -> None:
        """Store a verdict, and note what clients are told."""
        removed, kept = verdict.removed, verdict.kept
        note = partial(note_account_event, unit, self.note_event, now=now)
        if removed is not None:
            unit.accounts.update(removed)
            note_discard(unit, UnkeptToken.of(removed), now=now)
            note(EventType.ACCOUNT_REMOVED, removed, reason=verdict.reason)
        if kept is not None:
            unit.accounts.update(kept)
            if verdict.is_updated:
                note(EventType.ACCOUNT_UPDATED, kept)

    def _never_again(self, unit: WriteUnit, removed: Account) -> None:
        """Take an account off the queue that an earlier release has removed, beside this one."""
        account = unit.accounts.get(removed.account_id)
        if account is not None and account.removed_at is not None:
            unit.accounts.update(account.removed(account.removed_at))
            unit.commit()
