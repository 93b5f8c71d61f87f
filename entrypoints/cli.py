"""The `cardonfile` command line.

What a user can put right ends in one sentence on stderr and exit status 1. Arguments of the wrong
form end in click's usage message and exit status 2.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import sqlite3
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Final

import click
from click.core import ParameterSource
from typing_extensions import override

from adapters.psp.settings import SettingsError
from domain.access.revoke_token import TokenAmbiguous, TokenNotFound
from domain.centers.center import Center, CenterNotFound
from domain.centers.payment_configuration import CardsPerGuest, PaymentConfiguration
from domain.errors import InvalidField
from domain.events.add_event_endpoint import TooManyEndpoints
from domain.events.event import EventType
from domain.events.remove_event_endpoint import EndpointNotFound
from domain.events.replay_event import EventNotFound
from domain.fields import parse_uuid
from domain.identifiers import (
    DEFAULT_MERCHANT_ACCOUNT,
    CenterId,
    MerchantAccount,
    ProviderName,
)
from domain.permissions import Permission
from entrypoints.csv_import import KINDS, CsvImport, CsvRefused
from entrypoints.plain_errors import plain_errors
from entrypoints.psps import PSPS_SETTING, Missing, installed_names, what_is_missing
from entrypoints.settings import (
    DEFAULT_HOST,
    DEFAULT_PORT,
    Settings,
    parse_database_url,
    unknown_settings,
)

# Slow imports stand where they are used, so that `--help` is quick.
if TYPE_CHECKING:
    from domain.access.token import AccessToken
    from entrypoints.container import Container

INTERRUPTED: Final = 130
"""The exit status that shells give to a command ended by Ctrl-C."""

_TTL = re.compile(r"([0-9]{1,9})([smhd])")
_TTL_UNIT_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_HOST = re.compile(r"[A-Za-z0-9.:%_-]+")
_PORT = click.IntRange(1, 65_535)


@click.group()
@click.version_option(package_name="cardonfile")
@click.pass_context
def main(context: click.Context) -> None:
    """Add payment cards to guests' profiles through a hosted page.

    Settings come from the environment, CARDONFILE_DATABASE_URL among them (by default
    sqlite:///cardonfile.db, a file in the current folder).

    \b
    Example, from nothing to a running service:
      cardonfile migrate
      cardonfile import centers centers.csv
      cardonfile serve
    """
    # `serve` refuses to start with unknown settings.
    if context.invoked_subcommand != serve.name:
        try:
            sentences = unknown_settings(os.environ)
        except SettingsError as error:
            # Commands that need the PSPs refuse to run.
            sentences = [str(error)]
        for sentence in sentences:
            click.echo(f"Warning: {sentence}", err=True)


@main.command()
def migrate() -> None:
    """Create the database, or bring it up to date.

    Run it before the first start and after each upgrade; running it again changes nothing.

    \b
    Example:
      cardonfile migrate
    """
    from entrypoints import databases

    with plain_errors():
        applied = databases.migrate(Settings.read(os.environ).database)
        for name in applied:
            click.echo(f"applied {name}")
        if not applied:
            click.echo("the database is up to date")


@main.command("import")
@click.argument("what", type=click.Choice(list(KINDS)))
@click.argument("file", metavar="FILE.csv", type=click.Path(path_type=Path))
def import_(what: str, file: Path) -> None:
    """Import centers, guests or products.

    The file is UTF-8 text whose first line names the columns, in any order. If a row is wrong,
    nothing is imported. A row with a known id updates the record. The service may run meanwhile;
    an import that was interrupted is completed by running it again.

    \b
    Columns:
      centers   id,name
      guests    id,first_name,last_name,email
      products  center_id,id,code,name,description,amount,currency

    \b
    Example:
      cardonfile import guests guests.csv
    """
    try:
        with (
            _interruptible("nothing was imported"),
            _installation() as container,
            file.open("rb") as opened,
            closing(CsvImport(container.storage(), KINDS[what])) as rows,
        ):
            size = os.fstat(opened.fileno()).st_size
            with _progress(f"checking {what}", size) as move:
                count = rows.check(opened, on_read=move)
            with (
                _interruptible("run the same command again to import the rest"),
                _progress(f"importing {what}", count) as move,
            ):
                stored, interrupted = 0, _note_interrupts()
                try:
                    for number in rows.store():
                        stored += number
                        move(number)
                        if interrupted.is_set() and stored < count:
                            raise KeyboardInterrupt
                except BaseException:
                    click.echo(f"imported {stored} of {count} {what}", err=True)
                    raise
    except CsvRefused as refused:
        raise click.ClickException(f"{click.format_filename(file)}, {refused}") from refused
    except sqlite3.Error as error:
        # Not of the storages, whose SQLite is another one.
        raise click.ClickException(
            f"the rows cannot be kept in a temporary file ({error}); TMPDIR names another folder"
        ) from error
    click.echo(f"imported {count} {what if count != 1 else what.removesuffix('s')}")


class PspName(click.ParamType[str]):
    """The name of a PSP; help and usage list those that are installed."""

    name = "psp"

    @override
    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return f"[{'|'.join(installed_names())}]"


@main.command()
@click.argument("center_id", metavar="CENTER_ID")
@click.option("--provider", type=PspName(), help="The payment service provider (PSP).")
@click.option("--none", is_flag=True, help="Take no cards at this center any more.")
@click.option(
    "--account",
    "merchant_account",
    metavar="NAME",
    default=DEFAULT_MERCHANT_ACCOUNT,
    show_default=True,
    help="The merchant account at the PSP.",
)
@click.option("--avs", is_flag=True, help="Verify billing addresses (AVS).")
@click.option(
    "--cards-per-guest",
    type=click.Choice([each.value for each in CardsPerGuest]),
    default=CardsPerGuest.MANY.value,
    show_default=True,
    help="How many cards a guest may have at this center.",
)
@click.option(
    "--redirect-origin",
    "redirect_origins",
    metavar="ORIGIN",
    multiple=True,
    help="Where guests may be sent back to, such as https://shop.example, or myspa:// for an app; "
    "may be repeated.  [default: any web address]",
)
@click.option(
    "--session-minutes",
    type=int,
    metavar="N",
    default=30,
    show_default=True,
    help="How long a link may wait to be opened, from 15 to 1440.",
)
@click.option(
    "--link-minutes",
    type=int,
    metavar="N",
    help="The longest time that a client may ask for instead, up to 43200 (30 days).  "
    "[default: as --session-minutes]",
)
@click.pass_context
def configure_payments(
    context: click.Context,
    *,
    center_id: str,
    provider: str | None,
    none: bool,
    merchant_account: str,
    avs: bool,
    cards_per_guest: str,
    redirect_origins: tuple[str, ...],
    session_minutes: int,
    link_minutes: int | None,
) -> None:
    """Set up how a center takes cards.

    It replaces what was set up before. Sessions that have begun keep the setup that they began
    with.

    \b
    Examples:
      cardonfile configure-payments 7d9f2c54-3f0e-4a53-9c1b-0d6f5be1a2c3 --provider NAME --avs
      cardonfile configure-payments 7d9f2c54-3f0e-4a53-9c1b-0d6f5be1a2c3 --none
    """
    given = {
        name
        for name in context.params
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    if none and given != {"center_id", "none"}:
        raise click.UsageError("--none goes with no other option")
    if not none and provider is None:
        raise click.UsageError("give --provider NAME, or --none")
    with _installation() as container:
        configuration = None
        if provider is not None:
            configuration = PaymentConfiguration.parse(
                provider=provider,
                merchant_account=merchant_account,
                avs=avs,
                cards_per_guest=CardsPerGuest(cards_per_guest),
                redirect_origins=redirect_origins,
                session_minutes=session_minutes,
                link_minutes=link_minutes,
            )
            _require_psp(container, provider, configuration.merchant_account)
        known_id = CenterId(parse_uuid("center_id", center_id))
        with container.storage().write() as unit:
            center = unit.centers.get(known_id)
            if center is None:
                raise CenterNotFound(known_id)
            if configuration is None:
                unit.configurations.remove(known_id)
            else:
                _check_consent_length(container, configuration.provider, center)
                unit.configurations.put(known_id, configuration)
            unit.commit()
        if configuration is None:
            click.echo(f"{center.name} takes no cards")
        else:
            click.echo(
                f"{center.name} takes cards with {provider}, merchant account {merchant_account}"
            )


@main.group()
def token() -> None:
    """Issue, list and revoke access tokens.

    \b
    Example:
      cardonfile token issue --caller web-store --permission guests:add
    """


@token.command()
@click.option("--caller", metavar="NAME", required=True, help="Who is to use the token.")
@click.option(
    "--permission",
    "permissions",
    type=click.Choice([each.value for each in Permission]),
    multiple=True,
    required=True,
    help="What the caller may do; may be repeated.",
)
@click.option(
    "--center",
    "centers",
    metavar="ID",
    multiple=True,
    help="A center that the caller may act for; may be repeated.  [default: all centers]",
)
@click.option(
    "--ttl",
    "lifetime",
    metavar="TTL",
    default="24h",
    show_default=True,
    help="How long the token is valid: a number and s, m, h or d, from 1m to 3650d.",
)
def issue(
    *, caller: str, permissions: Sequence[str], centers: Sequence[str], lifetime: str
) -> None:
    """Issue a token and print it alone.

    Only its hash is stored, so it cannot be shown again.

    \b
    Example:
      cardonfile token issue --caller web-store --permission guests:add --ttl 30d
    """
    with _installation() as container:
        issued = container.issue_token()(
            caller=caller,
            permissions=frozenset(map(Permission, permissions)),
            centers=centers or None,
            lifetime=_read_ttl(lifetime),
        )
        click.echo(issued)


@token.command("list")
def list_() -> None:
    """List the issued tokens, oldest first.

    PREFIX is the beginning of a token.

    \b
    Example:
      cardonfile token list
    """
    with _installation() as container:
        now = container.clock().now()
        _echo_table(
            ("PREFIX", "CALLER", "PERMISSIONS", "CENTERS", "ISSUED", "EXPIRES", "STATE"),
            (_row(each, now) for each in container.list_tokens()()),
        )


@token.command()
@click.argument("prefix", metavar="PREFIX")
def revoke(prefix: str) -> None:
    """Revoke a token, from the next request on.

    PREFIX is the beginning of the token, as `cardonfile token list` shows it, or the whole token.

    \b
    Example:
      cardonfile token revoke cof_Jx2vQ9aT
    """
    with _installation() as container:
        revoked = container.revoke_token()(prefix)
        if not (revoked.prefix.startswith(prefix) or revoked.is_token(prefix)):
            click.echo(f"compared only {revoked.prefix}: the rest of a token is not kept", err=True)
        click.echo(f"revoked {revoked.prefix} of {revoked.caller.name}")


@main.group()
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
    with _installation() as container:
        count = container.cancel_sessions_of_caller()(caller)
        click.echo(f"cancelled {count} sessions of {caller}")


@main.group()
def events() -> None:
    """Send signed events to clients, and see what became of them.

    \b
    Example:
      cardonfile events add https://shop.example/events --type account.stored
    """


@events.command()
@click.argument("url", metavar="URL")
@click.option(
    "--type",
    "types",
    type=click.Choice([each.value for each in EventType]),
    multiple=True,
    required=True,
    help="What the endpoint is told; may be repeated.",
)
@click.option(
    "--center",
    "centers",
    metavar="ID",
    multiple=True,
    help="A center whose events it gets; may be repeated.  [default: all centers]",
)
def add(*, url: str, types: Sequence[str], centers: Sequence[str]) -> None:
    """Add an endpoint, and print its secret alone.

    Events that happen from now on are sent to it by a running `cardonfile serve` or `work`. URL is
    https, or http while the service itself is on this machine. It must lead to a public address,
    or to a network in CARDONFILE_EVENT_NETWORKS.

    \b
    Example:
      cardonfile events add https://shop.example/events --type account.stored
    """
    with _installation() as container:
        endpoint = container.add_event_endpoint()(url=url, types=types, centers=centers or None)
        click.echo(f"added {endpoint.endpoint_id}; its secret is not shown again:", err=True)
        click.echo(endpoint.secrets.current)
        why = container.event_sender().why_unreachable(endpoint.url)
        if why is not None:
            click.echo(f"Warning: with these settings nothing is sent there: {why}", err=True)


@events.command("list")
def list_endpoints() -> None:
    """List the endpoints, oldest first.

    \b
    Example:
      cardonfile events list
    """
    with _installation() as container:
        _echo_table(
            ("ENDPOINT", "URL", "TYPES", "CENTERS", "ADDED", "STATE"),
            (
                (
                    each.endpoint_id,
                    each.url,
                    ",".join(each.types),
                    _listed(each.centers),
                    _shown(each.created_at),
                    "active" if each.is_active else "disabled",
                )
                for each in container.list_event_endpoints()()
            ),
        )


@events.command()
@click.argument("endpoint_id", metavar="ENDPOINT")
def remove(endpoint_id: str) -> None:
    """Remove an endpoint: nothing more is sent to it.

    ENDPOINT is an id that `cardonfile events list` shows.

    \b
    Example:
      cardonfile events remove 2f6c1a52-7d0b-4e4a-9c35-6a1d0c9b7e10
    """
    with _installation() as container:
        removed = container.remove_event_endpoint()(endpoint_id)
        click.echo(f"removed {removed.endpoint_id}, {removed.url}")


@events.command("roll-secret")
@click.argument("endpoint_id", metavar="ENDPOINT")
def roll_secret(endpoint_id: str) -> None:
    """Make a new secret, and print it alone.

    For 24 hours events are signed with both secrets, so that the receiver can change over. Rolling
    again in that time ends the older one at once.

    \b
    Example:
      cardonfile events roll-secret 2f6c1a52-7d0b-4e4a-9c35-6a1d0c9b7e10
    """
    with _installation() as container:
        click.echo(container.roll_event_secret()(endpoint_id).secrets.current)


@events.command("deliveries")
@click.option("--failed", is_flag=True, help="Only those that are not tried any more.")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    help="How many at most.",
)
def deliveries(*, failed: bool, limit: int) -> None:
    """List the deliveries of the last 30 days, newest first.

    RESULT is the HTTP status of the last attempt, or why there was no response.

    \b
    Example:
      cardonfile events deliveries --failed
    """
    with _installation() as container:
        _echo_table(
            ("EVENT", "TYPE", "HAPPENED", "ENDPOINT", "STATE", "ATTEMPTS", "NEXT", "RESULT"),
            (
                (
                    each.event.event_id,
                    each.event.type,
                    _shown(each.event.occurred_at),
                    each.endpoint_id,
                    each.status,
                    str(each.attempts),
                    "-" if each.due_at is None else _shown(each.due_at),
                    each.last_result or "-",
                )
                for each in container.list_event_deliveries()(limit=limit, only_failed=failed)
            ),
        )


@events.command()
@click.argument("event_id", metavar="EVENT")
def replay(event_id: str) -> None:
    """Send an event again, to every endpoint that takes such events now.

    EVENT is an id that `cardonfile events deliveries` shows; receivers know it as `webhook-id`.

    \b
    Example:
      cardonfile events replay evt_5d1c0f0e-8a53-4f53-b9d4-0c8f6a3e2b71
    """
    with _installation() as container:
        count = container.replay_event()(event_id)
        click.echo(f"{event_id} will be sent to {count} endpoint{'' if count == 1 else 's'}")


def _refuse_processes(_: click.Context, __: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise click.ClickException(
            "--processes was removed: `serve` is one process; for more, run the application with "
            "granian (docs/scaling.md)"
        )


@main.command()
@click.option(
    "--host", metavar="HOST", default=DEFAULT_HOST, show_default=True, help="Where to listen."
)
@click.option("--port", type=_PORT, default=DEFAULT_PORT, show_default=True)
@click.option("--no-worker", is_flag=True, help="Leave the background work to `cardonfile work`.")
@click.option(
    "--processes", metavar="N", hidden=True, expose_value=False, callback=_refuse_processes
)
def serve(*, host: str, port: int, no_worker: bool) -> None:
    """Run the service in one process.

    It runs until Ctrl-C, SIGTERM or SIGHUP, and finishes the requests in flight.

    \b
    Example:
      cardonfile serve --port 8080
    """
    from entrypoints import serve as service
    from entrypoints.logs import configure_logs

    if not _HOST.fullmatch(host):
        # With an empty host the service would listen on every address.
        raise click.ClickException("--host must be an IP address or the name of this machine")
    with (
        plain_errors(service.ServeError),
        _installation(
            lambda environment: Settings.read_to_serve(environment, host=host, port=port)
        ) as container,
    ):
        configure_logs(container.settings().log_format)
        service.serve(container, host, port, with_worker=not no_worker)


@main.command()
def work() -> None:
    """Run the background worker alone.

    It settles sessions, discards cards and sends events for services without a worker: under
    granian, or with `cardonfile serve --no-worker`. CARDONFILE_PUBLIC_BASE_URL must be set. It runs
    until Ctrl-C, SIGTERM or SIGHUP.

    \b
    Example:
      cardonfile work
    """
    from entrypoints import serve as service
    from entrypoints.logs import configure_logs

    with (
        plain_errors(service.ServeError),
        _installation(service.settings_with_base_url) as container,
    ):
        configure_logs(container.settings().log_format, name_process=True)
        service.work(container)


@main.command()
def reconcile() -> None:
    """Finish the work that is due, then stop.

    Due sessions are settled or expired, cards that are not kept are discarded at the PSP, and due
    events are sent. A running `cardonfile serve` does this by itself.

    \b
    Example:
      cardonfile reconcile
    """
    with _installation() as container:
        from entrypoints.logs import configure_logs
        from entrypoints.reconciler import run_until_idle

        configure_logs(container.settings().log_format)
        # This process does not live long enough to see whether the clock is steady.
        container.clock.add_kwargs(steady_after=timedelta(0))
        rounds = run_until_idle(
            container.reconcile(),
            chores=[container.notice_expiry(), container.forget_old_records()],
        )
        sessions = sum(each.sessions for each in rounds)
        discards = sum(each.discards for each in rounds)
        faults = sum(len(each.faults) for each in rounds)
        click.echo(f"reconciled {sessions} sessions and {discards} discards, {faults} faults")
        attempts = sum(each.events for each in rounds)
        if attempts:
            click.echo(f"tried to deliver {attempts} events")


# Click's message on an extra argument would show it, and it may be an address with its password.
@main.command(context_settings={"allow_extra_args": True})
@click.argument("from_url", metavar="FROM_URL")
@click.argument("to_url", metavar="TO_URL")
@click.pass_context
def copy_database(context: click.Context, *, from_url: str, to_url: str) -> None:
    """Move an installation from SQLite to PostgreSQL.

    Everything is copied into the empty database TO_URL, or nothing. FROM_URL does not change. Stop
    the service first: during the copy, neither database can be written to.

    \b
    Example:
      cardonfile copy-database sqlite:///cardonfile.db postgresql://cardonfile@db.example/cardonfile
    """
    from entrypoints import databases

    if context.args:
        raise click.UsageError("give FROM_URL and TO_URL, and nothing else")
    with _interruptible("nothing was copied"), plain_errors():
        source = parse_database_url(from_url, "FROM_URL")
        target = parse_database_url(to_url, "TO_URL")
        if not isinstance(source, Path) or isinstance(target, Path):
            raise click.ClickException(
                "FROM_URL must be an SQLite file, and TO_URL a PostgreSQL database"
            )
        if databases.pending(source):
            raise click.ClickException(
                f"the database {source} is missing or not up to date: run `cardonfile migrate`"
            )
        databases.pending(target)
        # Its import needs the client of PostgreSQL, which is certain to be installed by now.
        from entrypoints.copy_database import CopyFailed, copying

        with plain_errors(CopyFailed), copying(source, target) as copy:
            with _progress("copying rows", copy.total) as move:
                counted = copy.run(on_copied=move)
            _ignore_interrupts()
            copy.commit()
        click.echo(f"{'TABLE':24}{'SQLITE':>12}{'POSTGRESQL':>12}")
        for each in counted:
            click.echo(f"{each.table:24}{each.in_sqlite:12}{each.in_postgresql:12}")


@main.command()
@click.option("--port", type=_PORT, default=DEFAULT_PORT, show_default=True)
def demo(*, port: int) -> None:
    """Start the service and a demo shop with sample data on this machine.

    \b
    Example:
      cardonfile demo --port 8080
    """
    from entrypoints.demo import run_demo
    from entrypoints.serve import ServeError

    with plain_errors(ServeError):
        run_demo(port)


@contextmanager
def _interruptible(sentence: str) -> Iterator[None]:
    """End the command with a sentence on Ctrl-C."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    except KeyboardInterrupt:
        click.echo(f"interrupted: {sentence}", err=True)
        sys.exit(INTERRUPTED)
    finally:
        signal.signal(signal.SIGINT, handler)


def _note_interrupts() -> Event:
    """Set an event on Ctrl-C, and do not interrupt, until the end of `_interruptible`."""
    noted = Event()
    signal.signal(signal.SIGINT, lambda *_: noted.set())
    return noted


def _ignore_interrupts() -> None:
    """Ignore Ctrl-C until the end of `_interruptible`: a commit cannot be taken back."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _progress(label: str, length: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal; yields the function that moves it."""
    with click.progressbar(
        length=length,
        label=label,
        file=sys.stderr,
        hidden=not (length and sys.stderr.isatty()),
        update_min_steps=length // 1_000,
    ) as bar:
        yield bar.update


@contextmanager
def _installation(
    read: Callable[[Mapping[str, str]], Settings] = Settings.read,
) -> Iterator[Container]:
    """Yield the container of the installation that the environment describes, ready for use.

    Errors of the installation and refusals of the domain become sentences.
    """
    with plain_errors(
        *(CenterNotFound, TokenNotFound, TokenAmbiguous),
        *(EndpointNotFound, EventNotFound, TooManyEndpoints),
    ):
        from entrypoints import databases
        from entrypoints.container import build
        from entrypoints.logs import configure_logs

        settings = read(os.environ)
        # To standard error, so that what a command prints stays as it is.
        configure_logs(settings.log_format, at_least=logging.ERROR)
        databases.require_up_to_date(settings.database)
        container = build(settings)
        try:
            yield container
        except InvalidField as error:
            raise click.ClickException(
                f"{_parameter_of(error.field)} must be {error.expected}"
            ) from error
        finally:
            container.storage().close()


def _parameter_of(field: str) -> str:
    """Return how the user writes a parameter of this command: `--account` or `CENTER_ID`."""
    parameters = click.get_current_context().command.params
    parameter = next(each for each in parameters if each.name == field)
    is_option = isinstance(parameter, click.Option)
    return parameter.opts[0] if is_option else parameter.human_readable_name


def _row(token: AccessToken, now: datetime) -> tuple[str, ...]:
    caller = token.caller
    return (
        token.prefix,
        caller.name,
        ",".join(sorted(caller.permissions)),
        _listed(caller.centers),
        _shown(token.issued_at),
        _shown(token.expires_at),
        token.state(now),
    )


def _listed(centers: Collection[CenterId] | None) -> str:
    return "all" if centers is None else ",".join(sorted(centers))


def _shown(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _echo_table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    lines = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def _require_psp(container: Container, name: str, account: MerchantAccount) -> None:
    """Refuse a PSP that is not loaded or not set up, and an account without keys."""
    psps = container.settings().psps
    missing = what_is_missing(psps, name, account)
    if missing is Missing.PSP:
        installed = installed_names()
        if name in installed:
            raise click.ClickException(
                f"--provider: {name} is installed, and {PSPS_SETTING} does not name it"
            )
        raise click.ClickException(
            f"--provider: {name!a} is not known; known: {', '.join(installed)}"
        )
    if missing is not None:
        how = psps[ProviderName(name)].how_to_set_up(account)
        raise click.ClickException(
            f"--provider: {name} is not set up: {how}"
            if missing is Missing.SETTINGS
            else f"--account: {name} has no keys for {account}: {how}"
        )
    # Shows here, and not to the first guest, when a package that the PSP needs is not installed.
    container.psp_adapters()


def _check_consent_length(container: Container, name: ProviderName, center: Center) -> None:
    """Refuse a center whose name makes the consent longer than the PSP's page shows."""
    from domain.psps.hosted_page import consent_for

    length = len(consent_for(center.name).text)
    longest = container.settings().psps[name].plugin.capabilities.max_consent_length
    if length > longest:
        raise click.ClickException(
            f"CENTER_ID: the text that guests agree to names the center and has {length} "
            f"characters; {name} shows {longest} at most: import the center with a shorter name"
        )


def _read_ttl(text: str) -> timedelta:
    match = _TTL.fullmatch(text)
    if match is None:
        raise click.ClickException("--ttl must look like 90m, 24h or 30d")
    return timedelta(seconds=int(match[1]) * _TTL_UNIT_SECONDS[match[2]])
