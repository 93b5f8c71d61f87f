"""`cardonfile installation`."""

from __future__ import annotations

import click

from entrypoints.cli.installation import installation


@click.group("installation")
def installation_() -> None:
    """Say that an installation has moved, or that its database is a copy.

    The database works for the first public CARDONFILE_PUBLIC_BASE_URL that `serve`, `work` or
    `reconcile` starts with. They refuse to start with another.
    """


@installation_.command()
def move() -> None:
    """Have the database work for CARDONFILE_PUBLIC_BASE_URL from now on.

    \b
    Example:
      cardonfile installation move
    """
    with installation() as container:
        click.echo(f"the database works for {container.move_installation()()}")


@installation_.command()
def copy() -> None:
    """Have a copy of a database act no more for the original.

    Run it on the copy, with the settings of the copy. It deletes event endpoints with their secrets,
    events that are due, and discards and readings of cards at PSPs that are due, and revokes all
    access tokens. Afterwards keys of the original's merchants are refused.

    \b
    Example:
      cardonfile installation copy
    """
    with installation() as container:
        for kind, count in container.separate_copy()().items():
            click.echo(f"{kind:12}{count:8}")
