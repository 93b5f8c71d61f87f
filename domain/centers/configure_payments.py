"""Set up how a center takes cards."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Protocol

from domain.audit.entry import Action
from domain.audit.note_act import NoteAct
from domain.centers.center import Center, CenterNotFound
from domain.centers.changes import changes
from domain.centers.payment_configuration import PaymentConfiguration, changed
from domain.fields import parse_uuid
from domain.identifiers import CenterId, MerchantAccount, ProviderName, PspAccount
from domain.psps.capabilities import Capabilities
from domain.psps.hosted_page import consent_for
from domain.storage import Storage, WriteUnit


class LoadedPsp(Protocol):
    """A PSP that the installation has loaded."""

    @property
    def capabilities(self) -> Capabilities:
        """What the PSP can do."""
        ...

    @property
    def is_set_up(self) -> bool:
        """Whether the PSP has settings."""
        ...

    def accounts(self) -> Collection[MerchantAccount] | None:
        """Return the merchant accounts with keys, or None when it takes any account."""
        ...


class Missing(Enum):
    """What keeps an installation from taking cards for a merchant account of a PSP."""

    PSP = auto()
    """The PSP is not installed, or not loaded."""
    SETTINGS = auto()
    """The PSP has none of its settings."""
    KEYS = auto()
    """The PSP has keys of other merchant accounts only."""


def what_is_missing(psps: Mapping[ProviderName, LoadedPsp], account: PspAccount) -> Missing | None:
    """Return what is missing to take cards for a merchant account of a PSP, or None."""
    psp = psps.get(account.provider)
    if psp is None:
        return Missing.PSP
    if not psp.is_set_up:
        return Missing.SETTINGS
    accounts = psp.accounts()
    return None if accounts is None or account.merchant_account in accounts else Missing.KEYS


class PspNotReady(LookupError):
    """The installation cannot take cards for this merchant account; `missing` is why."""

    def __init__(self, account: PspAccount, missing: Missing) -> None:
        self.account = account
        self.missing = missing
        super().__init__(account, missing)


class ConsentTooLong(ValueError):
    """The center's name makes the consent longer than the PSP's page shows."""

    def __init__(self, provider: ProviderName, *, length: int, longest: int) -> None:
        super().__init__(
            f"the text that guests agree to names the center and has {length} characters; "
            f"{provider} shows {longest} at most: import the center with a shorter name"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredPayments:
    """A center, and how it took cards before and takes them now; None means that it takes none."""

    center: Center
    before: PaymentConfiguration | None
    now: PaymentConfiguration | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurePayments:
    """Use case: set up how a center takes cards. What is not named stays as it was.

    With None the center takes no cards any more. Sessions that have begun keep the setup that they
    began with. Raises PspNotReady, InvalidField as `changed` does and for a center id that is not a
    UUID, CenterNotFound or ConsentTooLong. May be called twice.
    """

    storage: Storage
    psps: Mapping[ProviderName, LoadedPsp]
    note_act: NoteAct

    def __call__(
        self,
        center_id: str,
        named: Mapping[str, Any] | None,  # as `changed` takes it
    ) -> ConfiguredPayments:
        """Return the center, and what has changed."""
        known_id = CenterId(parse_uuid("center_id", center_id))

        def configure(unit: WriteUnit) -> ConfiguredPayments:
            center = unit.centers.get(known_id)
            if center is None:
                raise CenterNotFound(known_id)
            before = unit.configurations.get_to_change(known_id)
            now = None if named is None else changed(before, named)
            if now is None:
                unit.configurations.remove(known_id)
            else:
                self._require_psp(now.psp_account)
                self._require_room_for_consent(now.provider, center)
                unit.configurations.put(known_id, now)
            if now != before:
                details = changes(PaymentConfiguration, before, now)
                self.note_act(unit, Action.PAYMENTS_CONFIGURED, known_id, details)
            unit.commit()
            return ConfiguredPayments(center=center, before=before, now=now)

        return self.storage.transact(configure)

    def _require_psp(self, account: PspAccount) -> None:
        missing = what_is_missing(self.psps, account)
        if missing is not None:
            raise PspNotReady(account, missing)

    def _require_room_for_consent(self, provider: ProviderName, center: Center) -> None:
        length = len(consent_for(center.name).text)
        longest = self.psps[provider].capabilities.max_consent_length
        if length > longest:
            raise ConsentTooLong(provider, length=length, longest=longest)
