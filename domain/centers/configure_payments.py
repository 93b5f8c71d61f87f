"""Set the payment configuration of a center."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum, auto
from typing import Any, Final, Protocol

from domain.audit.entry import Action
from domain.audit.note_act import NoteAct
from domain.centers.center import Center
from domain.centers.changes import changes
from domain.centers.find_centers import existing_center
from domain.centers.payment_configuration import PaymentConfiguration, changed
from domain.errors import InvalidField
from domain.identifiers import MerchantAccount, ProviderName, PspAccount
from domain.psps.capabilities import Capabilities
from domain.psps.hosted_page import Consent
from domain.storage import RecordUnreadable, Storage, UnitOfWork, WriteUnit

_FIELDS: Final = {field.name for field in fields(PaymentConfiguration)}
_IMPLIED: Final = {"acquirer_agreed"}
"""The field that is required only if `refuse_funding` is set."""


class LoadedPsp(Protocol):
    """A PSP that the installation has loaded."""

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the PSP."""
        ...

    @property
    def is_set_up(self) -> bool:
        """Whether the PSP has settings."""
        ...

    def accounts(self) -> Collection[MerchantAccount] | None:
        """Return the merchant accounts that have keys, or None if the PSP accepts any account."""
        ...

    def is_live(self, account: MerchantAccount) -> bool | None:
        """Return whether a merchant account takes real cards, or None if that is unknown."""
        ...

    def currency(self, account: MerchantAccount) -> str | None:
        """Return the currency that is set for a merchant account (ISO 4217), or None."""
        ...


class Missing(Enum):
    """The reason why this installation cannot take cards for a merchant account."""

    PSP = auto()
    """The PSP is not installed, or not loaded."""
    SETTINGS = auto()
    """The PSP's settings are missing."""
    KEYS = auto()
    """The PSP has keys, but not for this merchant account."""
    CLOSED = auto()
    """An operator has closed the merchant account."""


def find_missing(psps: Mapping[ProviderName, LoadedPsp], account: PspAccount) -> Missing | None:
    """Return what is missing before this installation can take cards for a merchant account.

    Return None if nothing is missing. The result is never `CLOSED`, because only the stored records
    show whether an account is closed.
    """
    psp = psps.get(account.provider)
    if psp is None:
        return Missing.PSP
    if not psp.is_set_up:
        return Missing.SETTINGS
    accounts = psp.accounts()
    return None if accounts is None or account.merchant_account in accounts else Missing.KEYS


def is_live(psps: Mapping[ProviderName, LoadedPsp], account: PspAccount) -> bool | None:
    """Return whether a PSP's merchant account takes real cards, or None if that is unknown."""
    psp = psps.get(account.provider)
    return None if psp is None else psp.is_live(account.merchant_account)


def currency(psps: Mapping[ProviderName, LoadedPsp], account: PspAccount) -> str | None:
    """Return the currency that is set for a PSP's merchant account (ISO 4217), or None."""
    psp = psps.get(account.provider)
    return None if psp is None else psp.currency(account.merchant_account)


def reads_cards(psps: Mapping[ProviderName, LoadedPsp], account: PspAccount) -> bool:
    """Return whether the merchant account's PSP is loaded here and can read stored cards."""
    psp = psps.get(account.provider)
    return psp is not None and psp.capabilities.reads_cards


def lists_cards(psps: Mapping[ProviderName, LoadedPsp], account: PspAccount) -> bool:
    """Return whether the merchant account's PSP is set up here and can list stored cards."""
    is_ready = find_missing(psps, account) is None
    return is_ready and psps[account.provider].capabilities.lists_cards


class PspNotReady(LookupError):
    """This installation cannot take cards for the merchant account. `missing` is the reason."""

    def __init__(self, account: PspAccount, missing: Missing) -> None:
        self.account = account
        self.missing = missing
        super().__init__(account, missing)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredPayments:
    """A center, and its payment configuration before and after a change.

    A configuration of None means that the center does not take cards.
    """

    center: Center
    before: PaymentConfiguration | None
    now: PaymentConfiguration | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurePayments:
    """Use case: change the payment configuration of a center, or remove it.

    Fields that are not in `named` stay unchanged. If `named` is None, the center stops taking
    cards. Existing sessions keep their own copy of the configuration. May be called more than once.

    Raises:

    - CenterNotFound, or PspNotReady if this installation cannot take cards for the merchant
      account;
    - InvalidField for an invalid center id or value, or for an option that the PSP does not
      support;
    - InvalidField if the stored configuration cannot be decoded, unless `named` has every field;
    - ConsentTooLong if one of the center's consent texts is too long for the PSP's page.
    """

    storage: Storage
    psps: Mapping[ProviderName, LoadedPsp]
    consents_of: Callable[[UnitOfWork, Center], Sequence[Consent]]
    note_act: NoteAct

    def __call__(
        self,
        center_id: str,
        named: Mapping[str, Any] | None,  # unparsed values, as in `changed`
    ) -> ConfiguredPayments:
        """Change the configuration, and return the center with its old and new configuration."""

        def configure(unit: WriteUnit) -> ConfiguredPayments:
            center, noted = existing_center(unit, center_id), dict[str, str]()
            try:
                before = unit.configurations.get_to_change(center.id)
            except RecordUnreadable:
                before, noted = None, {"configuration": "unreadable"}
                if named is not None and named.keys() | _IMPLIED != _FIELDS:
                    expected = (
                        "a center whose configuration this release can read; give every option"
                    )
                    raise InvalidField(
                        "center_id", f"{expected} to replace this configuration"
                    ) from None
            now = None if named is None else changed(before, named)
            if now is None:
                unit.configurations.remove(center.id)
            else:
                self._require_psp(unit, now.psp_account)
                capabilities = self.psps[now.provider].capabilities
                if now.avs and not capabilities.checks_addresses:
                    raise InvalidField(
                        "avs", f"off, because {now.provider} does not check billing addresses"
                    )
                if now.refuse_funding and not capabilities.tells_funding:
                    expected = f"empty, because {now.provider} does not report the funding of cards"
                    raise InvalidField("refuse_funding", expected)
                capabilities.require_authentication(now.authentication, now.provider)
                for consent in self.consents_of(unit, center):
                    capabilities.require_room(consent, now.provider)
                unit.configurations.put(center.id, now)
            if now != before or noted:
                noted |= changes(PaymentConfiguration, before, now)
                self.note_act(unit, Action.PAYMENTS_CONFIGURED, center.id, noted)
            unit.commit()
            return ConfiguredPayments(center=center, before=before, now=now)

        return self.storage.transact(configure)

    def _require_psp(self, unit: UnitOfWork, account: PspAccount) -> None:
        is_closed = unit.merchant_standings.of(account).is_closed
        missing = Missing.CLOSED if is_closed else find_missing(self.psps, account)
        if missing is not None:
            raise PspNotReady(account, missing)
