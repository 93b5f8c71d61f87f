"""Close a merchant account here, because its PSP can no longer be called for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from domain.audit.entry import Action
from domain.audit.note_act import NoteAct
from domain.cards.discard_tokens import DiscardToken
from domain.cards.refresh_account import RefreshAccount
from domain.errors import InvalidField
from domain.identifiers import AccountId, CardToken, GuestId, PspAccount, TokenId
from domain.outside import Clock
from domain.settling.settle_session import SettleSession
from domain.storage import RecordUnreadable, Storage, UnitOfWork, WriteUnit


class Affected(NamedTuple):
    """How many unfinished records of each kind the closing of a merchant account ends."""

    sessions: int
    cards: int
    discards: int
    erasures: int


class _Left(NamedTuple):
    """The records at a merchant account that are not finished."""

    sessions: Sequence[TokenId]
    cards: Sequence[AccountId]
    discards: Sequence[CardToken]
    erasures: Sequence[GuestId]

    @property
    def affected(self) -> Affected:
        return Affected(*map(len, self))


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseAccount:
    """Use case: close a merchant account. Only operators call it.

    An operator closes an account if it is closed at the PSP, if its keys are revoked, or if its PSP
    is no longer used here. From then on, the PSP is not called for this account, with these
    consequences:

    - Open sessions end as cancelled.
    - Cards are removed with the reason `account_closed`.
    - Discards and erasures end, and are recorded as out of reach.
    - Webhooks change nothing, and no new cards are stored at the account.
    - If another process is working on a record, the record ends when a worker next leases it.

    Raises InvalidField for an account without any record. After ServiceUnavailable, some records
    may be left; repeat the call to finish them.
    """

    storage: Storage
    settle: SettleSession
    discard: DiscardToken
    refresh: RefreshAccount
    clock: Clock
    note_act: NoteAct

    def count(self, psp_account: PspAccount) -> Affected:
        """Count the records that closing the account would affect.

        Changes nothing. Raises InvalidField.
        """
        return self._left(psp_account).affected

    def __call__(self, psp_account: PspAccount) -> Affected:
        """Close the account, and return the counts of affected records."""
        left, now = self._left(psp_account), self.clock.now()

        def close(unit: WriteUnit) -> None:
            standing = unit.merchant_standings.of(psp_account)
            if not standing.is_closed:
                unit.merchant_standings.put(replace(standing, closed_at=now))
                details = left.affected._asdict()
                self.note_act(unit, Action.ACCOUNT_CLOSED, "/".join(psp_account), details)
            for guest_id in left.erasures:
                unit.erasures.reopen(guest_id, now)
            unit.commit()

        self.storage.transact(close)
        # The records are read once more, because requests may have stored more records before the
        # account was closed.
        left = self._left(psp_account)
        for token_id in left.sessions:
            # The log names records that cannot be decoded.
            with suppress(RecordUnreadable):
                self._end(token_id)
        for account_id in left.cards:
            with suppress(RecordUnreadable):
                self._remove(account_id)
        # The discards are read once more, because the removal of cards has added some.
        for token in self._left(psp_account).discards:
            with suppress(RecordUnreadable):
                self._give_up(psp_account, token)
        return left.affected

    def reopen(self, psp_account: PspAccount) -> bool:
        """Allow the account to take cards again. Return whether it was closed.

        Records that ended when the account was closed stay ended.
        """

        def reopen(unit: WriteUnit) -> bool:
            standing = unit.merchant_standings.of(psp_account)
            if standing.is_closed:
                unit.merchant_standings.put(replace(standing, closed_at=None))
                self.note_act(unit, Action.ACCOUNT_REOPENED, "/".join(psp_account))
                unit.commit()
            return standing.is_closed

        return self.storage.transact(reopen)

    def _left(self, psp_account: PspAccount) -> _Left:
        with self.storage.read() as unit:
            left = _Left(
                sessions=unit.sessions.due_at_psp(psp_account),
                cards=unit.accounts.active_at_psp(psp_account),
                discards=unit.discards.pending_at_psp(psp_account),
                erasures=[
                    erasure.guest_id
                    for erasure in unit.erasures.unfinished()
                    if psp_account in _places(unit, erasure.guest_id)
                ],
            )
            if not any(left) and not _is_known(unit, psp_account):
                raise InvalidField(
                    "merchant_account",
                    f"a merchant account of {psp_account.provider} that this installation uses",
                )
        return left

    def _end(self, token_id: TokenId) -> None:
        def cancel(unit: WriteUnit) -> None:
            session = unit.sessions.get(token_id)
            if session is not None:
                by = self.note_act.operator
                unit.sessions.update(session.cancelled(self.clock.now(), by=by))
                unit.commit()

        self.storage.transact(cancel)
        self.settle(token_id)

    def _remove(self, account_id: AccountId) -> None:
        with self.storage.read() as unit:
            account = unit.accounts.get(account_id)
        if account is not None:
            self.refresh(account)

    def _give_up(self, psp_account: PspAccount, token: CardToken) -> None:
        with self.storage.read() as unit:
            discard = unit.discards.get(*psp_account, token)
        if discard is not None:
            self.discard(discard)


def _places(unit: UnitOfWork, guest_id: GuestId) -> Iterable[PspAccount]:
    """Return the merchant accounts at which a guest has records."""
    return {psp_account for psp_account, _ in unit.guest_references.of(guest_id)}


def _is_known(unit: UnitOfWork, psp_account: PspAccount) -> bool:
    """Return whether the account is used, was used, or is closed."""
    return (
        psp_account in unit.configurations.psp_accounts()
        or unit.merchant_standings.of(psp_account).is_closed
        or unit.merchant_identities.get(*psp_account) is not None
    )
