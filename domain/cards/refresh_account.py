"""Read cards on file at their PSP, to find cards that a bank has reissued or that are gone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial

from domain.cards.account import READ_LEASE, Account, heir_among
from domain.cards.discard import UnkeptToken
from domain.cards.discard_tokens import note_discard
from domain.cards.find_account import lock_account
from domain.cards.join_accounts import join_accounts
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
    """Decide what a reading changes. `others` are the guest's other active accounts at the center.

    `reading` is None if the PSP did not respond. If the reading shows that one of the `others` has
    the same card, the account with the later consent stays. The account that stays is the default
    if either account was the default.
    """
    if reading is None:
        return ReadingVerdict(kept=account.psp_unavailable(now))
    # A stored time in the future comes from a clock that was ahead: do not compare with it.
    if reading.read_at <= account.state_as_of <= now + CLOCKS_DIFFER_BY:
        return ReadingVerdict(kept=account.read_too_early(reading.read_at, now))
    if reading.card is None:
        return ReadingVerdict(kept=heir_among(others), removed=account.removed(now), reason=GONE)
    read = account.read(reading.card, read_at=reading.read_at, now=now)
    twin = next((each for each in others if each.is_same_card(read, read.psp_account)), None)
    is_updated = any(
        getattr(read, name) != before
        for name in asdict(reading.card)
        # A fact that becomes known is not a change.
        if (before := getattr(account, name)) is not None
    )
    if twin is None:
        return ReadingVerdict(kept=read, is_updated=is_updated)
    remaining, duplicate = (
        (twin, account) if twin.consented_at >= read.consented_at else (read, twin)
    )
    is_default = read.is_default or twin.is_default
    return ReadingVerdict(
        kept=replace(remaining, is_default=is_default),
        is_updated=remaining is read,
        removed=duplicate.removed(now),
        joined=duplicate,
        reason=REPLACED,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshAccount:
    """Use case: read a leased account's card at its PSP, and apply the reading.

    A reading is applied only if it is newer, by the PSP's clock, than the stored details of the
    card. The account is locked while the two are compared. If the card has changed, an event is
    noted. If the PSP does not respond, the reading is retried. If the PSP cannot read cards, only
    the next reading is scheduled.

    An account is removed in these cases:

    - The merchant account is closed.
    - The PSP reports that the card is gone.
    - The PSP has not known the card for a week, and the keys seem right (`judge_refusal`).
    - The card is the same as the guest's card in another account at the center. Then the account
      with the earlier consent is removed.

    In all cases except the first, `log_lost` is called with the removed account and the reason. If
    too many unknown cards of a merchant account were removed in a day, such cards are no longer
    removed, and `log_stopped` is called with the merchant account. Both functions are called after
    the commit.
    """

    storage: Storage
    providers: Providers
    psps: Mapping[ProviderName, LoadedPsp]
    clock: Clock
    note_event: NoteEvent
    log_lost: Callable[[Account, str], None]
    log_stopped: Callable[[PspAccount], None]

    def take(self, *, except_at: Collection[PspAccount] = ()) -> Account | None:
        """Lease an account that is due and return it, or return None if no account is due.

        The lease lasts one hour. Merchant accounts take turns, and those in `except_at` are left
        out. If no account is due, nothing is written.
        """
        now = self.clock.now()
        return take_due(
            self.storage,
            lambda unit: unit.accounts.is_any_due(now, except_at=except_at),
            lambda unit: unit.accounts.take_due(now, until=now + READ_LEASE, except_at=except_at),
        )

    def __call__(self, taken: Account) -> Account | None:
        """Read the card, apply the reading, and return the account as it is stored afterwards.

        If the account is removed because another account of the guest has the same card, return the
        other account. If it is removed for another reason, return the account that becomes the
        default, or None if no account does. If the `due_at` of the account has changed since the
        lease began, the card is not read, and the account is returned as it is stored.
        """
        with self.storage.read() as unit:
            account = unit.accounts.get(taken.account_id)
            is_closed = unit.merchant_standings.of(taken.psp_account).is_closed
        # Skip a card that was removed, or whose guest was erased, since the lease began.
        if account is None or account.due_at != taken.due_at:
            return account
        found = None if is_closed else self._read(account)
        now = self.clock.now()

        def apply(unit: WriteUnit) -> ReadingVerdict:
            try:
                current, others = lock_account(unit, account)
            except PaymentAccountNotFound:
                self._end_readings(unit, account)
                return ReadingVerdict()
            if (current.token, current.due_at) != (account.token, account.due_at):
                # The account was renewed, a webhook arrived, or another process took over. The
                # account will be read again, because this reading may be older.
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
            verdict = self._store(unit, verdict, now)
            unit.commit()
            return verdict

        verdict = self.storage.transact(apply)
        if verdict.removed is not None and verdict.reason in (GONE, REPLACED):
            self.log_lost(verdict.removed, verdict.reason)
        if verdict.has_stopped:
            self.log_stopped(account.psp_account)
        return verdict.kept

    def _read(self, account: Account) -> CardReading | ProviderRefused | None:
        """Read a card if its PSP can read cards; return the reading or the PSP's refusal.

        Return None if the PSP cannot read cards or did not respond.
        """
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

    def _store(self, unit: WriteUnit, verdict: ReadingVerdict, now: datetime) -> ReadingVerdict:
        """Store the changes of a verdict, and note their events.

        Return the verdict with the account as it was stored.
        """
        removed, kept = verdict.removed, verdict.kept
        note = partial(note_account_event, unit, self.note_event, now=now)
        if verdict.joined is not None and kept is not None:
            kept = join_accounts(unit, self.note_event, kept, verdict.joined, now)
        else:
            if removed is not None:
                unit.accounts.update(removed)
                note_discard(unit, UnkeptToken.of(removed), now=now)
                note(EventType.ACCOUNT_REMOVED, removed, reason=verdict.reason)
            if kept is not None:
                unit.accounts.update(kept)
        if kept is not None and verdict.is_updated:
            note(EventType.ACCOUNT_UPDATED, kept)
        return replace(verdict, kept=kept)

    def _end_readings(self, unit: WriteUnit, removed: Account) -> None:
        """End the readings of an account that another process with an earlier release has removed."""
        account = unit.accounts.get(removed.account_id)
        if account is not None and account.removed_at is not None:
            unit.accounts.update(account.removed(account.removed_at))
            unit.commit()
