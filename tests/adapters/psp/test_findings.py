from __future__ import annotations

from datetime import UTC, datetime

import pytest

from adapters.psp.findings import Diagnosis, compare_clocks

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("date", "diagnosis"),
    [
        ("Fri, 20 Nov 2026 12:01:00 GMT", Diagnosis.OK),
        ("Fri, 20 Nov 2026 11:58:59 GMT", Diagnosis.PROBLEM),
        ("Fri, 20 Nov 2026 12:00:00 -0000", Diagnosis.UNKNOWN),
        ("yesterday", Diagnosis.UNKNOWN),
        ("", Diagnosis.UNKNOWN),
        (None, Diagnosis.UNKNOWN),
    ],
)
def test_a_clock_difference_of_at_most_one_minute_is_accepted(
    date: str | None, diagnosis: Diagnosis
) -> None:
    assert compare_clocks(date, NOW, of="the PSP").diagnosis is diagnosis
