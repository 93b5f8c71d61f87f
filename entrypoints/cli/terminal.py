"""Tables that commands print."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime

import click

from domain.identifiers import CenterId


def listed(centers: Collection[CenterId] | None) -> str:
    """Return the cell of the centers that something is limited to, or of all."""
    return "all" if centers is None else ",".join(sorted(centers))


def shown(time: datetime) -> str:
    """Return the cell of a time, in UTC."""
    return f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def echo_table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    """Print rows under a header, in columns that are as wide as their widest cell."""
    lines = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(cells).rstrip())
