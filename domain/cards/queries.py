"""Use cases that read cards on file, their agreements and their consents."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from typing import Final

from domain.agreements.agreement import (
    Agreement,
    ChargeIndicator,
    general_among,
    running_among,
)
from domain.cards.account import Account
from domain.cards.find_account import active_account
from domain.cards.find_agreement import agreement_of_guest
from domain.centers.center import parse_center_id, parse_only_center
from domain.centers.configure_payments import LoadedPsp, currency
from domain.consents.given_consent import GivenConsent
from domain.errors import GuestNotFound, InvalidCenterId, InvalidField
from domain.guests.guest import parse_guest_id
from domain.identifiers import ProviderName
from domain.outside import Clock
from domain.pagination import Page, PageRequest
from domain.permissions import MAY_USE_CARDS, MAY_VIEW_CARDS, Caller
from domain.storage import RecordUnreadable, Storage, UnitOfWork


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountForCaller:
    """A payment account, and the values that a caller needs for a charge.

    `may_charge` is whether the caller may see the values for a charge. If not, `agreements`,
    `charge_as` and `currency` have their defaults. `agreements` are the agreements that allow
    charges now, oldest first. `charge_as` is the reason to send to the bank with a charge under any
    of these agreements. `currency` is the currency of the merchant account (ISO 4217), or None if
    it is not set.
    """

    account: Account
    may_charge: bool
    agreements: Sequence[Agreement] = ()
    charge_as: ChargeIndicator = ChargeIndicator.UNSCHEDULED
    currency: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAccount:
    """Use case: return a guest's active payment account.

    Callers that may use cards also see the account's payment reference. Raises UserNotAuthorized.
    Raises PaymentAccountNotFound if the guest has no such active account at a center that the
    caller may see.
    """

    needs = MAY_VIEW_CARDS

    storage: Storage
    psps: Mapping[ProviderName, LoadedPsp]
    clock: Clock

    def __call__(self, caller: Caller, *, guest_id: str, account_id: str) -> AccountForCaller:
        caller.require(self.needs)
        with self.storage.read() as unit:
            account = active_account(unit, caller, guest_id=guest_id, account_id=account_id)
            if not caller.may(MAY_USE_CARDS):
                return AccountForCaller(account=account, may_charge=False)
            now = self.clock.now()
            agreements = unit.agreements.of_account(account.account_id)
            return AccountForCaller(
                account=account,
                may_charge=True,
                agreements=running_among(agreements, now),
                charge_as=_charge_indicator(unit, account),
                currency=currency(self.psps, account.psp_account),
            )


def _charge_indicator(unit: UnitOfWork, account: Account) -> ChargeIndicator:
    with suppress(RecordUnreadable):
        configuration = unit.configurations.get(account.center_id)
        if configuration is not None and configuration.may_state_no_show(account.psp_account):
            return ChargeIndicator.NO_SHOW
    return ChargeIndicator.UNSCHEDULED


@dataclass(frozen=True, slots=True, kw_only=True)
class ListAccounts:
    """Use case: return a page of a guest's active payment accounts, oldest first.

    Only accounts at centers that the caller may see are returned and counted. `center_ids` contains
    the unparsed values of the query parameter `center_id`. It may contain one center id, which
    limits the list to that center. Raises UserNotAuthorized, InvalidCenterId, GuestIdNotUsable or
    GuestNotFound.
    """

    needs = MAY_VIEW_CARDS

    storage: Storage

    def __call__(
        self,
        caller: Caller,
        *,
        guest_id: str,
        center_ids: Sequence[str],
        page: PageRequest,
    ) -> Page[Account]:
        caller.require(self.needs)
        only = parse_only_center(center_ids)
        if only is not None:
            caller.require_center(only)
        centers = caller.centers if only is None else frozenset({only})
        guest = parse_guest_id(guest_id)
        with self.storage.read() as unit:
            if only is not None and unit.centers.get(only) is None:
                raise InvalidCenterId
            if unit.guests.get(guest) is None:
                raise GuestNotFound
            return unit.accounts.page(guest, centers, page)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListAgreements:
    """Use case: return a page of the agreements of a guest's active payment account, oldest first.

    Raises UserNotAuthorized, or PaymentAccountNotFound as `ReadAccount` does.
    """

    needs = MAY_VIEW_CARDS

    storage: Storage

    def __call__(
        self, caller: Caller, *, guest_id: str, account_id: str, page: PageRequest
    ) -> Page[Agreement]:
        caller.require(self.needs)
        with self.storage.read() as unit:
            account = active_account(unit, caller, guest_id=guest_id, account_id=account_id)
            return unit.agreements.page(account.account_id, page)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAgreement:
    """Use case: return a guest's agreement, even if it has ended or its card was removed.

    Raises UserNotAuthorized, or AgreementNotFound if the guest has no such agreement at a center
    that the caller may see.
    """

    needs = MAY_VIEW_CARDS

    storage: Storage

    def __call__(self, caller: Caller, *, guest_id: str, agreement_id: str) -> Agreement:
        caller.require(self.needs)
        with self.storage.read() as unit:
            return agreement_of_guest(unit, caller, guest_id=guest_id, agreement_id=agreement_id)


EXPECTED_DATE: Final = "a date such as 2027-01-31"

_DATE = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListExpiringCards:
    """Use case: return a page of a center's active payment accounts that expire before a date.

    A card expires on the last day of its expiry month. The cards that expire soonest come first.
    Expired cards are included unless they were removed. `expires_before` contains the unparsed
    values of the query parameter with this name. Raises UserNotAuthorized, InvalidCenterId or
    InvalidField.
    """

    needs = MAY_VIEW_CARDS

    storage: Storage

    def __call__(
        self,
        caller: Caller,
        *,
        center_id: str,
        expires_before: Sequence[str],
        page: PageRequest,
    ) -> Page[Account]:
        caller.require(self.needs)
        center = parse_center_id(center_id)
        caller.require_center(center)
        before = _parse_date(expires_before)
        with self.storage.read() as unit:
            if unit.centers.get(center) is None:
                raise InvalidCenterId
            return unit.accounts.page_expiring(center, before=before, request=page)


def _parse_date(given: Sequence[str]) -> date:
    # `fromisoformat` alone would also accept 20270131 and 2027-W04-7.
    if len(given) == 1 and _DATE.fullmatch(given[0]):
        with suppress(ValueError):
            return date.fromisoformat(given[0])
    raise InvalidField("expires_before", EXPECTED_DATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadConsent:
    """Use case: return the consents of a guest's active payment account.

    The current consent comes first. Consents that the guest gave earlier, for example before the
    card was renewed, follow it, newest first. Raises UserNotAuthorized, or PaymentAccountNotFound
    as `ReadAccount` does.
    """

    needs = MAY_VIEW_CARDS

    storage: Storage

    def __call__(self, caller: Caller, *, guest_id: str, account_id: str) -> Sequence[GivenConsent]:
        caller.require(self.needs)
        with self.storage.read() as unit:
            account = active_account(unit, caller, guest_id=guest_id, account_id=account_id)
            return consents_of(unit, account)


def consents_of(unit: UnitOfWork, account: Account) -> Sequence[GivenConsent]:
    """Return the consents for an account: the current consent, then the others, newest first."""
    without_text = GivenConsent(
        account_id=account.account_id,
        token_id=account.token_id,
        version=account.consent_version,
        agreed_at=account.consented_at,
    )
    return unit.consents.of(account) or [without_text]


def general_consents(unit: UnitOfWork, account: Account) -> Sequence[GivenConsent]:
    """Return the consents that are in force and also allow charges unrelated to a booking."""
    if account.keep_until is not None:
        return ()
    given = unit.agreements.made_with(account.account_id)
    general = general_among(consents_of(unit, account), given)
    return [each for each in general if not account.has_withdrawn(each.agreed_at)]
