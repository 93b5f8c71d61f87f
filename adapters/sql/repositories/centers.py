"""Centers and payment configurations."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from adapters.sql.repositories.repository import ById, Repository
from adapters.sql.rows import Rows
from domain.centers.center import Center, Centers
from domain.centers.center_settings import CenterSettings, SettingsOfCenters
from domain.centers.payment_configuration import PaymentConfiguration, PaymentConfigurations
from domain.identifiers import CenterId, MerchantAccount, ProviderName, PspAccount
from domain.pagination import Page, PageRequest

_CENTERS = Rows("centers", Center, key=("id",))

_CONFIGURATIONS = Rows(
    "payment_configurations", PaymentConfiguration, key=("center_id",), extra_columns=("center_id",)
)

_SETTINGS = Rows(
    "center_settings", CenterSettings, key=("center_id",), extra_columns=("center_id",)
)


class SqlCenters(ById[CenterId, Center], Centers):
    """Stores centers."""

    _rows = _CENTERS

    @override
    def page(self, centers: frozenset[CenterId] | None, request: PageRequest) -> Page[Center]:
        condition = "" if centers is None else f"WHERE id {self._dialect.among_ids} "
        values = {"ids": sorted(centers or ())}
        return self._page(condition, values, order="name, id", request=request)


class SqlPaymentConfigurations(Repository, PaymentConfigurations):
    """Stores the payment configuration of each center."""

    @override
    def get(self, center_id: CenterId) -> PaymentConfiguration | None:
        return _CONFIGURATIONS.get(self._transaction, center_id=center_id)

    @override
    def get_to_change(self, center_id: CenterId) -> PaymentConfiguration | None:
        # The key is locked instead of the row, because there is no row at first, and because the
        # settling of cards must not wait for an operator.
        self._transaction.lock("configuration", center_id)
        return self.get(center_id)

    @override
    def put(self, center_id: CenterId, configuration: PaymentConfiguration) -> None:
        self._transaction.execute(
            _CONFIGURATIONS.insert + _CONFIGURATIONS.or_replace,
            _CONFIGURATIONS.row(configuration) | {"center_id": center_id},
        )

    @override
    def remove(self, center_id: CenterId) -> None:
        _CONFIGURATIONS.delete(self._transaction, center_id=center_id)

    @override
    def psp_accounts(self) -> frozenset[PspAccount]:
        named = self._transaction.execute(
            "SELECT DISTINCT provider, merchant_account FROM payment_configurations"
        )
        return frozenset(
            PspAccount(ProviderName(provider), MerchantAccount(account))
            for provider, account in named.fetchall()
        )

    @override
    def all(self) -> Sequence[PaymentConfiguration]:
        return _CONFIGURATIONS.find_readable(self._transaction, "", {})


class SqlSettingsOfCenters(Repository, SettingsOfCenters):
    """Stores the settings of each center."""

    @override
    def get(self, center_id: CenterId) -> CenterSettings:
        return _SETTINGS.get(self._transaction, center_id=center_id) or CenterSettings()

    @override
    def get_to_change(self, center_id: CenterId) -> CenterSettings:
        self._transaction.lock("center settings", center_id)
        return self.get(center_id)

    @override
    def put(self, center_id: CenterId, settings: CenterSettings) -> None:
        self._transaction.execute(
            _SETTINGS.insert + _SETTINGS.or_replace,
            _SETTINGS.row(settings) | {"center_id": center_id},
        )
