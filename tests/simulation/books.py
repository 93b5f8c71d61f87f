"""What is on disk, read past the repositories, and what the PSP holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from sqlite_utils import Database

from adapters.fake_psp.psp import FakePsp, PspPage
from adapters.sqlite.connection import connect
from domain.identifiers import CardToken, MerchantAccount
from tests.simulation.psp import pages_at, token_of, tokens_at


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOnFile:
    """A row of the sessions; `due_at` and its like are times, `attempt` is 0 before the first."""

    token_id: str
    guest_id: str
    center_id: str
    caller: str
    redirect_uri: str
    status: str
    created_at: datetime
    expires_at: datetime
    due_at: datetime | None
    ended_at: datetime | None
    account_id: str | None
    failure: str | None
    merchant_account: str
    avs: bool
    cards_per_guest: str
    attempt: int

    @property
    def is_settled(self) -> bool:
        """Tell whether nothing may change any more."""
        return self.status in ("completed", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountOnFile:
    """A row of the accounts; `token` with its merchant account."""

    sequence: int
    account_id: str
    token_id: str
    guest_id: str
    center_id: str
    merchant_account: str
    token: str
    fingerprint: str
    last_four: str
    expiry: tuple[int, int]
    consented_at: datetime
    removed_at: datetime | None

    @property
    def is_active(self) -> bool:
        """Tell whether the card may be charged."""
        return self.removed_at is None

    @property
    def token_at_psp(self) -> tuple[MerchantAccount, CardToken]:
        """The token, and where."""
        return MerchantAccount(self.merchant_account), CardToken(self.token)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardOnFile:
    """A row of the discards."""

    merchant_account: str
    token: str
    due_at: datetime | None
    done_at: datetime | None

    @property
    def token_at_psp(self) -> tuple[MerchantAccount, CardToken]:
        """The token, and where."""
        return MerchantAccount(self.merchant_account), CardToken(self.token)


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """Everything there is at one moment."""

    sessions: Mapping[str, SessionOnFile]
    accounts: Mapping[str, AccountOnFile]
    discards: Sequence[DiscardOnFile]
    guests: frozenset[str]
    centers: frozenset[str]
    configurations: frozenset[str]
    pages: Sequence[PspPage]
    tokens: frozenset[tuple[MerchantAccount, CardToken]]

    @property
    def next_due(self) -> datetime | None:
        """When there is work for the reconciler next, None when there is none any more."""
        times = [each.due_at for each in self.sessions.values()]
        times += [each.due_at for each in self.discards]
        return min(filter(None, times), default=None)

    def collected(self, token_id: str) -> Sequence[PspPage]:
        """Give the pages of a session that have collected a card."""
        return [
            page
            for page in self.pages
            if page.request.token_id == token_id and page.collected_at and page.card
        ]

    def pages_of_token(self, held: AccountOnFile) -> Sequence[PspPage]:
        """Give the pages that collected the card which an account holds."""
        return [
            page
            for page in self.pages
            if page.collected_at
            and page.card
            and page.request.merchant_account == held.merchant_account
            and token_of(page.request.merchant_account, page.card) == held.token
        ]


_SESSIONS: Final = """
    SELECT token_id, guest_id, center_id, caller, redirect_uri, status, created_at, expires_at,
        due_at, ended_at, account_id, json_extract(failure, '$.message') AS failure,
        json_extract(configuration, '$.merchant_account') AS merchant_account,
        json_extract(configuration, '$.avs') AS avs,
        json_extract(configuration, '$.cards_per_guest') AS cards_per_guest,
        coalesce(json_extract(attempt, '$.request.attempt'), 0) AS attempt
    FROM card_sessions ORDER BY rowid
"""


class Observer:
    """Reads the files of an installation from outside, and changes nothing."""

    def __init__(self, folder: Path, psp: FakePsp) -> None:
        self._folder = folder
        self._psp = psp
        self._db = connect(folder / "cards.db", busy_timeout_seconds=0)

    def close(self) -> None:
        """Close what is open."""
        self._db.close()

    def read(self) -> Books:
        """Read everything."""
        pages = pages_at(self._psp)
        db = self._db
        db.execute("BEGIN")
        try:
            return Books(
                sessions={row["token_id"]: _session(row) for row in db.query(_SESSIONS)},
                accounts={
                    row["account_id"]: _account(row)
                    for row in db.query("SELECT * FROM payment_accounts ORDER BY sequence")
                },
                discards=[_discard(row) for row in db.query("SELECT * FROM discards")],
                guests=_ids(db, "SELECT id FROM guests"),
                centers=_ids(db, "SELECT id FROM centers"),
                configurations=_ids(db, "SELECT center_id FROM payment_configurations"),
                pages=pages,
                tokens=frozenset(tokens_at(self._psp, pages)),
            )
        finally:
            db.rollback()

    def bytes_at_rest(self) -> Mapping[str, bytes]:
        """Give the content of every file."""
        return {each.name: each.read_bytes() for each in sorted(self._folder.iterdir())}


def _ids(db: Database, query: str) -> frozenset[str]:
    return frozenset(str(value) for (value,) in db.execute(query).fetchall())


# A row of the database: what is in it is checked by the types of the records.
def _session(row: dict[str, object]) -> SessionOnFile:
    times = {name: _time(row[name]) for name in ("created_at", "expires_at", "due_at", "ended_at")}
    return SessionOnFile(**row | times | {"avs": bool(row["avs"])})  # type: ignore[arg-type]


def _account(row: dict[str, object]) -> AccountOnFile:
    names = AccountOnFile.__dataclass_fields__
    kept = {name: value for name, value in row.items() if name in names}
    times = {name: _time(row[name]) for name in ("consented_at", "removed_at")}
    expiry = {"expiry": (row["expiry_month"], row["expiry_year"])}
    return AccountOnFile(**kept | times | expiry)  # type: ignore[arg-type]


def _discard(row: dict[str, object]) -> DiscardOnFile:
    return DiscardOnFile(
        merchant_account=str(row["merchant_account"]),
        token=str(row["token"]),
        due_at=_time(row["due_at"]),
        done_at=_time(row["done_at"]),
    )


def _time(text: object) -> datetime | None:
    return None if text is None else datetime.fromisoformat(str(text))
