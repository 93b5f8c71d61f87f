"""Add Prometheus metrics to the container's parts, and serve the metrics.

This module is used only if CARDONFILE_METRICS or CARDONFILE_METRICS_FOLDER is set. If neither is
set, prometheus-client is not imported.
"""

from __future__ import annotations

import os
import re
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final
from wsgiref.types import WSGIApplication

from entrypoints.container import Container
from entrypoints.logs import on_lost_line

_FILE: Final = re.compile(r"(?:counter|histogram)_([1-9][0-9]{0,8})\.db")


def measure(container: Container) -> WSGIApplication:
    """Add metrics to the container's parts, and return the application that serves the metrics.

    Call this function before any of these parts is built. Raises RuntimeError if a part is already
    built, and OSError if the metrics folder cannot be used.
    """
    folder = container.settings().metrics_folder
    if folder is not None:
        _prepare(folder)
        # prometheus-client reads this variable when it is imported.
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
    import prometheus_client
    from prometheus_client.multiprocess import MultiProcessCollector

    from adapters.metrics.counted import CountedEvents, CountedSessions, Counts
    from adapters.metrics.stored import StoredGauges

    registry = prometheus_client.CollectorRegistry()
    prometheus_client.ProcessCollector(registry=registry)
    # These two have no types. The times at which counters began are not needed.
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
    if folder is not None:
        MultiProcessCollector(registry, str(folder))  # type: ignore[no-untyped-call]
    psps = (name for name, psp in container.settings().psps.items() if psp.is_set_up)
    counts = Counts(registry if folder is None else None, psps)
    on_lost_line(counts.lost_line)
    container.api.add_kwargs(observe=counts.request)
    container.authenticate.add_kwargs(refused=counts.unauthenticated)
    container.storage.add_kwargs(on_wait=counts.wait)
    container.outages.add_kwargs(observe=counts.psp_call)
    container.session_log.add_kwargs(by=partial(CountedSessions, counts=counts))
    container.event_sender.add_kwargs(by=partial(CountedEvents, counts=counts))
    registry.register(
        StoredGauges(
            storage=container.storage(),
            read_status=container.read_status(),
            clock=container.clock(),
            release=version("cardonfile"),
        )
    )
    return prometheus_client.make_wsgi_app(registry)


def _prepare(folder: Path) -> None:
    """Create the folder, and delete the files of an earlier run.

    If another process that has a file here is alive, this is not a new run. All files are then
    kept, including those of dead processes, so that no count decreases.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    files = {
        path: int(found[1]) for path in folder.iterdir() if (found := _FILE.fullmatch(path.name))
    }
    if not any(map(_is_another, files.values())):
        for path in files:
            path.unlink(missing_ok=True)


def _is_another(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return pid != os.getpid()
