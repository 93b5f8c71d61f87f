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
from entrypoints.serve import ServeError, announce, check, settings_with_base_url


def create_application() -> WSGIApplication:
    """Give the application of the installation that the environment describes.

    CARDONFILE_PUBLIC_BASE_URL must be set. What `cardonfile serve` refuses ends the process with
    one sentence and status 1. No database is open afterwards, so that a server may fork then; each
    is opened by the first request that needs it. It runs no worker: `cardonfile work` does.
    """
    try:
        with plain_errors(ServeError):
            return _application()
    except click.ClickException as refused:
        refused.show()
        sys.exit(refused.exit_code)


def _application() -> WSGIApplication:
    settings = settings_with_base_url(os.environ)
    configure_logs(settings.log_format, name_process=True)
    require_up_to_date(settings.database)
    # What is opened for the checks goes with this container.
    checked = build(settings)
    check(checked)
    checked.storage().close()
    container = build(settings)
    application = container.behind_proxy()
    announce(settings)
    return application
