from __future__ import annotations

from datetime import UTC, datetime

import pytest

from adapters.psp.findings import Verdict, compare_clocks

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("date", "verdict"),
    [
        ("Fri, 20 Nov 2026 12:01:00 GMT", Verdict.OK),
        ("Fri, 20 Nov 2026 11:58:59 GMT", Verdict.PROBLEM),
        ("Fri, 20 Nov 2026 12:00:00 -0000", Verdict.UNKNOWN),
        ("yesterday", Verdict.UNKNOWN),
        ("", Verdict.UNKNOWN),
        (None, Verdict.UNKNOWN),
    ],
)
def test_a_clock_is_right_within_a_minute_of_another(date: str | None, verdict: Verdict) -> None:
    assert compare_clocks(date, NOW, of="the PSP").verdict is verdict
