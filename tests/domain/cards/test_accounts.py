"""Rules of the account entity, and the reading of accounts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from adapters.psp_suite.samples import GUEST_ID, MERCHANT_ACCOUNT, NOW, OTHER_GUEST_ID, a_uuid
from domain.agreements.agreement import ChargeIndicator
from domain.billing import AvsResult
from domain.cards.account import CLEARED_PSP_IDENTIFIERS, REMOVED, Account
from domain.centers.configure_payments import LoadedPsp
from domain.centers.payment_configuration import PaymentConfiguration
from domain.errors import PaymentAccountNotFound
from domain.identifiers import ProviderName
from domain.permissions import Permission
from domain.psps.card import Card, Funding
from domain.psps.hosted_page import CardCollected
from tests.builders import PROVIDER, a_guest, an_account
from tests.databases import change_by_hand
from tests.installation import OTHER_GOOD_CARD, Installation


def test_only_callers_that_may_charge_see_the_payment_reference(installation: Installation) -> None:
    account = installation.stored_card()

    def may_charge(*permissions: Permission) -> bool:
        caller = installation.a_caller(*permissions)
        # The ids may be in capital letters.
        ids = {"guest_id": GUEST_ID.upper(), "account_id": account.account_id.upper()}
        found = installation.use_cases.read_account(caller, **ids)
        assert found.account == account
        return found.may_charge

    assert not may_charge(Permission.GUESTS_VIEW)
    assert may_charge(Permission.GUESTS_VIEW, Permission.PAYMENTS_USE)


def test_the_payment_reference_has_the_currency_of_the_account(installation: Installation) -> None:
    account = installation.stored_card()
    fake = installation.settings.psps[account.provider]
    in_yen = replace(fake, plugin=replace(fake.plugin, currency=lambda *_: "jpy"))

    def currency(psps: Mapping[ProviderName, LoadedPsp]) -> str | None:
        read = replace(installation.use_cases.read_account, psps=psps)
        return read(installation.caller, guest_id=GUEST_ID, account_id=account.account_id).currency

    assert currency({account.provider: in_yen}) == "JPY"
    assert currency({account.provider: fake}) is None
    # The PSP of an imported card may not be loaded.
    assert currency({}) is None


def test_an_unreadable_configuration_does_not_hide_the_payment_reference(
    installation: Installation,
) -> None:
    account = installation.stored_card()
    change_by_hand(installation.storage, "UPDATE payment_configurations SET authentication = '?'")

    found = installation.use_cases.read_account(
        installation.caller, guest_id=GUEST_ID, account_id=account.account_id
    )

    assert found.may_charge
    assert found.charge_as is ChargeIndicator.UNSCHEDULED


# Shows S2.
@pytest.mark.parametrize(
    "use_case", ["read_account", "read_consent", "remove_account", "choose_default_card"]
)
def test_reading_a_removed_card_or_the_card_of_another_guest_is_refused(
    installation: Installation, use_case: str
) -> None:
    installation.has_guest(a_guest(id=OTHER_GUEST_ID))
    removed, account = installation.removed_card(OTHER_GOOD_CARD), installation.stored_card()
    elsewhere = installation.a_caller(centers=frozenset())

    for caller, guest_id, account_id in (
        (elsewhere, GUEST_ID, account.account_id),
        (installation.caller, OTHER_GUEST_ID, account.account_id),
        (installation.caller, "x", account.account_id),
        *((installation.caller, GUEST_ID, each) for each in (removed.account_id, a_uuid(9), "x")),
    ):
        with pytest.raises(PaymentAccountNotFound):
            getattr(installation.use_cases, use_case)(
                caller, guest_id=guest_id, account_id=account_id
            )
    assert installation.accounts() == (account,)


@pytest.mark.parametrize(
    ("now", "expired"),
    [
        (datetime(2031, 9, 30, 23, 59, 59, tzinfo=UTC), False),
        (datetime(2031, 10, 1, tzinfo=UTC), True),
        (datetime(2032, 1, 1, tzinfo=UTC), True),
    ],
)
def test_a_card_expires_at_the_end_of_the_last_day_of_its_month(
    now: datetime, expired: bool
) -> None:
    assert an_account(expiry_month=9, expiry_year=2031).has_expired(now) is expired


@pytest.mark.parametrize(
    ("changes", "is_same"),
    [
        ({}, True),
        ({"expiry_year": 2040, "token": "another", "last_four": "0000"}, True),
        ({"fingerprint": "another"}, False),
        ({"provider": "another"}, False),
        ({"merchant_account": "another"}, False),
    ],
)
def test_two_cards_with_the_same_fingerprint_at_one_merchant_account_are_the_same(
    changes: dict[str, Any], is_same: bool
) -> None:
    configuration = PaymentConfiguration(provider=PROVIDER, merchant_account=MERCHANT_ACCOUNT)

    assert an_account(**changes).is_same_card(an_account(), configuration.psp_account) is is_same


HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.mark.parametrize(
    ("notice_in", "earliest", "latest"),
    [(20 * DAY, 16 * DAY, 19 * DAY), (HOUR, 27 * DAY, 30 * DAY), (DAY, 27 * DAY, 30 * DAY)],
)
def test_the_next_refresh_of_a_card_is_within_30_days_or_just_before_its_expiry_notice(
    notice_in: timedelta, earliest: timedelta, latest: timedelta
) -> None:
    due_at = an_account(expiry_notice_at=NOW + notice_in).waiting(NOW).due_at

    assert due_at is not None
    assert NOW + earliest <= due_at <= NOW + latest


@pytest.mark.parametrize(
    ("stored", "due_at"),
    [
        ({"due_at": NOW + HOUR}, NOW),
        ({"due_at": NOW - HOUR}, NOW - HOUR),
        ({"due_at": None}, NOW),
        ({"due_at": NOW + HOUR, "unanswered_since": NOW - HOUR}, NOW + HOUR),
    ],
)
def test_postponing_an_expiry_notice_refreshes_the_card_immediately_unless_the_psp_is_down(
    stored: dict[str, Any], due_at: datetime
) -> None:
    account = an_account(**stored)

    put_off = account.with_expiry_notice_postponed(NOW + HOUR, NOW)

    assert put_off == replace(account, expiry_notice_at=NOW + HOUR, due_at=due_at)


def test_an_expiry_notice_is_not_sent_before_its_first_day() -> None:
    assert an_account(expiry_year=2031).days_of_expiry_notice(NOW) is None


STAYS: Final = {
    *("account_id", "token_id", "guest_id", "center_id", "provider", "merchant_account", "source"),
    *("card_logo", "last_four", "expiry_month", "expiry_year", "consent_version", "consented_at"),
    *("funding", "issuer_country", "wallet", "withdrawn_at"),
    *("created_at", "asked_at", "read_at", "authenticated", "refused_since", "refusals"),
}


def test_every_field_of_an_account_is_listed_as_kept_or_cleared_by_an_erasure() -> None:
    """Add each new field to one of these sets. `Accounts.blank` and `remove_unreadable` use two."""
    names = {field.name for field in fields(Account)}

    assert names == STAYS | CLEARED_PSP_IDENTIFIERS.keys() | REMOVED.keys() | {"removed_at"}


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
