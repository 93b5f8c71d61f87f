"""`cardonfile installation`."""

from __future__ import annotations

import click

from entrypoints.cli.installation import installation


@click.group("installation")
def installation_() -> None:
    """Move an installation, or separate a copy of it.

    A database belongs to the first public CARDONFILE_PUBLIC_BASE_URL with which `serve`, `work` or
    `reconcile` starts. These commands refuse to start with another address.
    """


@installation_.command()
def move() -> None:
    """Make the database belong to CARDONFILE_PUBLIC_BASE_URL.

    \b
    Example:
      cardonfile installation move
    """
    with installation() as container:
        click.echo(f"the database belongs to {container.move_installation()()}")


@installation_.command()
def copy() -> None:
    """Stop a copy of a database from acting in place of the original.

    Run this command on the copy, with the settings of the copy. It deletes the event endpoints with
    their secrets, all events, and the links to guests' own pages. It cancels the work that
    is pending at PSPs: discarding cards, and reading their current state. It also revokes all
    access tokens. From then on, the copy refuses the keys of the original's merchants.

    \b
    Example:
      cardonfile installation copy
    """
    with installation() as container:
        for kind, count in container.separate_copy()().items():
            click.echo(f"{kind:12}{count:8}")
