"""`cardonfile serve`, `work`, `reconcile` and `demo`."""

from __future__ import annotations

import re
from datetime import timedelta

import click

from entrypoints.cli.installation import installation
from entrypoints.plain_errors import plain_errors
from entrypoints.settings import DEFAULT_HOST, DEFAULT_PORT, Settings

_HOST = re.compile(r"[A-Za-z0-9.:%_-]+")
_PORT = click.IntRange(1, 65_535)


def _refuse_processes(_: click.Context, __: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise click.ClickException(
            "--processes was removed: `serve` runs one process; for more, run the application with "
            "granian (docs/scaling.md)"
        )


@click.command()
@click.option(
    "--host",
    metavar="HOST",
    default=DEFAULT_HOST,
    show_default=True,
    help="The address to listen on.",
)
@click.option("--port", type=_PORT, default=DEFAULT_PORT, show_default=True)
@click.option("--no-worker", is_flag=True, help="Leave the background work to `cardonfile work`.")
@click.option(
    "--processes", metavar="N", hidden=True, expose_value=False, callback=_refuse_processes
)
def serve(*, host: str, port: int, no_worker: bool) -> None:
    """Run the service in one process.

    On Ctrl-C, SIGTERM or SIGHUP, the service finishes the requests in flight and stops.

    \b
    Example:
      cardonfile serve --port 8080
    """
    from entrypoints import serve as service
    from entrypoints.logs import configure_logs

    if not _HOST.fullmatch(host):
        # An empty host would make the service listen on every address.
        raise click.ClickException("--host must be an IP address or the name of this machine")
    with (
        plain_errors(service.ServeError),
        installation(
            lambda environment: Settings.read_to_serve(environment, host=host, port=port),
            may_take_long=False,
        ) as container,
    ):
        settings = container.settings()
        configure_logs(settings.log_format, at_least=settings.log_level)
        service.serve(container, host, port, with_worker=not no_worker)


@click.command()
def work() -> None:
    """Run the background worker alone.

    The worker settles sessions, discards cards and sends events. A service that runs under granian
    or as `cardonfile serve --no-worker` needs this command, because it has no worker.
    CARDONFILE_PUBLIC_BASE_URL must be set. The worker runs until Ctrl-C, SIGTERM or SIGHUP.

    \b
    Example:
      cardonfile work
    """
    from entrypoints import serve as service
    from entrypoints.logs import configure_logs

    with (
        plain_errors(service.ServeError),
        installation(Settings.read_to_serve, may_take_long=False) as container,
    ):
        settings = container.settings()
        configure_logs(settings.log_format, at_least=settings.log_level, name_process=True)
        service.work(container)


@click.command()
def reconcile() -> None:
    """Do the work that is due, then stop.

    The command settles or expires sessions that are due, discards cards that the PSP stores but the
    service does not keep, and sends events that are due. A running `cardonfile serve` does all this
    by itself.

    \b
    Example:
      cardonfile reconcile
    """
    with installation(may_take_long=False) as container:
        from domain.worker.jobs import End
        from entrypoints import serve as service
        from entrypoints.logs import configure_logs
        from entrypoints.worker.reconcile import reconcile_until_idle
        from entrypoints.worker.worker import chores

        # This process does not live long enough to see whether the clock is steady.
        container.clock.add_kwargs(steady_after=timedelta(0))
        settings = container.settings()
        configure_logs(settings.log_format, at_least=settings.log_level)
        with plain_errors(service.ServeError):
            service.refuse_another_origin(container)
            service.refuse_erased_guests(container)
        done = reconcile_until_idle(container, chores(container))
        ends = done.ends
        click.echo(
            f"settled {ends[End.SETTLED]} sessions, discarded {ends[End.DISCARDED]} cards, "
            f"delivered {ends[End.DELIVERED]} events"
        )
        click.echo(
            f"not finished: {ends[End.OPEN]} open sessions, {ends[End.WAITING]} sessions and "
            f"discards whose PSP does not respond, {ends[End.NOT_DELIVERED]} events, "
            f"{len(done.faults)} faults"
        )


@click.command()
# The shop uses the next port.
@click.option("--port", type=click.IntRange(1, 65_534), default=DEFAULT_PORT, show_default=True)
def demo(*, port: int) -> None:
    """Start the service and a demo shop with sample data.

    \b
    Example:
      cardonfile demo --port 8080
    """
    from entrypoints.demo.demo import run_demo
    from entrypoints.serve import ServeError

    with plain_errors(ServeError):
        run_demo(port)
