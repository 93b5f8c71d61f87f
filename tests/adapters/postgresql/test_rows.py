from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from adapters.postgresql.storage import PostgresqlStorage
from adapters.psp.contract.samples import NOW
from domain.ports import WriteUnit
from tests.adapters.postgresql.by_hand import statements_of
from tests.adapters.sql.wholes import BARE, FULL, ROWS, Whole


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
    assert ROWS.find_one(transaction, "WHERE id = :id", {"id": record.id}) == record


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
        found = ROWS.find_one(transaction, "WHERE id = :id", {"id": str(number)})
        assert found is not None
        assert found.at == time
        assert found.at.utcoffset() == timedelta(0)
        assert found.at.isoformat() == time.astimezone(UTC).isoformat()
