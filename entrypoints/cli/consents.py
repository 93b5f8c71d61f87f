"""`cardonfile consent`: what guests agreed to."""

from __future__ import annotations

from dataclasses import asdict

import click

from entrypoints.cli.installation import installation
from entrypoints.cli.terminal import echo_records, json_option


@click.group()
def consent() -> None:
    """Show what guests agreed to when their cards were stored.

    \b
    Example:
      cardonfile consent show 607486b1-232f-43c7-906b-540453a04b21
    """


@consent.command()
@click.argument("account_id", metavar="ACCOUNT_ID")
@json_option
def show(*, account_id: str, as_json: bool) -> None:
    """Show what the guest agreed to for a card on file, also after its removal.

    The consent that applies comes first, then those from before each renewal, newest first. A text
    is shown as - if it is not kept any more.

    \b
    Example:
      cardonfile consent show 607486b1-232f-43c7-906b-540453a04b21
    """
    with installation() as container:
        echo_records(
            ("agreed_at", "version", "language", "text"),
            map(asdict, container.show_consent()(account_id)),
            as_json=as_json,
        )
