"""`cardonfile installation`."""

from __future__ import annotations

import click

from entrypoints.cli.installation import installation


@click.group("installation")
def installation_() -> None:
    """Say that an installation has moved, or that its database is a copy.

    The database belongs to the first public CARDONFILE_PUBLIC_BASE_URL with which `serve`, `work`
    or `reconcile` starts. They refuse to start with another one.
    """


@installation_.command()
def move() -> None:
    """Store CARDONFILE_PUBLIC_BASE_URL as the database's address from now on.

    \b
    Example:
      cardonfile installation move
    """
    with installation() as container:
        click.echo(f"the database works for {container.move_installation()()}")


@installation_.command()
def copy() -> None:
    """Separate a copy of a database from the original, so that it no longer acts for it.

    Run it on the copy, with the copy's settings. It deletes event endpoints with their secrets, due
    events, and due discards and readings of cards at PSPs, and it revokes all access tokens. From
    then on, keys of the original's merchants are refused.

    \b
    Example:
      cardonfile installation copy
    """
    with installation() as container:
        for kind, count in container.separate_copy()().items():
            click.echo(f"{kind:12}{count:8}")
