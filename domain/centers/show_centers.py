"""Show operators how centers take cards, and what keeps them from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from domain.centers.center import Center, CenterNotFound
from domain.centers.configure_payments import LoadedPsp, Missing, what_is_missing
from domain.centers.payment_configuration import PaymentConfiguration
from domain.fields import parse_uuid
from domain.identifiers import CenterId, ProviderName
from domain.pagination import MAX_SIZE, PageRequest
from domain.storage import Storage, UnitOfWork


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCenter:
    """A center, its configuration, if it has one, and what is missing to take cards by it."""

    center: Center
    configuration: PaymentConfiguration | None
    missing: Missing | None

    @property
    def takes_cards(self) -> bool:
        """Whether it is configured, and nothing is missing."""
        return self.configuration is not None and self.missing is None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowCenters:
    """Use case: return all centers, by name, or those that use a merchant account."""

    storage: Storage
    psps: Mapping[ProviderName, LoadedPsp]

    def __call__(self, *, merchant_account: str | None = None) -> Sequence[ShownCenter]:
        with self.storage.read() as unit:
            centers = [_shown(unit, self.psps, center) for center in _all(unit)]
        return [
            each
            for each in centers
            if merchant_account is None
            or (each.configuration and each.configuration.merchant_account == merchant_account)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowCenter:
    """Use case: return a center.

    Raises InvalidField for an id that is not a UUID, and CenterNotFound.
    """

    storage: Storage
    psps: Mapping[ProviderName, LoadedPsp]

    def __call__(self, center_id: str) -> ShownCenter:
        known_id = CenterId(parse_uuid("center_id", center_id))
        with self.storage.read() as unit:
            center = unit.centers.get(known_id)
            if center is None:
                raise CenterNotFound(known_id)
            return _shown(unit, self.psps, center)


def _all(unit: UnitOfWork) -> Iterator[Center]:
    request = PageRequest(size=MAX_SIZE)
    while True:
        page = unit.centers.page(None, request)
        yield from page.items
        if request.before + MAX_SIZE >= page.total:
            return
        request = PageRequest(page=request.page + 1, size=MAX_SIZE)


def _shown(unit: UnitOfWork, psps: Mapping[ProviderName, LoadedPsp], center: Center) -> ShownCenter:
    configuration = unit.configurations.get(center.id)
    missing = what_is_missing(psps, configuration.psp_account) if configuration else None
    return ShownCenter(center=center, configuration=configuration, missing=missing)
