"""How many log lines refused requests can cause."""

from __future__ import annotations

from structlog.testing import capture_logs

from adapters.http.refusal_log import RefusalLog


def test_equal_log_lines_about_refusals_can_be_limited_to_one_a_minute() -> None:
    seconds = [0.0]
    refusals = RefusalLog(10, lambda: seconds[0])
    with capture_logs() as lines:
        for seconds[0] in (0.0, 59.9, 60.0, 119.9):
            refusals.warning("refused", {"token": "a"}, kind="expired", once=True)
            refusals.warning("refused", {"token": "a"}, kind="revoked", once=True)
            refusals.warning("refused", {"token": "b"}, kind="expired", once=True)
            refusals.warning("rejected", {}, kind="expired")

    assert len(lines) == 2 * 3 + 4


def test_a_flood_of_refusals_of_one_kind_does_not_hide_refusals_of_other_kinds() -> None:
    seconds = [0.0]
    refusals = RefusalLog(1_000, lambda: seconds[0])
    with capture_logs() as lines:
        for _ in range(2):
            for number in range(3_000):
                refusals.warning("refused", {"token": str(number)}, kind="unknown", once=True)
        assert len(lines) == 1_000
        refusals.warning("refused", {"token": "a"}, kind="revoked", once=True)
        assert len(lines) == 1_001
        seconds[0] = 60.0
        refusals.warning("refused", {"token": "2999"}, kind="unknown", once=True)

    assert len(lines) == 1_002
    assert len(refusals._said) == 1
