"""`cardonfile consent`: what guests agreed to."""

from __future__ import annotations

import click

from domain.cards.find_account import account_with
from domain.cards.read_consent import consents_of
from entrypoints.cli.installation import reading
from entrypoints.cli.terminal import echo_records, json_option


@click.group()
def consent() -> None:
    """Show what guests agreed to when their cards were stored."""


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
    with reading() as (unit, _):
        given = consents_of(unit, account_with(unit, account_id))
        echo_records(("agreed_at", "version", "language", "text"), given, as_json=as_json)
