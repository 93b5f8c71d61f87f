"""`cardonfile audit`: who did what when."""

from __future__ import annotations

from datetime import timedelta

import click

from entrypoints.cli.installation import installation
from entrypoints.cli.terminal import Duration, echo_records, json_option


@click.group()
def audit() -> None:
    """See who did what, and when.

    \b
    Example:
      cardonfile audit list --since 30d
    """


@audit.command("list")
@click.option(
    "--since",
    "within",
    metavar="AGO",
    type=Duration(),
    help="Only those since; a time such as 12h or 30d.  [default: to the beginning]",
)
@click.option(
    "--about",
    metavar="ID",
    help="Only what was done to this: an id, the prefix of a token, or the name of a caller.",
)
@json_option
def list_(*, within: timedelta | None, about: str | None, as_json: bool) -> None:
    """List what was done, newest first.

    ACTOR is `caller:` and the name of a caller of the API, or `user:` and the user of this machine
    who ran a command.

    \b
    Example:
      cardonfile audit list --about 3c9d1f70-52f4-4b0a-a3ce-7f1f4d6a0b55
    """
    with installation() as container:
        echo_records(
            ("time", "actor", "action", "about", "details"),
            (
                {
                    "time": entry.happened_at,
                    "actor": entry.actor,
                    "action": entry.action,
                    "about": entry.about,
                    "details": entry.details,
                }
                for entry in container.list_audit_entries()(within=within, about=about)
            ),
            as_json=as_json,
        )
