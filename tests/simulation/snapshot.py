"""Reads everything that is stored at one moment with plain SQL, and the pages of the PSP."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from adapters.fake_psp.psp import FakePsp, PspPage
from adapters.sqlite.connection import connect
from domain.audit.entry import GUEST
from domain.identifiers import CardToken, MerchantAccount
from tests.simulation.endpoints import Arrival, Endpoints
from tests.simulation.psp import pages_at, token_of, tokens_at
from tests.told_events import Told

Token = tuple[MerchantAccount, CardToken]
"""A token, with the merchant account where it is valid."""

Row = TypeVar("Row")


class SessionRow(Struct, frozen=True, kw_only=True):
    """A stored session.

    - `attempt`: the number of its current attempt, or 0 before the first attempt.
    - `bookings`: the number of agreements that the guest is asked to accept.
    - `replaces`: the account whose card the card of this session replaces, or None.
    - `former`: the agreements that the new agreements of this session replace.
    """

    token_id: str
    guest_id: str
    center_id: str
    caller: str
    redirect_uri: str
    status: str
    progress: str
    created_at: datetime
    expires_at: datetime
    due_at: datetime | None
    ended_at: datetime | None
    cancelled_at: datetime | None
    account_id: str | None
    failure: str | None
    merchant_account: str
    avs: bool
    cards_per_guest: str
    refuse_funding: str | None
    not_accepted: str | None
    attempt: int
    has_agreement: bool
    bookings: int
    replaces: str | None
    former: Sequence[str]
    agreement_ends_at: datetime | None
    clicks: int

    @property
    def is_settled(self) -> bool:
        """Return whether the session is final."""
        return self.status in ("completed", "failed")

    @property
    def used_card_on_file(self) -> bool:
        """Return whether the guest used a card on file, so that the PSP did not create a page."""
        return self.status == "completed" and self.attempt == 0


class AccountRow(Struct, frozen=True, kw_only=True):
    """A stored payment account."""

    sequence: int
    account_id: str
    token_id: str
    guest_id: str
    center_id: str
    merchant_account: MerchantAccount
    token: CardToken
    fingerprint: str
    last_four: str
    expiry_month: int
    expiry_year: int
    consented_at: datetime
    due_at: datetime | None
    removed_at: datetime | None
    is_default: bool
    keep_until: datetime | None
    withdrawn_at: datetime | None

    @property
    def is_taken_back(self) -> bool:
        """Return whether the guest withdrew the consent, and the card is kept for bookings only."""
        return self.withdrawn_at is not None and self.keep_until is not None

    @property
    def is_active(self) -> bool:
        return self.removed_at is None

    def is_same_card(self, other: AccountRow) -> bool:
        """Return whether the other account has the same card, guest and center."""
        one, two = (
            (each.guest_id, each.center_id, each.merchant_account, each.fingerprint)
            for each in (self, other)
        )
        return one == two

    @property
    def token_at_psp(self) -> Token:
        return self.merchant_account, self.token


class ConsentRow(Struct, frozen=True, kw_only=True):
    """The consent of a guest on the page of a session. It is kept with an account."""

    account_id: str
    token_id: str
    language: str
    text: str
    agreed_at: datetime


class AgreementRow(Struct, frozen=True, kw_only=True):
    """The agreement of a guest for a booking."""

    agreement_id: str
    account_id: str
    guest_id: str
    token_id: str
    text: str
    ends_at: datetime
    kept_until: datetime
    ended_at: datetime | None
    reason: str | None

    @property
    def keeps_card_until(self) -> datetime:
        """Return the time until which the agreement keeps the card."""
        if self.ended_at is None:
            return self.kept_until
        return min(self.kept_until, self.ended_at + (self.kept_until - self.ends_at))


class DiscardRow(Struct, frozen=True, kw_only=True):
    """A token that is due to be discarded, or that was discarded."""

    merchant_account: MerchantAccount
    token: CardToken
    due_at: datetime | None
    done_at: datetime | None


class ErasureRow(Struct, frozen=True, kw_only=True):
    """The erasure of a guest, or the merge of a guest into the guest `merged_into`."""

    guest_id: str
    due_at: datetime | None
    done_at: datetime | None
    merged_into: str | None


class AuditRow(Struct, frozen=True, kw_only=True):
    """An entry of the audit trail."""

    actor: str
    action: str
    about: str


class EndpointRow(Struct, frozen=True, kw_only=True):
    """A stored event endpoint. It receives events of all centers if `centers` is None."""

    endpoint_id: str
    url: str
    types: Sequence[str]
    centers: Sequence[str] | None
    disabled_at: datetime | None
    removed_at: datetime | None

    @property
    def is_active(self) -> bool:
        return self.disabled_at is None and self.removed_at is None

    def takes(self, told: Told) -> bool:
        """Return whether the endpoint subscribes to events of this type at this center."""
        return told.type in self.types and (self.centers is None or told.center_id in self.centers)


class DeliveryRow(Struct, frozen=True, kw_only=True):
    """A stored delivery of an event to an endpoint."""

    event_id: str
    endpoint_id: str
    told: Told
    reason: str | None
    by: str | None
    agreement_id: str | None
    due_at: datetime | None
    attempts: int
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything that is stored here, at the PSP and at the endpoints at one moment.

    - `consents`: the consents of accounts, by session.
    - `evidence`: the session and the origin of each piece of evidence.
    - `refused_cards`: the numbers of the refused cards of each session and attempt.
    - `deliveries`: the deliveries to each endpoint, by event.
    - `numbered`: the events that have a number in the list of events, in the order of the list.
    - `unnumbered`: the events that do not have a number yet.
    - `audit`: the entries of the audit trail.
    - `arrivals`: the events that endpoints have accepted.
    """

    sessions: Mapping[str, SessionRow]
    accounts: Mapping[str, AccountRow]
    consents: Mapping[str, ConsentRow]
    agreements: Sequence[AgreementRow]
    discards: Sequence[DiscardRow]
    erasures: Mapping[str, ErasureRow]
    evidence: frozenset[tuple[str, str]]
    refused_cards: Mapping[tuple[str, int], frozenset[int]]
    guests: frozenset[str]
    centers: frozenset[str]
    configurations: frozenset[str]
    endpoints: Mapping[str, EndpointRow]
    deliveries: Mapping[str, Mapping[str, DeliveryRow]]
    numbered: Sequence[str]
    unnumbered: frozenset[str]
    audit: Sequence[AuditRow]
    pages: Sequence[PspPage]
    tokens: frozenset[Token]
    arrivals: Sequence[Arrival]

    @property
    def next_due(self) -> datetime | None:
        """Return when the next work of the reconciler is due, or None if no work is left."""
        times = [each.due_at for each in self.sessions.values()]
        times += [each.due_at for each in self.discards]
        times += [each.due_at for each in self.erasures.values()]
        times += [each.due_at for each in self.all_deliveries]
        return min(filter(None, times), default=None)

    @property
    def next_reading(self) -> datetime | None:
        """Return when the next refresh of a card on file is due, or None if no card is on file."""
        return min(filter(None, (each.due_at for each in self.accounts.values())), default=None)

    @property
    def all_deliveries(self) -> Sequence[DeliveryRow]:
        """The deliveries to all endpoints."""
        return [each for by_event in self.deliveries.values() for each in by_event.values()]

    @property
    def held(self) -> frozenset[Token]:
        """The tokens of active accounts."""
        return frozenset(each.token_at_psp for each in self.accounts.values() if each.is_active)

    @property
    def taken_back(self) -> Counter[tuple[str, str]]:
        """How often guests removed each card or withdrew its consent, by the audit trail."""
        return Counter((each.action, each.about) for each in self.audit if each.actor == GUEST)

    def is_erased(self, guest_id: str) -> bool:
        """Return whether a guest was erased or merged."""
        return guest_id in self.erasures

    def heir_of(self, guest_id: str | None) -> str | None:
        """Return the guest that this guest was merged into, or the same guest without a merge."""
        erasure = self.erasures.get(guest_id or "")
        return (erasure.merged_into if erasure else None) or guest_id

    @property
    def merged(self) -> frozenset[str]:
        """The guests who were merged into others."""
        return frozenset(key for key, each in self.erasures.items() if each.merged_into)

    @property
    def heirs(self) -> frozenset[str | None]:
        """The guests into whom others were merged, and None."""
        return frozenset(each.merged_into for each in self.erasures.values())

    def of_guest(self, guest_id: str) -> Sequence[SessionRow]:
        """Return the sessions of a guest."""
        return [each for each in self.sessions.values() if each.guest_id == guest_id]

    def pages_with_card(self, token_id: str) -> Sequence[PspPage]:
        """Return the pages of a session that collected a card."""
        return [
            page
            for page in self.pages
            if page.request.token_id == token_id and page.collected_at and page.card
        ]

    def pages_of_card(self, account: AccountRow) -> Sequence[PspPage]:
        """Return the pages that collected the card of an account."""
        return [
            page
            for page in self.pages
            if page.collected_at and page.card and _token(page) == account.token_at_psp
        ]


def _token(page: PspPage) -> Token | None:
    account = page.request.merchant_account
    return (account, token_of(account, page.card)) if page.card else None


_SESSIONS: Final = """
    SELECT token_id, guest_id, center_id, caller, redirect_uri, status, progress, created_at,
        expires_at, due_at, ended_at, cancelled_at, account_id, not_accepted, json_extract(failure, '$.message') AS failure,
        json_extract(configuration, '$.merchant_account') AS merchant_account,
        json_extract(configuration, '$.avs') AS avs,
        json_extract(configuration, '$.cards_per_guest') AS cards_per_guest,
        nullif(json_extract(configuration, '$.refuse_funding'), '[]') AS refuse_funding,
        agreement IS NOT NULL AS has_agreement,
        (agreement IS NOT NULL) + coalesce(json_array_length(replaces, '$.further'), 0) AS bookings,
        json_extract(replaces, '$.account_id') AS replaces,
        (
            SELECT json_group_array(former) FROM (
                SELECT json_extract(agreement, '$.replaces') AS former
                UNION ALL SELECT json_extract(value, '$.replaces') FROM json_each(replaces, '$.further')
            ) WHERE former IS NOT NULL
        ) AS former,
        json_extract(agreement, '$.ends_at') AS agreement_ends_at, coalesce(json_array_length(clicks), 0) AS clicks,
        coalesce(json_extract(attempt, '$.request.attempt'), 0) AS attempt
    FROM card_sessions ORDER BY rowid
"""


_CONSENTS: Final = """
    SELECT consents.account_id, token_id, language, text, agreed_at
    FROM consents JOIN consent_texts USING (text_id) LEFT JOIN card_sessions USING (token_id)
    -- If a session has several consents, the last row is used: that of its own account.
    ORDER BY consents.account_id = card_sessions.account_id
"""

_AGREEMENTS: Final = """
    SELECT agreement_id, account_id, guest_id, token_id, json_extract(shown, '$.text') AS text,
        json_extract(terms, '$.ends_at') AS ends_at, kept_until, ended_at, reason
    FROM agreements ORDER BY rowid
"""

_ENDPOINTS: Final = """
    SELECT endpoint_id, url, types, centers, disabled_at, removed_at FROM event_endpoints
"""

_DELIVERIES: Final = """
    SELECT event_id, endpoint_id, event AS told, json_extract(event, '$.reason') AS reason,
        json_extract(event, '$.by') AS by, json_extract(event, '$.agreement_id') AS agreement_id, due_at, attempts, status
    FROM event_deliveries ORDER BY rowid
"""

_NUMBERED: Final = "SELECT event_id FROM events WHERE number IS NOT NULL ORDER BY number"

_PSP_TABLES: Final = ("guests", "pages", "cards", "lost_cards", "events")

_AUDIT: Final = "SELECT actor, action, about FROM audit_entries ORDER BY rowid"


class Observer:
    """Reads the files of an installation and the events at endpoints without changing anything."""

    def __init__(self, folder: Path, psp: FakePsp, endpoints: Endpoints) -> None:
        self._folder = folder
        self._psp = psp
        self._endpoints = endpoints
        self._db = connect(folder / "cards.db", busy_timeout_seconds=0)
        self._tables = self._db.table_names()

    def close(self) -> None:
        self._db.close()

    def read(self) -> Snapshot:
        """Read everything, in one transaction."""
        pages = pages_at(self._psp)
        self._db.execute("BEGIN")
        try:
            sessions = self._rows(_SESSIONS, SessionRow, documents=("former",))
            accounts = self._rows("SELECT * FROM payment_accounts ORDER BY sequence", AccountRow)
            return Snapshot(
                sessions={each.token_id: each for each in sessions},
                accounts={each.account_id: each for each in accounts},
                consents={each.token_id: each for each in self._rows(_CONSENTS, ConsentRow)},
                agreements=self._rows(_AGREEMENTS, AgreementRow),
                discards=self._rows("SELECT * FROM discards", DiscardRow),
                erasures={
                    each.guest_id: each for each in self._rows("SELECT * FROM erasures", ErasureRow)
                },
                evidence=self._pairs("SELECT token_id, origin FROM evidence"),
                refused_cards=self._refused_cards(),
                guests=self._ids("SELECT id FROM guests"),
                centers=self._ids("SELECT id FROM centers"),
                configurations=self._ids("SELECT center_id FROM payment_configurations"),
                endpoints={
                    each.endpoint_id: each
                    for each in self._rows(_ENDPOINTS, EndpointRow, documents=("types", "centers"))
                },
                deliveries=self._deliveries(),
                numbered=[row["event_id"] for row in self._db.query(_NUMBERED)],
                unnumbered=self._ids("SELECT event_id FROM events WHERE number IS NULL"),
                audit=self._rows(_AUDIT, AuditRow),
                arrivals=tuple(self._endpoints.arrivals),
                pages=pages,
                tokens=frozenset(tokens_at(self._psp, pages)),
            )
        finally:
            self._db.rollback()

    def files(self) -> Mapping[str, bytes]:
        """Return the content of every file by its name."""
        return {each.name: each.read_bytes() for each in sorted(self._folder.iterdir())}

    def everything(self) -> str:
        """Return all rows of both databases, the erasures file, and the events at the endpoints.

        One database is that of the service. The other belongs to the PSP.
        """
        here = [self._db.execute(f"SELECT * FROM {table}").fetchall() for table in self._tables]
        at_psp = [self._psp._database.read(f"SELECT * FROM {table}", ()) for table in _PSP_TABLES]
        erasures = [each.read_bytes() for each in self._folder.glob("erasures.txt")]
        return repr((here, at_psp, erasures, self._endpoints.arrivals))

    def _rows(self, query: str, kind: type[Row], *, documents: Sequence[str] = ()) -> list[Row]:
        found = self._db.conn.execute(query)
        names = [column[0] for column in found.description]
        rows: list[dict[str, Any]] = [dict(zip(names, row, strict=True)) for row in found]
        for row in rows:
            row.update((name, msgspec.json.decode(row[name])) for name in documents if row[name])
        # The conversion is not strict, because SQLite has no booleans and stores times as text.
        return msgspec.convert(rows, list[kind], strict=False)  # type: ignore[valid-type]  # known at run time

    def _deliveries(self) -> Mapping[str, Mapping[str, DeliveryRow]]:
        found: dict[str, dict[str, DeliveryRow]] = {}
        for each in self._rows(_DELIVERIES, DeliveryRow, documents=("told",)):
            found.setdefault(each.endpoint_id, {})[each.event_id] = each
        return found

    def _pairs(self, query: str) -> frozenset[tuple[str, str]]:
        return frozenset((str(one), str(two)) for one, two in self._db.execute(query).fetchall())

    def _refused_cards(self) -> Mapping[tuple[str, int], frozenset[int]]:
        numbers = defaultdict(set)
        query = "SELECT token_id, attempt, number FROM refused_cards"
        for token_id, attempt, number in self._db.execute(query).fetchall():
            numbers[str(token_id), int(attempt)].add(int(number))
        return {of: frozenset(each) for of, each in numbers.items()}

    def _ids(self, query: str) -> frozenset[str]:
        return frozenset(str(value) for (value,) in self._db.execute(query).fetchall())
