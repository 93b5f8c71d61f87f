"""Cards on file, and discards."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import date, datetime

from typing_extensions import override

from adapters.sql.repositories.queues import Queue, QueuesAtPsps
from adapters.sql.repositories.repository import (
    MAX_FORGOTTEN,
    ById,
    assignments,
    where,
)
from adapters.sql.rows import Rows
from adapters.sql.transaction import Values
from domain.cards.account import (
    CLEARED_PSP_IDENTIFIERS,
    READINGS_PER_MINUTE,
    REFUSALS_UNTIL_UNKNOWN,
    REMOVED,
    Account,
    AccountFilter,
    Accounts,
)
from domain.cards.discard import Discard, Discards
from domain.identifiers import (
    AccountId,
    CardToken,
    CenterId,
    GuestId,
    GuestReference,
    MerchantAccount,
    ProviderName,
    PspAccount,
)
from domain.pagination import Page, PageRequest

_ACCOUNTS = Rows("payment_accounts", Account, key=("account_id",))
_DISCARDS = Rows("discards", Discard, key=("provider", "merchant_account", "token"))


class SqlAccounts(QueuesAtPsps[Account], ById[AccountId, Account], Accounts):
    """Stores accounts, which are the cards on file."""

    _rows = _ACCOUNTS
    _is_locked = True
    _account = "provider || '/' || merchant_account"
    _name = f"({_account} || '/')"
    _latest = ":read"
    _taken = "due_at = :until, asked_at = :now"
    _expiry_notice_due = "WHERE expiry_notice_at <= :now ORDER BY expiry_notice_at LIMIT :at_most"

    @override
    def active_at(self, guest_id: GuestId, center_id: CenterId) -> Sequence[Account]:
        # The lock is for the guest and not for the center, so that the guest's accounts get their
        # sequence in the order of the commits.
        self._transaction.lock("accounts", guest_id)
        return _ACCOUNTS.find(
            self._transaction,
            "WHERE guest_id = :guest_id AND center_id = :center_id AND removed_at IS NULL "
            "ORDER BY sequence" + self._transaction.for_update,
            {"guest_id": guest_id, "center_id": center_id},
        )

    @override
    def removed_by_guest(self, guest_id: GuestId, center_id: CenterId) -> Sequence[Account]:
        return _ACCOUNTS.find_readable(
            self._transaction,
            "WHERE guest_id = :guest_id AND center_id = :center_id "
            "AND removed_at IS NOT NULL AND withdrawn_at IS NOT NULL ORDER BY sequence",
            {"guest_id": guest_id, "center_id": center_id},
        )

    @override
    def active_of(self, guest_id: GuestId) -> Sequence[Account]:
        self._transaction.lock("accounts", guest_id)
        return _ACCOUNTS.find(
            self._transaction,
            "WHERE guest_id = :guest_id AND removed_at IS NULL ORDER BY sequence"
            + self._transaction.for_update,
            {"guest_id": guest_id},
        )

    @override
    def reassign(self, merged: GuestId, remaining: GuestId) -> None:
        self._reassign("payment_accounts", merged, remaining)

    @override
    def is_held(
        self, provider: ProviderName, merchant_account: MerchantAccount, token: CardToken
    ) -> bool:
        self._transaction.lock("token", provider, merchant_account, token)
        return self._is_any(
            "SELECT 1 FROM payment_accounts WHERE provider = :provider "
            "AND merchant_account = :merchant_account AND token = :token "
            "AND removed_at IS NULL LIMIT 1",
            {"provider": provider, "merchant_account": merchant_account, "token": token},
        )

    @override
    def count_asked(self, now: datetime) -> Mapping[PspAccount, int]:
        asked = "asked_at > :minute_ago AND asked_at <= :now"
        found = self._of_queues(
            f"queue, (SELECT count(*) FROM payment_accounts WHERE {self._name} = queue AND {asked})",
            now,
        )
        return {_psp_account(name): asked for name, asked in found.fetchall() if name}

    @override
    def active_at_psp(self, psp_account: PspAccount) -> Sequence[AccountId]:
        found = self._transaction.execute(
            "SELECT account_id FROM payment_accounts WHERE provider = :provider "
            "AND merchant_account = :merchant_account AND removed_at IS NULL",
            psp_account._asdict(),
        )
        return [account_id for (account_id,) in found.fetchall()]

    @override
    def due_for_removal(
        self, now: datetime, *, at_most: int, skip: int = 0
    ) -> Sequence[Account | None]:
        return _ACCOUNTS.find_or_none(
            self._transaction,
            "WHERE keep_until < :now AND removed_at IS NULL ORDER BY keep_until "
            "LIMIT :at_most OFFSET :skip",
            {"now": now, "at_most": at_most, "skip": skip},
        )

    @override
    def was_another_read(self, account: Account, *, since: datetime) -> bool:
        return self._is_any(
            "SELECT 1 FROM payment_accounts WHERE provider = :provider "
            "AND merchant_account = :merchant_account AND account_id <> :account_id "
            "AND removed_at IS NULL AND read_at > :since LIMIT 1",
            {**account.psp_account._asdict(), "account_id": account.account_id, "since": since},
        )

    @override
    def count_unknown(self, psp_account: PspAccount, *, since: datetime) -> int:
        (count,) = self._transaction.one(
            "SELECT count(*) FROM payment_accounts WHERE provider = :provider "
            "AND merchant_account = :merchant_account AND removed_at > :since "
            "AND refusals >= :refusals_until_unknown",
            {
                **psp_account._asdict(),
                "since": since,
                "refusals_until_unknown": REFUSALS_UNTIL_UNKNOWN,
            },
        )
        return int(count)

    @override
    def make_due(
        self,
        psp_account: PspAccount,
        now: datetime,
        *,
        token: CardToken | None,
        guest_reference: GuestReference | None,
    ) -> None:
        of = "token = :token" if guest_reference is None else "guest_reference = :guest_reference"
        condition = (
            "WHERE provider = :provider AND merchant_account = :merchant_account "
            f"AND {of} AND removed_at IS NULL"
        )
        values = {
            **psp_account._asdict(),
            "now": now,
            "token": token,
            "guest_reference": guest_reference,
        }
        found = self._transaction.execute(
            f"SELECT guest_id FROM payment_accounts {condition}", values
        ).fetchall()
        for guest_id in sorted({guest_id for (guest_id,) in found}):
            self._transaction.lock("accounts", guest_id)
        self._transaction.execute(f"UPDATE payment_accounts SET due_at = :now {condition}", values)

    @override
    def take_due(
        self, now: datetime, *, until: datetime, except_at: Collection[PspAccount] = ()
    ) -> Account | None:
        queues = self._in_turn(now, except_at)
        while taken := self._take(queues, _ACCOUNTS.listed, until, now):
            if account := _ACCOUNTS.record_or_none(taken):
                return account
        return None

    @override
    def _in_turn(self, now: datetime, except_at: Collection[PspAccount]) -> list[Queue]:
        queues = super()._in_turn(now, except_at)
        spent = self.count_asked(now) if queues else {}
        return [
            each for each in queues if spent.get(_psp_account(each.target), 0) < READINGS_PER_MINUTE
        ]

    @override
    def page(
        self, guest_id: GuestId, centers: frozenset[CenterId] | None, request: PageRequest
    ) -> Page[Account]:
        return self._page_of_guest(
            "guest_id = :guest_id AND removed_at IS NULL",
            {"guest_id": guest_id},
            centers,
            order="sequence",
            request=request,
        )

    @override
    def is_expiry_notice_due(self, now: datetime) -> bool:
        return self._is_any(
            f"SELECT 1 FROM payment_accounts {self._expiry_notice_due}", {"now": now, "at_most": 1}
        )

    @override
    def with_expiry_notice_due(
        self, now: datetime, *, at_most: int, unreadable_until: datetime
    ) -> Sequence[Account | None]:
        rows = self._transaction.execute(
            _ACCOUNTS.select + self._expiry_notice_due + self._dialect.skip_locked,
            {"now": now, "at_most": at_most},
        ).fetchall()
        accounts = [_ACCOUNTS.record_or_none(row) for row in rows]
        for row, account in zip(rows, accounts, strict=True):
            if account is None:
                self._transaction.execute(
                    "UPDATE payment_accounts SET expiry_notice_at = :until "
                    "WHERE account_id = :account_id",
                    {**_ACCOUNTS.key_of(row), "until": unreadable_until},
                )
        return accounts

    @override
    def page_expiring(
        self, center_id: CenterId, *, before: date, request: PageRequest
    ) -> Page[Account]:
        # The last day of a month is before a date if the month is before the date's month.
        return self._page(
            "WHERE center_id = :center_id AND removed_at IS NULL "
            "AND (expiry_year, expiry_month) < (:year, :month) ",
            {"center_id": center_id, "year": before.year, "month": before.month},
            order="expiry_year, expiry_month, sequence",
            request=request,
            # This index serves all guests of a center.
            find=_ACCOUNTS.find_readable,
        )

    @override
    def remove_unreadable(
        self, guest_id: GuestId, now: datetime
    ) -> Sequence[tuple[PspAccount, GuestReference, CardToken]]:
        self._transaction.lock("accounts", guest_id)
        condition = (
            "WHERE guest_id = :guest_id AND removed_at IS NULL ORDER BY sequence"
            + self._transaction.for_update
        )
        found = [
            self._transaction.execute(
                f"UPDATE payment_accounts SET removed_at = :now, {assignments(REMOVED)} "
                "WHERE account_id = :account_id "
                "RETURNING provider, merchant_account, guest_reference, token",
                {**key, **REMOVED, "now": now},
            ).fetchall()
            for key in _ACCOUNTS.unreadable(self._transaction, condition, {"guest_id": guest_id})
        ]
        return [
            (PspAccount(provider, merchant_account), reference, token)
            for ((provider, merchant_account, reference, token),) in found
        ]

    @override
    def blank(self, guest_id: GuestId) -> None:
        self._transaction.execute(
            f"UPDATE payment_accounts SET {assignments(CLEARED_PSP_IDENTIFIERS)} "
            "WHERE guest_id = :guest_id AND removed_at IS NOT NULL",
            {**CLEARED_PSP_IDENTIFIERS, "guest_id": guest_id},
        )

    @override
    def forget(self, *, before: datetime) -> int:
        condition = (
            "NOT is_evidence AND removed_at < :before AND NOT EXISTS ("
            "SELECT 1 FROM discards WHERE provider = payment_accounts.provider "
            "AND merchant_account = payment_accounts.merchant_account "
            "AND token = payment_accounts.token AND done_at IS NULL) ORDER BY removed_at"
        )
        old = self._transaction.execute(
            self._old("payment_accounts", "account_id", condition),
            {"before": before, "limit": MAX_FORGOTTEN},
        ).fetchall()
        if not old:
            return 0
        ids = [account_id for (account_id,) in old]
        # An erasure must find an imported card's guest at the PSP, and no other record names that
        # guest.
        self._transaction.execute(
            "INSERT INTO former_guest_references "
            "SELECT DISTINCT provider, merchant_account, guest_id, guest_reference "
            f"FROM payment_accounts WHERE account_id {self._dialect.among_ids} "
            "AND guest_reference <> '' ON CONFLICT DO NOTHING",
            {"ids": ids},
        )
        self._delete("payment_accounts", "consents", key="account_id", ids=ids)
        return len(old)

    @override
    def search(self, wanted: AccountFilter, *, limit: int) -> Sequence[Account]:
        start, end = wanted.expires_from, wanted.expires_before
        conditions = {
            "guest_id = :guest_id": wanted.guest_id,
            "center_id = :center_id": wanted.center_id,
            "merchant_account = :merchant_account": wanted.merchant_account,
            "(expiry_year, expiry_month) >= (:from_year, :from_month)": start,
            "(expiry_year, expiry_month) < (:year, :month)": end,
            "created_at >= :added_since": wanted.added_since,
            "EXISTS (SELECT 1 FROM agreements WHERE account_id = payment_accounts.account_id "
            "AND agreements.due_at < :agreement_ends_before)": wanted.agreement_ends_before,
            "removed_at IS NULL": wanted.only_active or None,
        }
        order = "expiry_year, expiry_month, sequence" if start or end else "sequence DESC"
        return _ACCOUNTS.find_readable(
            self._transaction,
            f"{where(conditions)}ORDER BY {order} LIMIT :limit",
            {
                **asdict(wanted),
                "from_year": start and start.year,
                "from_month": start and start.month,
                "year": end and end.year,
                "month": end and end.month,
                "limit": limit,
            },
        )


def _psp_account(name: str) -> PspAccount:
    provider, merchant_account, *_ = name.split("/")
    return PspAccount(ProviderName(provider), MerchantAccount(merchant_account))


class SqlDiscards(QueuesAtPsps[Discard], Discards):
    """Stores discards of tokens, including those that are done."""

    _rows = _DISCARDS
    _account = "provider || '/' || merchant_account"
    _name = f"({_account} || '/')"
    _latest = ":silent"

    @override
    def add(self, discard: Discard) -> None:
        self._transaction.execute(_DISCARDS.insert_new, _DISCARDS.row(discard))

    @override
    def get(
        self, provider: ProviderName, merchant_account: MerchantAccount, token: CardToken
    ) -> Discard | None:
        self._transaction.lock("token", provider, merchant_account, token)
        return _DISCARDS.get(
            self._transaction,
            lock=True,
            provider=provider,
            merchant_account=merchant_account,
            token=token,
        )

    @override
    def remove(self, discard: Discard) -> None:
        _DISCARDS.delete(
            self._transaction,
            provider=discard.provider,
            merchant_account=discard.merchant_account,
            token=discard.token,
        )

    @override
    def pending_at_psp(self, psp_account: PspAccount) -> Sequence[CardToken]:
        found = self._transaction.execute(
            "SELECT token FROM discards WHERE provider = :provider "
            "AND merchant_account = :merchant_account AND done_at IS NULL",
            psp_account._asdict(),
        )
        return [token for (token,) in found.fetchall()]

    @override
    def of_guest(self, psp_account: PspAccount, reference: GuestReference) -> Sequence[Discard]:
        return _DISCARDS.find(self._transaction, *self._of_guest(psp_account, reference))

    @override
    def remove_unreadable(
        self, psp_account: PspAccount, reference: GuestReference
    ) -> Sequence[CardToken]:
        of_guest = self._of_guest(psp_account, reference)
        unreadable = _DISCARDS.unreadable(self._transaction, *of_guest)
        for key in unreadable:
            _DISCARDS.delete(self._transaction, **key)
        return [CardToken(str(key["token"])) for key in unreadable]

    @staticmethod
    def _of_guest(psp_account: PspAccount, reference: GuestReference) -> tuple[str, Values]:
        condition = (
            "WHERE provider = :provider AND merchant_account = :merchant_account "
            "AND guest_reference = :reference"
        )
        return condition, {**psp_account._asdict(), "reference": reference}

    @override
    def take_due(
        self, now: datetime, *, until: datetime, except_at: Collection[PspAccount] = ()
    ) -> Discard | None:
        queues = self._in_turn(now, except_at)
        while taken := self._take(queues, _DISCARDS.listed, until):
            if discard := _DISCARDS.record_or_none(taken):
                return discard
        return None
