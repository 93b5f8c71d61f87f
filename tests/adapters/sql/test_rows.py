from __future__ import annotations

from adapters.psp.contract.samples import NOW
from tests.adapters.sql.wholes import BARE, FULL, ROWS


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
    assert isinstance(row["names"], str)
    assert row["names"].startswith('["a","b\\"","ü"')
    assert row["part"] == '{"at":"2026-03-04T05:06:07.800009Z","amount":"2.50"}'
    assert row["amount"] == "0.10"
    assert row["until"] == NOW
    assert ROWS.row(BARE)["part"] is None
