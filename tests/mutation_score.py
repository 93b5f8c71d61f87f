"""How many mutants of the domain the tests notice, from what `mutmut results --all true` prints.

`make mutants` ends with it. It fails when too few are noticed, and when docs/mutants.md, which says
why the others are left, does not list exactly those.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeAlias

import click

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "mutants.md"
LEAST_PERCENT: Final = 90

# What mutmut puts between `x`, a class and its method in the name of a mutant.
_SEPARATOR: Final = "\u01c1"

Places: TypeAlias = Counter[tuple[str, str]]
"""How many mutants survive in each function of each file."""


def judge(results: Iterable[str], page: str) -> tuple[list[str], bool]:
    """Give what there is to say of the results, and whether all is well."""
    statuses: Counter[str] = Counter()
    left: Places = Counter()
    for line in results:
        mutant, _, status = line.strip().rpartition(": ")
        statuses[status] += 1
        if status != "killed":
            left[place_of(mutant)] += 1
    listed = places_on(page)
    said = [
        f"{file}: {function}: {left[file, function]} left, {listed[file, function]} on the page"
        for file, function in sorted(left | listed)
        if left[file, function] != listed[file, function]
    ]
    if said:
        said.insert(0, "docs/mutants.md does not list what is left:")
    said += [f"{status}: {count}" for status, count in statuses.most_common()]
    killed, total = statuses["killed"], statuses.total()
    said.append(
        f"{killed} of {total} mutants are killed: {100 * killed / max(total, 1):.1f}%"
        f" (at least {LEAST_PERCENT}%)"
    )
    return said, left == listed and 100 * killed >= LEAST_PERCENT * max(total, 1)


def place_of(mutant: str) -> tuple[str, str]:
    """Give the file and the function that a mutant is of, from its name."""
    module, _, mangled = mutant.rpartition(".")
    name = mangled.rpartition("__mutmut_")[0].removeprefix("x")
    if name.startswith(_SEPARATOR):
        function = name.removeprefix(_SEPARATOR).replace(_SEPARATOR, ".")
    else:
        function = name.removeprefix("_")
    return f"{module.replace('.', '/')}.py", function


def places_on(page: str) -> Places:
    """Give what the table of a page lists: file, function, how many."""
    places: Places = Counter()
    for line in page.splitlines():
        cells = [cell.strip().replace("`", "") for cell in line.strip("|").split("|")]
        if len(cells) > 2 and cells[0].startswith("domain/") and cells[2].isdecimal():
            places[cells[0], cells[1]] += int(cells[2])
    return places


if __name__ == "__main__":
    what, is_well = judge(sys.stdin, PAGE.read_text())
    click.echo("\n".join(what))
    sys.exit(not is_well)
