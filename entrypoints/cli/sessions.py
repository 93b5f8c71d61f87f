"""`cardonfile session`: card-addition sessions."""

from __future__ import annotations

import click

from entrypoints.cli.installation import installation


@click.group()
def session() -> None:
    """Cancel card-addition sessions.

    \b
    Example:
      cardonfile session cancel --caller web-store
    """


@session.command()
@click.option("--caller", metavar="NAME", required=True, help="Whose sessions to cancel.")
def cancel(*, caller: str) -> None:
    """Cancel every open session of a caller: its links lead nowhere any more.

    A running `cardonfile serve` or `work` closes their pages at the PSP. Revoke the caller's tokens
    first, or it starts new sessions. Running it again is fine.

    \b
    Example:
      cardonfile session cancel --caller web-store
    """
    with installation() as container:
        count = container.cancel_sessions_of_caller()(caller)
        click.echo(f"cancelled {count} sessions of {caller}")
