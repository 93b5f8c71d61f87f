"""`cardonfile audit`: who did what, and when."""

from __future__ import annotations

from datetime import timedelta

import click

from domain.outside import time_before
from entrypoints.cli.installation import reading
from entrypoints.cli.terminal import echo_records, json_option, limit_option, since_option


@click.group()
def audit() -> None:
    """See who did what, and when."""


@audit.command("list")
@since_option
@click.option(
    "--about",
    metavar="ID",
    help="List only entries about this object: an id, the prefix of a token, or the name of "
    "a caller.",
)
@click.option("--by", metavar="NAME", help="List only what this caller or user did.")
@limit_option
@json_option
def list_(
    *, within: timedelta | None, about: str | None, by: str | None, limit: int, as_json: bool
) -> None:
    """List the entries of the audit trail, newest first.

    ACTOR is `caller:` and the name of an API caller, or `user:` and the user of this machine who
    ran a command.

    \b
    Example:
      cardonfile audit list --about 3c9d1f70-52f4-4b0a-a3ce-7f1f4d6a0b55
    """
    with reading() as (unit, now):
        since = None if within is None else time_before(now, within)
        found = unit.audit_trail.latest(since=since, about=about, by=by, limit=limit)
    columns = ("time=happened_at", "actor", "action", "about", "details")
    echo_records(columns, found, as_json=as_json, limit=limit)
