"""References to guests at PSPs, and the identities and standings of merchant accounts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from typing_extensions import override

from adapters.sql.repositories.repository import Repository
from adapters.sql.rows import Rows
from domain.identifiers import GuestId, GuestReference, MerchantAccount, ProviderName, PspAccount
from domain.psps.hosted_page import PspGuest
from domain.psps.merchant_standing import MerchantStanding, MerchantStandings
from domain.psps.references import GuestReferences, MerchantIdentities

_TABLES: Final = ("psp_guests", "former_guest_references", "guest_references")
"""The tables of the present references, the replaced references, and those of release 0.1.0."""

_REFERENCES: Final = " UNION ALL ".join(
    f"SELECT {columns} FROM {table} WHERE guest_id = :guest_id"
    for columns, table in (
        *(("provider, merchant_account, reference", table) for table in _TABLES),
        ("provider, merchant_account, guest_reference", "payment_accounts"),
        (
            "configuration ->> 'provider', configuration ->> 'merchant_account', attempt -> 'page' ->> 'guest_reference'",
            "card_sessions",
        ),
    )
)


_STANDINGS: Final = Rows(
    "merchant_standings", MerchantStanding, key=("provider", "merchant_account")
)

_GUESTS: Final = " UNION ALL ".join(
    f"SELECT guest_id FROM {table} WHERE provider = :provider "
    f"AND merchant_account = :merchant_account AND {column} = :reference"
    for table, column in (
        *((table, "reference") for table in _TABLES),
        ("payment_accounts", "guest_reference"),
    )
)


class SqlGuestReferences(Repository, GuestReferences):
    """Stores the references by which PSPs identify guests."""

    @override
    def get(self, guest: PspGuest) -> GuestReference | None:
        row = self._transaction.execute(
            "SELECT reference FROM psp_guests WHERE provider = :provider "
            "AND merchant_account = :merchant_account AND guest_id = :guest_id "
            "AND center_id = :center_id AND prefill = :prefill",
            guest._asdict(),
        ).fetchone()
        return None if row is None else GuestReference(row[0])

    @override
    def of(self, guest_id: GuestId) -> Sequence[tuple[PspAccount, GuestReference]]:
        found = self._transaction.execute(_REFERENCES, {"guest_id": guest_id}).fetchall()
        return [
            (PspAccount(provider, account), reference)
            for provider, account, reference in sorted({row for row in found if row[2]})
        ]

    @override
    def guests(self, psp_account: PspAccount, reference: GuestReference) -> frozenset[GuestId]:
        self._transaction.lock("guests at PSP", *psp_account, reference)
        found = self._transaction.execute(
            _GUESTS, {**psp_account._asdict(), "reference": reference}
        ).fetchall()
        return frozenset(guest_id for (guest_id,) in found)

    @override
    def keep(self, guest: PspGuest, reference: GuestReference) -> None:
        values = {**guest._asdict(), "reference": reference}
        self._transaction.lock("guest at PSP", *map(str, guest))
        self._transaction.execute(
            "INSERT INTO former_guest_references "
            "SELECT provider, merchant_account, guest_id, reference FROM psp_guests "
            "WHERE provider = :provider AND merchant_account = :merchant_account "
            "AND guest_id = :guest_id AND center_id = :center_id AND prefill = :prefill "
            "AND reference <> :reference ON CONFLICT DO NOTHING",
            values,
        )
        self._transaction.execute(
            "INSERT INTO psp_guests "
            "(provider, merchant_account, guest_id, center_id, prefill, reference) VALUES "
            "(:provider, :merchant_account, :guest_id, :center_id, :prefill, :reference) "
            "ON CONFLICT (provider, merchant_account, guest_id, center_id, prefill) "
            "DO UPDATE SET reference = excluded.reference",
            values,
        )

    @override
    def keep_former(
        self, guest_id: GuestId, psp_account: PspAccount, reference: GuestReference
    ) -> None:
        self._transaction.execute(
            "INSERT INTO former_guest_references "
            "(provider, merchant_account, guest_id, reference) VALUES "
            "(:provider, :merchant_account, :guest_id, :reference) ON CONFLICT DO NOTHING",
            {**psp_account._asdict(), "guest_id": guest_id, "reference": reference},
        )

    @override
    def remove(self, guest_id: GuestId) -> None:
        for table in _TABLES:
            self._transaction.execute(
                f"DELETE FROM {table} WHERE guest_id = :guest_id", {"guest_id": guest_id}
            )


class SqlMerchantIdentities(Repository, MerchantIdentities):
    """Stores, for each merchant account, the PSP's id of the merchant that owns the keys."""

    @override
    def of_original(self, provider: ProviderName) -> frozenset[str]:
        found = self._transaction.execute(
            "SELECT identity FROM merchant_identities WHERE provider = :provider AND of_original",
            {"provider": provider},
        ).fetchall()
        return frozenset(identity for (identity,) in found)

    @override
    def get(self, provider: ProviderName, merchant_account: MerchantAccount) -> str | None:
        row = self._transaction.execute(
            "SELECT identity FROM merchant_identities WHERE provider = :provider "
            "AND merchant_account = :merchant_account",
            {"provider": provider, "merchant_account": merchant_account},
        ).fetchone()
        return None if row is None else str(row[0])

    @override
    def claim(
        self, provider: ProviderName, merchant_account: MerchantAccount, identity: str
    ) -> str:
        # This waits for an uncommitted claim of the same merchant account.
        self._transaction.execute(
            "INSERT INTO merchant_identities (provider, merchant_account, identity) "
            "VALUES (:provider, :merchant_account, :identity) ON CONFLICT DO NOTHING",
            {"provider": provider, "merchant_account": merchant_account, "identity": identity},
        )
        return self.get(provider, merchant_account) or identity

    @override
    def forget(self, provider: ProviderName, merchant_account: MerchantAccount) -> None:
        self._transaction.execute(
            "DELETE FROM merchant_identities WHERE provider = :provider "
            "AND merchant_account = :merchant_account",
            {"provider": provider, "merchant_account": merchant_account},
        )


class SqlMerchantStandings(Repository, MerchantStandings):
    """Stores for each merchant account whether an operator has closed it or confirmed its keys."""

    @override
    def of(self, psp_account: PspAccount) -> MerchantStanding:
        self._transaction.lock("merchant standing", *psp_account)
        found = _STANDINGS.get(self._transaction, lock=True, **psp_account._asdict())
        return found or MerchantStanding.of(psp_account)

    @override
    def put(self, standing: MerchantStanding) -> None:
        self._transaction.execute(
            _STANDINGS.insert + _STANDINGS.or_replace, _STANDINGS.row(standing)
        )

    @override
    def all(self) -> Sequence[MerchantStanding]:
        return _STANDINGS.find(self._transaction, "ORDER BY provider, merchant_account", {})

    @override
    def closed(self) -> frozenset[PspAccount]:
        return frozenset(each.psp_account for each in self.all() if each.is_closed)
