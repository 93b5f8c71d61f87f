"""Parts that the commands share: options, durations, tables and JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

import click
import msgspec

from domain.identifiers import CenterId
from domain.pagination import ALL

Decorator: TypeAlias = Callable[[Callable[..., None]], Callable[..., None]]


_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def duration(value: str) -> timedelta:
    """Parse a time such as 90s, 90m, 24h or 30d. Raises click.BadParameter."""
    match = re.fullmatch(r"([0-9]{1,9})([smhd])", value)
    if match is None:
        raise click.BadParameter("it must look like 90m, 24h or 30d")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


json_option: Final[Decorator] = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON instead of a table."
)
limit_option: Final[Decorator] = click.option(
    "--limit",
    type=click.IntRange(1, ALL),
    default=100,
    show_default=True,
    help="The maximum number of entries to list.",
)
since_option: Final[Decorator] = click.option(
    *("--since", "within"),
    type=duration,
    metavar="AGO",
    help="Include only entries newer than this, such as 12h or 30d.",
)
guest_option: Final[Decorator] = click.option(
    "--guest", "guest_id", metavar="ID", help="List only entries about this guest."
)
center_option: Final[Decorator] = click.option(
    "--center", "center_id", metavar="ID", help="List only entries at this center."
)


def listed(centers: Collection[CenterId] | None) -> list[CenterId] | str:
    """Return the centers to which a token or an endpoint is limited, sorted.

    If `centers` is None, there is no limit, and "all" is returned.
    """
    return "all" if centers is None else sorted(centers)


def row_of(columns: Collection[str], record: object) -> dict[str, object]:
    """Return the values of a record by column name. The record is an object or a mapping.

    A column is written as `name`, or as `name=path` if the value is at a path such as `center.id`.
    If any value on the path is None, the value is None.
    """
    row = {}
    for column in columns:
        name, _, path = column.partition("=")
        value = record
        for part in (path or name).split("."):
            if isinstance(value, Mapping):
                value = value[part]
            elif value is not None:
                value = getattr(value, part)
        row[name] = value
    return row


def echo_records(
    columns: Collection[str],
    records: Iterable[object],
    *,
    as_json: bool,
    limit: int | None = None,
) -> None:
    """Print records as a table with the columns of `row_of`, or as a JSON list of objects.

    In the table, a missing value is shown as `-`, a list is separated by commas, and times are
    shown to the second. If there are as many records as `limit`, a line on standard error says that
    further records may be missing.
    """
    rows = [row_of(columns, record) for record in records]
    if as_json:
        echo_json(rows)
    else:
        header = [column.partition("=")[0].upper() for column in columns]
        lines = [header, *([cell_of(value) for value in row.values()] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        for line in lines:
            cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
            click.echo("  ".join(cells).rstrip())
    if len(rows) == limit:
        click.echo(f"only {limit} are listed, and there may be more; see --limit", err=True)


def echo_record(
    fields: Mapping[str, object],
    *,
    as_json: bool,
    **tables: tuple[Collection[str], Iterable[object]],
) -> None:
    """Print one record and its tables, as text or as one JSON object.

    In the text, each field has a line. Each table is a pair of columns and records, which are
    passed to `echo_records`.
    """
    if as_json:
        lists = {
            name: [row_of(columns, it) for it in found] for name, (columns, found) in tables.items()
        }
        echo_json({**fields, **lists})
        return
    width = max(map(len, fields))
    for name, value in fields.items():
        click.echo(f"{name:<{width}}  {cell_of(value)}")
    for columns, found in tables.values():
        click.echo()
        echo_records(columns, found, as_json=False)


def echo_json(value: object) -> None:
    """Print a value as JSON, indented."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def cell_of(value: object) -> str:
    """Return a value as the text of a table's cell."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    if isinstance(value, timedelta):
        return f"{value.total_seconds():.0f} s"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {cell_of(each)}" for name, each in sorted(value.items()))
    if isinstance(value, list | tuple | frozenset):
        return ",".join(map(str, value))
    return str(value)
