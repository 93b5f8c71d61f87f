"""Counts the output of `mutmut results --all true`. This is the last step of `make mutants`.

It prints how many mutants of each package of `domain/` were killed, and which survived.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Final

import click

# In the name of a mutant, this character separates `x`, the class and its method.
_SEPARATOR: Final = "\u01c1"


def function_of(mutant: str) -> str:
    """Return the file and the function of a mutant, such as `domain.billing.x__text__mutmut_1`."""
    module, _, mangled = mutant.rpartition(".")
    name = mangled.rpartition("__mutmut_")[0].removeprefix("x")
    return f"{module.replace('.', '/')}.py: {name[1:].replace(_SEPARATOR, '.')}"


def main() -> None:
    """Read the results from standard input, and print the counts."""
    results = [line.strip().rpartition(": ") for line in sys.stdin if line.strip()]
    statuses = Counter(status for _, _, status in results)
    left = Counter(function_of(mutant) for mutant, _, status in results if status != "killed")
    for place, count in sorted(left.items()):
        click.echo(f"{place}: {count} left")
    for status, count in statuses.most_common():
        click.echo(f"{status}: {count}")
    click.echo(f"killed: {100 * statuses['killed'] / max(statuses.total(), 1):.1f}%")


if __name__ == "__main__":
    main()
