"""`cardonfile status` and `doctor`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from adapters.outbound_http import begin
from entrypoints.cli.terminal import echo_record, echo_records, json_option
from entrypoints.plain_errors import NO_WORKER, plain_errors
from entrypoints.settings import LogFormat, LogLevel, PostgresqlDatabase, Settings

if TYPE_CHECKING:
    from adapters.psp.findings import Finding
    from domain.worker.read_status import Status

WITHIN_SECONDS: Final = 10
"""How long the database may take to respond."""


class NotWorking(click.ClickException):
    """The service cannot work. The text contains the reason and advice."""

    exit_code = 3


@click.command()
@json_option
def status(*, as_json: bool) -> None:
    """Show workers, due work, and work that waits for PSPs.

    The command also shows events that wait for endpoints. The exit status is 3 if the database
    cannot be used or is not up to date, or if no worker has been seen for a minute. In all other
    cases, it is 0. The command takes at most 10 seconds.

    \b
    Example:
      cardonfile status
    """
    from entrypoints.databases import in_a_sentence
    from entrypoints.logs import configure_logs

    with plain_errors():
        settings = Settings.read(os.environ)
        configure_logs(settings.log_format, at_least=LogLevel.ERROR)
        try:
            found = begin(lambda: _read(settings.database)).result(WITHIN_SECONDS)
        except TimeoutError:
            raise NotWorking(
                f"the database did not respond within {WITHIN_SECONDS} seconds: check its locks, "
                "its disk and its load"
            ) from None
        except Exception as error:
            sentence = in_a_sentence(error)
            if sentence is None:
                raise
            raise NotWorking(sentence) from error
        _show(found, as_json=as_json)
        if found.is_worker_missing:
            raise NotWorking(NO_WORKER)


def _read(database: Path | PostgresqlDatabase) -> Status:
    """Read the status without the container, which would take longer to import."""
    from adapters.system import SystemClock
    from domain.worker.read_status import ReadStatus
    from entrypoints.databases import require_up_to_date, storage_in

    require_up_to_date(database)
    with closing(storage_in(database, connections=1)) as storage:
        return ReadStatus(storage=storage, clock=SystemClock())()


def _show(found: Status, *, as_json: bool) -> None:
    from adapters.sqlite.migrations import known
    from domain.cards.account import READINGS_PER_MINUTE

    worker = ("host=worker.host", "pid=worker.pid", "release=worker.release")
    endpoint = ("endpoint=endpoint.endpoint_id", "active=endpoint.is_active")
    counts = ("pending=counts.pending", "since=counts.pending_since", "failed=counts.failed")
    due = [{"due": kind, **each._asdict()} for kind, each in found.due.items()]
    unanswered = [
        {"unanswered": "/".join(account), **each._asdict()}
        for account, each in found.unanswered.items()
    ]
    erasures = [
        {"erasures": "/".join(account), **each._asdict()}
        for account, each in found.erasures.items()
    ]
    readings = [
        {"readings": "/".join(account), "items": items, "of": READINGS_PER_MINUTE}
        for account, items in found.readings.items()
    ]
    echo_record(
        {"release": version("cardonfile"), "migration": known()[-1]},
        as_json=as_json,
        workers=((*worker, "state", "missing=is_gone", "since", "seen_ago=age"), found.workers),
        due=(("due", "items", "since"), due),
        unanswered=(("unanswered", "items", "since"), unanswered),
        erasures=(("erasures", "items", "since"), erasures),
        readings=(("readings", "items", "of"), readings),
        endpoints=((*endpoint, *counts), found.endpoints),
        expiring=(("token=prefix", "caller=caller.name", "expires=expires_at"), found.expiring),
    )


@click.command()
@json_option
@click.pass_context
def doctor(context: click.Context, *, as_json: bool) -> None:
    """Find what is wrong with the installation.

    The service does not have to run. The command tests the database, the public address, the keys
    of each PSP, the event endpoints, and more. It does not change anything. The exit status is 1 if
    there is a problem, otherwise 0. The result `unknown` does not count as a problem. It means that
    the command cannot tell from this machine whether there is a problem.

    \b
    Example:
      cardonfile doctor
    """
    from entrypoints.doctor import examine

    echo_findings(context, lambda: examine(os.environ), as_json=as_json)


def echo_findings(
    context: click.Context, find: Callable[[], Sequence[Finding]], *, as_json: bool
) -> None:
    """Call `find`, print its findings, and exit with the status that `doctor` describes."""
    from adapters.psp.findings import Diagnosis
    from entrypoints.logs import configure_logs

    # The log is text on standard error, because the settings are not read yet and may be unusable.
    configure_logs(LogFormat.TEXT, at_least=LogLevel.ERROR)
    found = find()
    echo_records(("result=diagnosis", "about", "finding=text"), found, as_json=as_json)
    context.exit(any(finding.diagnosis is Diagnosis.PROBLEM for finding in found))
