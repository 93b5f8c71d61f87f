from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

from adapters.psp.contract.samples import NOW
from adapters.sqlite.rows import Rows, time_text


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
    amount=Decimal("-0.00"),
    at=NOW,
    until=NOW,
    part=Part(at=NOW, amount=Decimal("2.50")),
    names=("a", 'b"', "ü"),
)


def test_a_record_comes_back_from_its_row() -> None:
    for record in (BARE, FULL):
        row = ROWS.row(record)
        assert tuple(row) == ROWS.columns
        assert ROWS.record(list(row.values())) == record


def test_a_flag_that_the_database_kept_as_a_number_is_a_flag_again() -> None:
    row = ROWS.row(FULL) | {"flag": 1}
    assert ROWS.record(list(row.values())).flag is True


def test_nested_values_and_nothing_else_are_documents() -> None:
    row = ROWS.row(FULL)
    assert row["names"] == '["a","b\\"","ü"]'
    assert row["part"] == '{"at":"2026-03-04T05:06:07.800009Z","amount":"2.50"}'
    assert row["amount"] == "-0.00"
    assert ROWS.row(BARE)["part"] is None


def test_times_as_text_are_in_the_order_of_time() -> None:
    base = datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC)
    east = timezone(timedelta(hours=9))
    times = [
        base,
        base + timedelta(microseconds=1),
        (base + timedelta(microseconds=10)).astimezone(east),
        base + timedelta(milliseconds=500),
        (base + timedelta(seconds=1)).astimezone(east),
    ]
    texts = [time_text(time) for time in times]
    assert texts == sorted(texts)
    assert {len(text) for text in texts} == {32}
