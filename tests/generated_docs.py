"""Writes the parts of the docs that repeat the code: `python -m tests.generated_docs`."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
TESTS_OF_PROMISES: Final = ROOT / "docs" / "tests-of-promises.md"

_SHOWS: Final = re.compile(r"\s*# Shows ([IFS]\d+(?:, [IFS]\d+)*)\.")


def pages() -> Mapping[Path, str]:
    """Return the text that each page should have."""
    return {TESTS_OF_PROMISES: _tests_of_promises()}


def tests_by_promise() -> Mapping[str, Sequence[str]]:
    """Return the tests of each promise: those with the comment `# Shows F3.` above them."""
    found = defaultdict(list)
    for folder in ("adapters", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for promise, test in _shown(path.read_text()):
                found[promise].append(f"{path.relative_to(ROOT)}::{test}")
    return found


def _shown(source: str) -> Iterator[tuple[str, str]]:
    if "# Shows " not in source:
        return
    lines = source.splitlines()
    body = ast.parse(source).body
    of_classes = [(f"{own.name}::", own.body) for own in body if isinstance(own, ast.ClassDef)]
    for prefix, statements in (("", body), *of_classes):
        for test in statements:
            if isinstance(test, ast.FunctionDef):
                first = min([test.lineno, *(each.lineno for each in test.decorator_list)])
                if shows := _SHOWS.fullmatch(lines[first - 2]):
                    for promise in shows[1].split(", "):
                        yield promise, prefix + test.name


def _tests_of_promises() -> str:
    found = tests_by_promise()
    rows = [
        f"| {promise} | {'<br>'.join(f'`{test}`' for test in found[promise])} |\n"
        for kind in "IFS"
        for promise in sorted(found, key=lambda promise: int(promise[1:]))
        if promise[0] == kind
    ]
    return (
        "# Tests of each promise\n\n"
        "The tests of each promise in [reliability](reliability.md). A test names its promises in a comment,\n"
        "`# Shows F3.`, and `python -m tests.generated_docs` writes this page.\n\n"
        f"| Promise | Tests |\n|---|---|\n{''.join(rows)}"
    )


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text)
