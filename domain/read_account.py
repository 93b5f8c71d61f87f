"""Read one card on file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain.errors import PaymentAccountNotFound
from domain.identifiers import AccountId, plain_uuid
from domain.payment_accounts import PaymentAccount
from domain.permissions import MAY_USE_CARDS, MAY_VIEW_CARDS, Caller
from domain.ports import Storage, UnitOfWork, WriteUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountForCaller:
    """A payment account, and whether the caller may see what a payment operation needs of it."""

    account: PaymentAccount
    may_charge: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAccount:
    """Use case: return an active payment account of a guest.

    Callers that may use cards may see its payment reference too. Raises UserNotAuthorized, or
    PaymentAccountNotFound when the guest has no such active account in a center that the caller may
    see.
    """

    storage: Storage

    def __call__(self, caller: Caller, *, guest_id: str, account_id: str) -> AccountForCaller:
        """Look the account up; changes nothing."""
        caller.require(MAY_VIEW_CARDS)
        with self.storage.read() as unit:
            account = active_account(unit, caller, guest_id=guest_id, account_id=account_id)
        return AccountForCaller(account=account, may_charge=caller.may(MAY_USE_CARDS))


def active_account(
    unit: UnitOfWork, caller: Caller, *, guest_id: str, account_id: str
) -> PaymentAccount:
    """Return an active account of this guest at a center that the caller may see.

    Raises PaymentAccountNotFound in every other case.
    """
    known_id = plain_uuid(account_id)
    account = unit.accounts.get(AccountId(known_id)) if known_id else None
    if (
        account is None
        or account.removed_at is not None
        or account.guest_id != plain_uuid(guest_id)
        or not caller.sees(account.center_id)
    ):
        raise PaymentAccountNotFound
    return account


def lock_account(
    unit: WriteUnit, account: PaymentAccount
) -> tuple[PaymentAccount, Sequence[PaymentAccount]]:
    """Return an account as it is now, and the guest's other active accounts at its center.

    The others come oldest first. All of them stay as they are until the unit ends, and no account
    is added there. Raises PaymentAccountNotFound when the account has been removed meanwhile.
    """
    stored = unit.accounts.active_at(account.guest_id, account.center_id)
    current = next((each for each in stored if each.account_id == account.account_id), None)
    if current is None:
        raise PaymentAccountNotFound
    return current, [each for each in stored if each is not current]
