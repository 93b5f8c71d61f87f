"""`cardonfile session`: card-addition sessions."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import click

from domain.outside import time_before
from domain.sessions.end import SessionStatus
from domain.sessions.result import OVERDUE_AFTER, CountedBy
from domain.sessions.session import SessionFilter
from domain.sessions.trace_session import TraceEntry, session_named, steps_of
from entrypoints.cli.installation import existing, installation, reading
from entrypoints.cli.terminal import (
    center_option,
    duration,
    echo_record,
    echo_records,
    guest_option,
    json_option,
    limit_option,
    row_of,
    since_option,
)

COLUMNS: Final = (
    *("prefix", "created=created_at", "guest=guest_id", "center=center_id"),
    *("caller", "status", "progress", "reason=failure.type"),
)
"""The columns that commands show for a session."""

_COLUMNS_OF_ONE: Final = (
    *COLUMNS,
    *("provider=configuration.provider", "merchant_account=configuration.merchant_account"),
    *("link_until=expires_at", "next_look=due_at", "psp_silent_since=unanswered_since"),
    "booking=agreement.reference",
)

USUAL_TIME: Final = timedelta(days=7)


@click.group()
def session() -> None:
    """List, count and cancel card-addition sessions.

    PREFIX is the beginning of a session's token. The whole token is not shown, because it is
    enough to open the page of a session from an earlier release.
    """


@session.command("list")
@guest_option
@center_option
@click.option(
    "--status",
    type=click.Choice([each.value for each in SessionStatus]),
    help="List only sessions in this status.",
)
@since_option
@limit_option
@json_option
def list_(
    *,
    guest_id: str | None,
    center_id: str | None,
    status: str | None,
    within: timedelta | None,
    limit: int,
    as_json: bool,
) -> None:
    """List sessions, newest first.

    Without --since, --guest and --center, only sessions of the last 7 days are listed. If a session
    has failed, REASON is the type of the refusal.

    \b
    Example:
      cardonfile session list --status failed --since 24h
    """
    if within is None and guest_id is None and center_id is None:
        within = USUAL_TIME
    with reading() as (unit, now):
        guest, center = existing(unit, guest_id, center_id)
        wanted = SessionFilter(
            guest_id=guest,
            center_id=center,
            status=SessionStatus(status) if status else None,
            created_since=None if within is None else time_before(now, within),
        )
        found = unit.sessions.search(wanted, limit=limit)
    echo_records(COLUMNS, found, as_json=as_json, limit=limit)


@session.command()
@click.argument("token", metavar="TOKEN")
@json_option
def show(*, token: str, as_json: bool) -> None:
    """Show everything that happened in a session.

    TOKEN is the session's token, or its beginning of at least 8 characters, as `cardonfile session
    list` shows it.

    \b
    Example:
      cardonfile session show 5d1c0f0e
    """
    with reading() as (unit, _):
        found = session_named(unit, token)
        steps = (TraceEntry._fields, steps_of(unit, found))
    echo_record(row_of(_COLUMNS_OF_ONE, found), as_json=as_json, steps=steps)


@session.command()
@click.option(
    "--since",
    "within",
    type=duration,
    metavar="AGO",
    default="7d",
    show_default=True,
    help="Count only sessions created within this time, such as 12h.",
)
@click.option(
    "--by",
    type=click.Choice([each.value for each in CountedBy]),
    help="Show a separate count for each value of this field.",
)
@json_option
def stats(*, within: timedelta, by: str | None, as_json: bool) -> None:
    """Count sessions by their result.

    If the session ended with a card, RESULT is stored, renewed or card_on_file_used. If a rule
    refused the card, RESULT is refused_by_rule, and REASON is the rule. If the session ended
    without a card, RESULT is declined, abandoned (the guest left the page) or never_opened. If the
    session has not ended, RESULT is open, waiting_for_psp or overdue. A session is overdue if it
    has been due for more than a minute, and no worker has handled it.

    \b
    Example:
      cardonfile session stats --since 30d --by center
    """
    with reading() as (unit, now):
        counted = unit.sessions.count(
            CountedBy(by) if by else None,
            since=time_before(now, within),
            overdue_before=now - OVERDUE_AFTER,
        )
    columns = (*((f"{by}=group",) if by else ()), "result", "reason", "sessions")
    echo_records(columns, counted, as_json=as_json)


@session.command()
@click.option(
    "--caller", metavar="NAME", required=True, help="The caller whose sessions are cancelled."
)
def cancel(*, caller: str) -> None:
    """Cancel every open session of a caller.

    The links of the sessions stop working, and a running `cardonfile serve` or `work` closes their
    pages at the PSP. Revoke the caller's tokens first, so that the caller cannot start new
    sessions. The command may be run again.

    \b
    Example:
      cardonfile session cancel --caller web-store
    """
    with installation(acts=True) as container:
        count = container.cancel_sessions_of_caller()(caller)
        click.echo(f"cancelled {count} sessions of {caller}")
