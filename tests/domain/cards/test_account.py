"""Rules of the account entity."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Final

from adapters.psp_suite.samples import NOW
from domain.billing import AvsResult
from domain.cards.account import NAMED_AT_PSP, REMOVED, Account
from domain.psps.card import Card, Funding
from domain.psps.hosted_page import CardCollected
from tests.builders import an_account

STAYS: Final = {
    *("account_id", "token_id", "guest_id", "center_id", "provider", "merchant_account", "source"),
    *("card_logo", "last_four", "expiry_month", "expiry_year", "consent_version", "consented_at"),
    *("funding", "issuer_country", "wallet", "withdrawn_at"),
    *("created_at", "asked_at", "read_at", "authenticated", "refused_since", "refusals"),
}


def test_every_field_of_an_account_is_listed_as_kept_or_cleared_by_an_erasure() -> None:
    """Add each new field to one of these sets. `Accounts.blank` and `remove_unreadable` use two."""
    names = {field.name for field in fields(Account)}

    assert names == STAYS | NAMED_AT_PSP.keys() | REMOVED.keys() | {"removed_at"}


def test_renewing_an_account_keeps_card_details_that_the_psp_does_not_report_again() -> None:
    account = an_account(funding=Funding.DEBIT, issuer_country="DE", wallet="apple_pay")
    card = Card(**{each.name: getattr(account, each.name) for each in fields(Card)})
    typed = replace(card, funding=None, issuer_country="AT", wallet=None)
    collected = CardCollected(card=typed, avs=AvsResult.MATCH, collected_at=NOW)

    renewed = account.renewed(collected, consent_version="2", now=NOW)

    facts = (renewed.funding, renewed.issuer_country, renewed.wallet)
    assert facts == (Funding.DEBIT, "AT", None)


def test_removing_an_account_clears_the_fields_that_only_active_accounts_use() -> None:
    account = an_account(
        is_default=True, expiry_notice_at=NOW, due_at=NOW, unanswered_since=NOW, keep_until=NOW
    )

    removed = account.removed(NOW)

    assert {name: getattr(removed, name) for name in REMOVED} == REMOVED
    assert all(getattr(account, name) != left for name, left in REMOVED.items())
