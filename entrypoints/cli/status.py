"""`cardonfile status`."""

from __future__ import annotations

import os
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from entrypoints.cli.terminal import echo_fields, echo_json, echo_records, json_option, row_of
from entrypoints.in_background import begin
from entrypoints.plain_errors import plain_errors
from entrypoints.settings import LogLevel, PostgresqlDatabase, Settings

if TYPE_CHECKING:
    from domain.worker.read_status import Status

WITHIN_SECONDS: Final = 10
"""How long the database may take."""

_COLUMNS: Final = {
    "workers": ("host", "pid", "release", "state", "since", "seen_seconds_ago"),
    "due": ("due", "items", "since"),
    "unanswered": ("unanswered", "items", "since"),
    "endpoints": (
        *("endpoint=endpoint.endpoint_id", "url=endpoint.url", "active=endpoint.is_active"),
        *("pending=counts.pending", "since=counts.pending_since", "failed=counts.failed"),
    ),
    "expiring": ("token=prefix", "caller=caller.name", "expires=expires_at"),
}


class NotWorking(click.ClickException):
    """The service cannot work. The text says why, and what to do."""

    exit_code = 3


@click.command()
@json_option
def status(*, as_json: bool) -> None:
    """Show which workers run, what is due, and what waits for PSPs and endpoints.

    The exit status is 3 if the database cannot be used or is not up to date, or if no worker has
    been seen for a minute; otherwise 0, whatever else is shown. It takes 10 seconds at most.

    \b
    Example:
      cardonfile status
    """
    from entrypoints.databases import in_a_sentence, last_migration
    from entrypoints.logs import configure_logs

    with plain_errors():
        settings = Settings.read(os.environ)
        configure_logs(settings.log_format, at_least=LogLevel.ERROR)
        try:
            found = begin(lambda: _read(settings.database)).result(WITHIN_SECONDS)
        except TimeoutError:
            raise NotWorking(
                f"the database does not respond within {WITHIN_SECONDS} seconds: look at its locks, "
                "its disk and its load"
            ) from None
        except Exception as error:
            sentence = in_a_sentence(error)
            if sentence is None:
                raise
            raise NotWorking(sentence) from error
        _show(last_migration(), found, as_json=as_json)
        if found.is_worker_missing:
            raise NotWorking(
                "no worker has been seen for a minute: start `cardonfile serve` or `cardonfile work`, "
                "or look for reconciler_without_storage in its log"
            )


def _read(database: Path | PostgresqlDatabase) -> Status:
    """Read the status. It does without the container, which takes longer to import."""
    from adapters.system import SystemClock
    from domain.worker.read_status import ReadStatus
    from entrypoints.databases import require_up_to_date, storage_in

    require_up_to_date(database)
    with closing(storage_in(database, connections=1)) as storage:
        return ReadStatus(storage=storage, clock=SystemClock())()


def _show(migration: str, found: Status, *, as_json: bool) -> None:
    from domain.worker.heartbeat import WorkerState

    fields = {"release": version("cardonfile"), "migration": migration}
    tables = {
        "workers": [
            {
                **row_of(("host", "pid", "release"), each.worker),
                "state": "missing"
                if each.is_missing and each.state is WorkerState.RUNNING
                else each.state,
                "since": each.since,
                "seen_seconds_ago": round(each.age.total_seconds()),
            }
            for each in found.workers
        ],
        "due": [{"due": kind, **waiting._asdict()} for kind, waiting in found.due.items()],
        "unanswered": [
            {"unanswered": "/".join(account), **waiting._asdict()}
            for account, waiting in found.unanswered.items()
        ],
        "endpoints": [
            {"endpoint": endpoint, "counts": counts} for endpoint, counts in found.endpoints
        ],
        "expiring": found.expiring,
    }
    if as_json:
        echo_json(
            fields
            | {
                name: [row_of(_COLUMNS[name], each) for each in records]
                for name, records in tables.items()
            }
        )
        return
    echo_fields(fields)
    for name, records in tables.items():
        if records:
            click.echo()
            echo_records(_COLUMNS[name], records, as_json=False)
