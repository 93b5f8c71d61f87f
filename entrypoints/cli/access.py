"""`cardonfile token`: access tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Final

import click

from domain.access.token import AccessToken
from domain.outside import time_after
from domain.permissions import Permission
from entrypoints.cli.installation import installation, reading
from entrypoints.cli.terminal import duration, echo_records, json_option, listed

_COLUMNS: Final = (
    *("prefix", "caller=caller.name", "permissions", "centers"),
    *("issued=issued_at", "expires=expires_at", "used=used_at", "state"),
)


@click.group()
def token() -> None:
    """Issue, list and revoke access tokens."""


@token.command()
@click.option(
    "--caller", metavar="NAME", required=True, help="The name of the caller who will use the token."
)
@click.option(
    "--permission",
    "permissions",
    type=click.Choice([permission.value for permission in Permission]),
    multiple=True,
    required=True,
    help="A permission of the caller. May be given several times.",
)
@click.option(
    "--center",
    "centers",
    metavar="ID",
    multiple=True,
    help="A center for which the caller may act. May be given several times.  [default: all]",
)
@click.option(
    "--ttl",
    "lifetime",
    metavar="TTL",
    type=duration,
    default="24h",
    show_default=True,
    help="How long the token is valid, such as 90m, 24h or 30d: from 1m to 3650d.",
)
def issue(
    *, caller: str, permissions: Sequence[str], centers: Sequence[str], lifetime: timedelta
) -> None:
    """Issue a token, and print only the token.

    Keep the token. It cannot be shown again, because only its hash is stored.

    \b
    Example:
      cardonfile token issue --caller web-store --permission guests:add --ttl 30d
    """
    with installation() as container:
        issued = container.issue_token()(
            caller=caller,
            permissions=frozenset(map(Permission, permissions)),
            centers=centers or None,
            lifetime=lifetime,
        )
        click.echo(issued)


@token.command("list")
@click.option(
    "--expires-within",
    metavar="TIME",
    type=duration,
    help="List only valid tokens that expire within this time, such as 14d.",
)
@json_option
def list_(*, expires_within: timedelta | None, as_json: bool) -> None:
    """List the issued tokens.

    The oldest tokens come first. With --expires-within, the tokens that expire soonest come first.
    PREFIX is the beginning of a token. USED is the hour of its last use.

    \b
    Example:
      cardonfile token list --expires-within 14d
    """
    with reading() as (unit, now):
        tokens = unit.access_tokens
        found = (
            tokens.all()
            if expires_within is None
            else tokens.expiring(now, until=time_after(now, expires_within))
        )
    echo_records(_COLUMNS, (_record(each, now) for each in found), as_json=as_json)


@token.command()
@click.argument("prefix", metavar="PREFIX")
def revoke(prefix: str) -> None:
    """Revoke a token, so that its next request is refused.

    PREFIX is the beginning of the token, as `cardonfile token list` shows it, or the whole token.

    \b
    Example:
      cardonfile token revoke cof_Jx2vQ9aT
    """
    with installation() as container:
        revoked = container.revoke_token()(prefix)
        if not (revoked.prefix.startswith(prefix) or revoked.is_token(prefix)):
            click.echo(
                f"only the prefix {revoked.prefix} was compared, because the rest of a token is "
                "not stored",
                err=True,
            )
        click.echo(f"revoked {revoked.prefix} of {revoked.caller.name}")


def _record(token: AccessToken, now: datetime) -> dict[str, object]:
    return {
        **asdict(token),
        "permissions": sorted(token.caller.permissions),
        "centers": listed(token.caller.centers),
        "state": token.state(now),
    }
