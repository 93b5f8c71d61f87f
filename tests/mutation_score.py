"""Judges the output of `mutmut results --all true`; the last step of `make mutants`.

It fails when fewer than 90% of the mutants are killed, and when the table in docs/mutants.md does
not list exactly those that are left.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import click

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "mutants.md"
LEAST_PERCENT: Final = 90

# mutmut separates `x`, a class and its method in the name of a mutant by this character.
_SEPARATOR: Final = "\u01c1"
_ROW: Final = re.compile(r"^\| `(domain/\w+\.py)` \| `([\w.]+)` \| (\d+) \|", re.MULTILINE)


def function_of(mutant: str) -> tuple[str, str]:
    """Return the file and the function of a mutant, such as `domain.billing.x__text__mutmut_1`."""
    module, _, mangled = mutant.rpartition(".")
    name = mangled.rpartition("__mutmut_")[0].removeprefix("x")
    function = name[1:].replace(_SEPARATOR, ".")
    return f"{module.replace('.', '/')}.py", function


def main() -> None:
    """Read the results from standard input, print the verdict, and exit with it."""
    results = [line.strip().rpartition(": ") for line in sys.stdin]
    statuses = Counter(status for _, _, status in results)
    left = Counter(function_of(mutant) for mutant, _, status in results if status != "killed")
    listed = {
        (file, function): int(count) for file, function, count in _ROW.findall(PAGE.read_text())
    }
    for place in sorted(left | listed):
        if left[place] != listed.get(place, 0):
            click.echo(
                f"{': '.join(place)}: {left[place]} left, {listed.get(place, 0)} in docs/mutants.md"
            )
    percent = 100 * statuses["killed"] / max(statuses.total(), 1)
    for status, count in statuses.most_common():
        click.echo(f"{status}: {count}")
    click.echo(f"killed: {percent:.1f}% (at least {LEAST_PERCENT}%)")
    sys.exit(left != listed or percent < LEAST_PERCENT)


if __name__ == "__main__":
    main()
