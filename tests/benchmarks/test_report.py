"""The page is what the report writes from the results."""

from __future__ import annotations

from tests.benchmarks import report


def test_the_page_is_what_the_report_makes_of_the_figures() -> None:
    assert report.PAGE.read_text() == report.page()
