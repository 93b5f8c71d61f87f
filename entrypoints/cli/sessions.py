"""`cardonfile session`: card-addition sessions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import click

from domain.identifiers import SHOWN_OF_TOKENS
from domain.sessions.session import CardSession, CountedBy, SessionStatus
from domain.sessions.trace_session import Trace
from entrypoints.cli.installation import installation
from entrypoints.cli.terminal import (
    Duration,
    cell_of,
    echo_json,
    echo_records,
    json_option,
    limit_option,
)


@click.group()
def session() -> None:
    """Look into card-addition sessions, count and cancel them.

    PREFIX is the beginning of a session's token; the token itself is not shown, because it opens
    the link.

    \b
    Example:
      cardonfile session list --status failed
    """


@session.command("list")
@click.option("--guest", metavar="ID", help="Only the sessions of this guest.")
@click.option("--center", metavar="ID", help="Only those at this center.")
@click.option(
    "--status", type=click.Choice([each.value for each in SessionStatus]), help="Only those."
)
@click.option(
    "--since",
    "within",
    type=Duration(),
    metavar="AGO",
    help="Only those created since.  [default: 7d, or any time with --guest or --center]",
)
@limit_option
@json_option
def list_(
    *,
    guest: str | None,
    center: str | None,
    status: str | None,
    within: timedelta | None,
    limit: int,
    as_json: bool,
) -> None:
    """List sessions, newest first.

    AGO is a time such as 12h or 7d. REASON is the type of the refusal of a session that failed.

    \b
    Example:
      cardonfile session list --status failed --since 24h
    """
    with installation() as container:
        sessions = container.search_sessions()(
            guest=guest,
            center=center,
            status=SessionStatus(status) if status else None,
            within=within,
            limit=limit,
        )
        columns = (
            *("prefix", "created", "guest", "center"),
            *("caller", "status", "progress", "reason"),
        )
        echo_records(columns, map(session_record, sessions), as_json=as_json, limit=limit)


@session.command()
@click.argument("token", metavar="TOKEN")
@json_option
def show(*, token: str, as_json: bool) -> None:
    """Show what happened in a session, and what it waits for.

    TOKEN is the beginning of its token, at least 8 characters, as `cardonfile session list` shows
    it, or the whole token.

    \b
    Example:
      cardonfile session show 5d1c0f0e
    """
    with installation() as container:
        trace = container.trace_session()(token)
        steps = [
            {"at": step.happened_at, "step": step.name, "details": step.details}
            for step in trace.steps
        ]
        if as_json:
            echo_json({**_summary(trace), "steps": steps})
            return
        for name, value in _summary(trace).items():
            click.echo(f"{name.replace('_', ' '):<22}{cell_of(value)}")
        click.echo()
        echo_records(("at", "step", "details"), steps, as_json=False)


@session.command()
@click.option(
    "--since",
    "within",
    type=Duration(),
    metavar="AGO",
    default="7d",
    show_default=True,
    help="Only sessions created since, such as 12h.",
)
@click.option(
    "--by", type=click.Choice([each.value for each in CountedBy]), help="What to group by."
)
@json_option
def stats(*, within: timedelta, by: str | None, as_json: bool) -> None:
    """Count sessions by what became of them.

    RESULT is stored, renewed, refused_by_rule (REASON is the rule), waiting_for_psp or open; overdue
    if the worker should have looked over a minute ago; or of a session that ended without a card
    declined, abandoned (opened, no card) or never_opened.

    \b
    Example:
      cardonfile session stats --since 30d --by center
    """
    with installation() as container:
        counted = container.count_sessions()(within=within, by=CountedBy(by) if by else None)
        columns = (*((by,) if by else ()), "result", "reason", "sessions")
        echo_records(
            columns,
            ({**each._asdict(), by or "group": each.group} for each in counted),
            as_json=as_json,
        )


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


def session_record(session: CardSession) -> dict[str, object]:
    """Return what commands show of a session, by column."""
    return {
        "prefix": session.token_id[:SHOWN_OF_TOKENS],
        "created": session.created_at,
        "guest": session.guest_id,
        "center": session.center_id,
        "caller": session.caller,
        "status": session.status,
        "progress": session.progress,
        "reason": session.failure and session.failure.type,
    }


def _summary(trace: Trace) -> Mapping[str, object]:
    session = trace.session
    return {
        **session_record(session),
        "provider": session.configuration.provider,
        "merchant_account": session.configuration.merchant_account,
        "result": trace.result,
        "waits_for": trace.waits_for,
        "link_until": session.expires_at,
        "next_look": session.due_at,
        "psp_silent_since": session.unanswered_since,
    }
