"""docs/support.md: each question has a command, and what is shown is what the command prints."""

from __future__ import annotations

import re

from tests import support_page


def test_each_command_prints_what_the_page_shows() -> None:
    page = support_page.PAGE.read_text()

    assert support_page.with_real_outputs() == page, "python -m tests.support_page"


def test_each_question_has_one_command_that_is_run() -> None:
    _, *questions = re.split(r"^## \d+\. .*\?$", support_page.PAGE.read_text(), flags=re.MULTILINE)

    assert len(questions) == 16
    assert [len(support_page.EXAMPLE.findall(each)) for each in questions] == [1] * 16
