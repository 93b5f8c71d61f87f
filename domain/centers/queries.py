"""Use cases that read the centers of a caller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from domain.centers.center import Center, parse_center_id
from domain.centers.configure_payments import LoadedPsp, is_live
from domain.centers.payment_configuration import GuestRemoval, PaymentConfiguration
from domain.errors import InvalidCenterId
from domain.identifiers import CenterId, ProviderName
from domain.languages import DEFAULT_LANGUAGE
from domain.pagination import Page, PageRequest
from domain.permissions import ANY_CALLER, Caller
from domain.storage import Storage, UnitOfWork


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredCenter:
    """A center, and how it takes cards.

    `configuration` is None if the center does not take cards. `live` is whether the cards are real,
    or None if that is unknown. `takes_agreements` is whether add-card may include an agreement.
    """

    center: Center
    configuration: PaymentConfiguration | None
    live: bool | None
    takes_agreements: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ListCenters:
    """Use case: list the centers for which the caller may act, sorted by name.

    No permission is needed.
    """

    needs = ANY_CALLER

    storage: Storage
    psps: Mapping[ProviderName, LoadedPsp]

    def __call__(self, caller: Caller, *, page: PageRequest) -> Page[ConfiguredCenter]:
        caller.require(self.needs)
        with self.storage.read() as unit:
            found = unit.centers.page(caller.centers, page)
            items = tuple(_configured(unit, self.psps, center) for center in found.items)
        return Page(items=items, total=found.total, request=page)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCenter:
    """Use case: read one of the centers for which the caller may act.

    Raises InvalidCenterId, or UserNotAuthorized if the caller is limited to other centers.
    """

    needs = ANY_CALLER

    storage: Storage
    psps: Mapping[ProviderName, LoadedPsp]

    def __call__(self, caller: Caller, *, center_id: str) -> ConfiguredCenter:
        caller.require(self.needs)
        known_id = parse_center_id(center_id)
        caller.require_center(known_id)
        with self.storage.read() as unit:
            center = unit.centers.get(known_id)
            if center is None:
                raise InvalidCenterId
            return _configured(unit, self.psps, center)


def takes_agreements(unit: UnitOfWork, center: Center) -> bool:
    """Return whether a center takes agreements.

    It does if it has an English text about bookings.
    """
    return any(text.language == DEFAULT_LANGUAGE for text in unit.reservation_texts.of(center.id))


def removal_by_guests(unit: UnitOfWork, center_id: CenterId) -> GuestRemoval:
    """Return what a center does if a guest removes a card that guarantees a booking."""
    configuration = unit.configurations.get(center_id)
    if configuration is not None and configuration.guest_removal is not None:
        return configuration.guest_removal
    center = unit.centers.get(center_id)
    is_for_bookings = center is not None and takes_agreements(unit, center)
    return GuestRemoval.AFTER_AGREEMENT if is_for_bookings else GuestRemoval.ALWAYS


def _configured(
    unit: UnitOfWork, psps: Mapping[ProviderName, LoadedPsp], center: Center
) -> ConfiguredCenter:
    configuration = unit.configurations.get(center.id)
    live = None if configuration is None else is_live(psps, configuration.psp_account)
    return ConfiguredCenter(
        center=center,
        configuration=configuration,
        live=live,
        takes_agreements=configuration is not None and takes_agreements(unit, center),
    )
