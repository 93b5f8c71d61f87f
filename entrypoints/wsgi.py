"""The service as a WSGI application, for granian or any other WSGI server (docs/scaling.md)."""

from __future__ import annotations

import os
import sys
from wsgiref.types import WSGIApplication

import click

from entrypoints.container import build
from entrypoints.databases import require_up_to_date
from entrypoints.logs import configure_logs
from entrypoints.plain_errors import plain_errors
from entrypoints.serve import ServeError, announce, check, end_when_replaced, start_metrics
from entrypoints.settings import Settings


def create_application() -> WSGIApplication:
    """Return the WSGI application, with its settings from the environment.

    CARDONFILE_PUBLIC_BASE_URL must be set. If `cardonfile serve` would refuse to start, this
    function prints one sentence and raises SystemExit with status 1. No database is left open, so
    the server may fork afterwards. No worker is started, so run `cardonfile work` in addition to
    the server.

    If the files of the database are replaced, the process sends itself SIGTERM.
    """
    try:
        with plain_errors(ServeError):
            return _application()
    except click.ClickException as refused:
        refused.show()
        sys.exit(refused.exit_code)


def _application() -> WSGIApplication:
    settings = Settings.read_to_serve(os.environ)
    configure_logs(settings.log_format, at_least=settings.log_level, name_process=True)
    require_up_to_date(settings.database)
    # The checks use a separate container, so that nothing that they open is shared across a fork.
    checked = build(settings)
    check(checked)
    checked.storage().close()
    container = build(settings)
    end_when_replaced(container)
    start_metrics(container, listens=False)
    application = container.behind_proxy()
    announce(settings)
    return application
