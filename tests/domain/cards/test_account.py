"""What an account itself decides."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from adapters.psp_suite.samples import NOW
from domain.cards.account import NAMED_AT_PSP, REMOVED, Account
from tests.builders import an_account

STAYS: Final = {
    *("account_id", "token_id", "guest_id", "center_id", "provider", "merchant_account", "source"),
    *("card_logo", "last_four", "expiry_month", "expiry_year", "consent_version", "consented_at"),
    *("created_at", "asked_at", "read_at", "authenticated", "refused_since", "refusals"),
}


def test_every_field_of_an_account_is_kept_or_erased_by_decision() -> None:
    """A new field belongs to one of these. `Accounts.blank` and `remove_unreadable` follow from two."""
    names = {field.name for field in fields(Account)}

    assert names == STAYS | NAMED_AT_PSP.keys() | REMOVED.keys() | {"removed_at"}


def test_removing_an_account_clears_the_fields_of_an_active_account() -> None:
    account = an_account(is_default=True, expiry_notice_at=NOW, due_at=NOW, unanswered_since=NOW)

    removed = account.removed(NOW)

    assert {name: getattr(removed, name) for name in REMOVED} == REMOVED
    assert all(getattr(account, name) != left for name, left in REMOVED.items())
