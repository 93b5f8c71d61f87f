"""Find a card on file for a caller."""

from __future__ import annotations

from collections.abc import Sequence

from domain.cards.account import Account
from domain.errors import PaymentAccountNotFound
from domain.identifiers import AccountId, plain_uuid
from domain.permissions import Caller
from domain.storage import UnitOfWork, WriteUnit


def account_with(unit: UnitOfWork, account_id: str) -> Account:
    """Return the account with this id, removed or not. Raises PaymentAccountNotFound."""
    known_id = plain_uuid(account_id)
    account = unit.accounts.get(AccountId(known_id)) if known_id else None
    if account is None:
        raise PaymentAccountNotFound
    return account


def account_of_guest(
    unit: UnitOfWork, caller: Caller, *, guest_id: str, account_id: str
) -> Account:
    """Return a guest's account, even if it was removed. The caller must see the account's center.

    Raises PaymentAccountNotFound if there is no such account.
    """
    account = account_with(unit, account_id)
    if account.guest_id != plain_uuid(guest_id) or not caller.sees(account.center_id):
        raise PaymentAccountNotFound
    return account


def active_account(unit: UnitOfWork, caller: Caller, *, guest_id: str, account_id: str) -> Account:
    """Return a guest's active account at a center that the caller may see.

    Raises PaymentAccountNotFound if there is no such account.
    """
    account = account_of_guest(unit, caller, guest_id=guest_id, account_id=account_id)
    if account.removed_at is not None:
        raise PaymentAccountNotFound
    return account


def lock_account(unit: WriteUnit, account: Account) -> tuple[Account, Sequence[Account]]:
    """Return the current state of an account, and the guest's other active accounts at its center.

    The other accounts are ordered by age, oldest first. Until the unit ends, no other unit can
    change these accounts or add another. Raises PaymentAccountNotFound if the account was removed
    in the meantime.
    """
    stored = unit.accounts.active_at(account.guest_id, account.center_id)
    current = next((known for known in stored if known.account_id == account.account_id), None)
    if current is None:
        raise PaymentAccountNotFound
    return current, [other for other in stored if other is not current]
