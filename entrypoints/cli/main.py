"""The `cardonfile` command line.

For an error that the user can fix, one sentence is printed on stderr, and the exit status is 1. For
malformed arguments, click's usage message is printed, and the exit status is 2.
"""

from __future__ import annotations

import os

import click

from entrypoints.cli.access import token
from entrypoints.cli.audit import audit
from entrypoints.cli.cards import card
from entrypoints.cli.centers import center, configure_payments
from entrypoints.cli.consents import consent
from entrypoints.cli.databases import backup, copy_database, import_, migrate
from entrypoints.cli.events import events
from entrypoints.cli.evidence import evidence
from entrypoints.cli.guests import guest
from entrypoints.cli.origins import installation_
from entrypoints.cli.psps import psp
from entrypoints.cli.service import demo, reconcile, serve, work
from entrypoints.cli.sessions import session
from entrypoints.cli.status import doctor, status
from entrypoints.settings import unknown_settings
from entrypoints.settings_error import SettingsError


@click.group()
@click.version_option(package_name="cardonfile")
@click.pass_context
def main(context: click.Context) -> None:
    """Add payment cards to guests' profiles through a hosted page.

    Settings are environment variables. CARDONFILE_DATABASE_URL is the URL of the database. Its
    default is sqlite:///cardonfile.db, a file in the current folder.

    \b
    Example, from nothing to a running service:
      cardonfile migrate
      cardonfile import centers centers.csv
      cardonfile serve
    """
    # Other commands only warn of unknown settings. `serve` refuses to start with them.
    if context.invoked_subcommand != serve.name:
        try:
            sentences = unknown_settings(os.environ)
        except SettingsError as error:
            # A command that needs the PSPs will fail with the same sentence.
            sentences = [str(error)]
        for sentence in sentences:
            click.echo(f"Warning: {sentence}", err=True)


for command in (
    *(migrate, backup, import_, copy_database),
    *(configure_payments, center, token, session, guest, card, evidence, consent, events, audit),
    *(serve, work, reconcile, status, doctor, psp, installation_, demo),
):
    main.add_command(command)
