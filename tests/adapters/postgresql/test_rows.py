from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from adapters.postgresql.rows import Rows
from adapters.postgresql.storage import PostgresqlStorage
from adapters.psp.contract.samples import GUEST_ID, NOW, TOKEN_ID
from domain.billing import BillingInfo
from domain.hosted_pages import EvidenceOrigin
from domain.pagination import PageRequest
from domain.ports import WriteUnit
from tests.adapters.postgresql.by_hand import statements_of
from tests.builders import (
    CENTER_ID,
    a_center,
    a_guest,
    a_payment_account,
    a_product,
    a_session,
    an_evidence,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A record within a record."""

    at: datetime
    amount: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A record with a field of each kind."""

    id: str
    flag: bool
    count: int | None
    amount: Decimal
    at: datetime
    until: datetime | None = None
    part: Part | None = None
    names: tuple[str, ...] = ()


ROWS = Rows("wholes", Whole, key=("id",))
BARE = Whole(id="null", flag=False, count=None, amount=Decimal("1.10"), at=NOW)
FULL = Whole(
    id="",
    flag=True,
    count=7,
    amount=Decimal("0.10"),
    at=NOW,
    until=NOW,
    part=Part(at=NOW, amount=Decimal("2.50")),
    names=("a", 'b"', "ü", "\\", "%s", "\U0001f600"),
)
AWKWARD = [
    "\U0001f600 Zo\u00eb \u200dZe\u0301",
    "O'Neill; DROP TABLE guests; --",
    '"quoted" and \\backslashed\\ \\N \\.',
    "100 % %s %(id)s %% $1 {0}",
    "null",
    " \t leading\tand trailing \r\n",
    "x" * 1_000_000,
    "",
]


@pytest.fixture
def unit(storage: PostgresqlStorage) -> Iterator[WriteUnit]:
    """Give a unit with a table for records of each kind."""
    with storage.write() as unit:
        statements_of(unit).execute(
            "CREATE TABLE wholes (id text PRIMARY KEY, flag boolean NOT NULL, count bigint, "
            "amount numeric NOT NULL, at timestamptz NOT NULL, until timestamptz, part jsonb, "
            "names jsonb NOT NULL)"
        )
        yield unit


@pytest.mark.parametrize("record", [BARE, FULL], ids=["bare", "full"])
def test_a_record_comes_back_from_its_row(unit: WriteUnit, record: Whole) -> None:
    transaction = statements_of(unit)
    transaction.execute(ROWS.insert, ROWS.row(record))
    (found,) = ROWS.find(transaction, "", {})
    assert found == record
    assert str(found.amount) == str(record.amount)
    transaction.execute(ROWS.insert + ROWS.or_replace, ROWS.row(record))
    transaction.execute(ROWS.update, ROWS.row(record))
    assert ROWS.find_one(transaction, "WHERE id = %(id)s", {"id": record.id}) == record


def test_nothing_is_a_null_and_not_the_word(unit: WriteUnit) -> None:
    transaction = statements_of(unit)
    transaction.execute(ROWS.insert, ROWS.row(BARE))
    assert transaction.one("SELECT part IS NULL, until IS NULL, names::text FROM wholes") == (
        True,
        True,
        "[]",
    )


@pytest.mark.parametrize("amount", ["0.10", "-0.00", "0", "12345678901234567890.123456789", "1E+5"])
def test_an_amount_is_exact(unit: WriteUnit, amount: str) -> None:
    transaction = statements_of(unit)
    transaction.execute(ROWS.insert, ROWS.row(BARE) | {"amount": Decimal(amount)})
    (found,) = ROWS.find(transaction, "", {})
    assert found.amount == Decimal(amount)
    if "E" not in amount:
        assert str(found.amount).lstrip("-") == amount.lstrip("-")


def test_times_keep_their_microseconds_and_come_back_in_utc(unit: WriteUnit) -> None:
    east = timezone(timedelta(hours=9, minutes=30))
    transaction = statements_of(unit)
    for number, time in enumerate(
        [NOW, NOW.astimezone(east), datetime(2026, 12, 31, 23, 59, 59, 999_999, tzinfo=east)]
    ):
        row = ROWS.row(BARE) | {"id": str(number), "at": time}
        transaction.execute(ROWS.insert, row)
        found = ROWS.find_one(transaction, "WHERE id = %(id)s", {"id": str(number)})
        assert found is not None
        assert found.at == time
        assert found.at.utcoffset() == timedelta(0)
        assert found.at.isoformat() == time.astimezone(UTC).isoformat()


@pytest.mark.parametrize("text", AWKWARD, ids=range(len(AWKWARD)))
def test_awkward_text_comes_back_as_it_was(storage: PostgresqlStorage, text: str) -> None:
    guest = a_guest(first_name=text, last_name=text, email=text)
    session = a_session(redirect_uri=text, billing_info=BillingInfo(last_name=text, city=text))
    evidence = an_evidence(content=text, origin=EvidenceOrigin.RETURN)
    product = a_product(code=text, name=text, description=text)
    # No index takes a value of more than some 2,700 bytes.
    account = a_payment_account(guest_reference=text, consent_version=text, token=text[:100])
    with storage.write() as unit:
        unit.guests.put_many([guest])
        unit.centers.put_many([a_center(name=text)])
        unit.products.put_many([product])
        unit.sessions.add(session)
        unit.evidence.add(TOKEN_ID, evidence)
        unit.accounts.add(account)
        unit.commit()
    with storage.read() as reading:
        assert reading.guests.get(GUEST_ID) == guest
        assert reading.centers.get(CENTER_ID) == a_center(name=text)
        assert reading.products.page(CENTER_ID, PageRequest()).items == (product,)
        assert reading.sessions.get(TOKEN_ID) == session
        assert list(reading.evidence.of(TOKEN_ID)) == [evidence]
        assert reading.accounts.get(account.account_id) == account
