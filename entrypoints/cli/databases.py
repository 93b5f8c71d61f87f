"""`cardonfile migrate`, `backup`, `import` and `copy-database`."""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event
from typing import Final

import click

from domain.audit.entry import Action
from domain.cards.import_card import IMPORTS_PER_MINUTE
from entrypoints.card_import import CARDS, CardImport, PspSilent
from entrypoints.cli.installation import installation
from entrypoints.csv_import import KINDS, CsvImport, CsvRefused
from entrypoints.plain_errors import plain_errors
from entrypoints.settings import Settings, parse_database_url

INTERRUPTED: Final = 130
"""The exit status that shells give to a command that Ctrl-C ended."""


@click.command()
def migrate() -> None:
    """Create the database, or bring it up to date.

    Run this command before the first start and after each upgrade. If the database is up to date,
    nothing changes.

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


@click.command()
@click.argument("folder", metavar="FOLDER", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--keep",
    metavar="N",
    type=click.IntRange(min=1),
    help="Afterwards, delete all but the newest N backups of this installation in FOLDER.",
)
def backup(*, folder: Path, keep: int | None) -> None:
    """Copy the databases into FOLDER, and check the copies.

    The service may run meanwhile. The names of the files contain an id of the installation and the
    time in UTC. Only the owner can read the files. The audit trail records each backup. For
    PostgreSQL, the programs pg_dump and pg_restore must be installed.

    \b
    Example:
      cardonfile backup /var/backups/cardonfile --keep 14
    """
    from entrypoints.backup import BackupExists, back_up, missing, open_to_others, prune

    with installation() as container, plain_errors(BackupExists):
        now = container.clock().now()
        not_copied = missing(container.settings())
        files = back_up(container.settings(), folder, now)
        for file in files:
            click.echo(f"wrote {file}")
        for file in not_copied:
            click.echo(f"not copied, because the file does not exist: {file.absolute()}")
        container.note_operators_act()(
            Action.BACKUP_COMPLETED,
            "backup",
            {"folder": click.format_filename(folder.absolute()), "files": len(files)},
        )
        for file in prune(container.settings(), folder, keep, now) if keep else ():
            click.echo(f"deleted {file}")
        if (theirs := open_to_others(folder)) is not None:
            click.echo(
                f"Warning: other users may write to {theirs}, and could replace or delete the backups: "
                f"run `chmod go-w {theirs}`",
                err=True,
            )


@click.command("import")
@click.argument("what", type=click.Choice(list(KINDS)))
@click.argument("file", metavar="FILE.csv", type=click.Path(path_type=Path))
@click.option(
    "--per-minute",
    metavar="N",
    type=click.IntRange(1, 6_000),
    default=IMPORTS_PER_MINUTE,
    show_default=True,
    help="The maximum number of cards to read in a minute at each merchant account.",
)
def import_(what: str, file: Path, per_minute: int) -> None:
    """Import centers, guests, products or cards.

    The file is UTF-8 text. Its first line contains the names of the columns, in any order. If any
    row is wrong, nothing is imported. A row with a known id updates the record with this id. The
    service may run meanwhile. If an import is interrupted, run the same command again to complete
    it.

    Cards must already be stored at a PSP. After all rows are checked, the command reads each card
    at the PSP before it imports the card. A card that cannot be imported is reported with its line,
    and the other cards are imported. If the PSP gives no usable response for three cards in a row,
    the import ends.

    \b
    Columns:
      centers   id,name
      guests    id,first_name,last_name,email[,language]
      products  center_id,id,code,name,description,amount,currency
      cards     guest_id,center_id,provider,merchant_account,guest_reference,token,consented_at,consent_version[,consent_language][,consent_text]

    \b
    Example:
      cardonfile import guests guests.csv
    """
    name = click.format_filename(file)
    try:
        with (
            _interruptible("nothing was imported"),
            installation(acts=what == CARDS) as container,
            plain_errors(PspSilent),
            file.open("rb") as opened,
            closing(
                CardImport(
                    container.import_card(),
                    container.note_operators_act(),
                    per_minute=per_minute,
                    tell=lambda line, why: click.echo(f"{name}, line {line}: {why}", err=True),
                )
                if what == CARDS
                else CsvImport(container.storage(), what, container.note_act())
            ) as rows,
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
                    click.echo(f"imported {stored - rows.refused} of {count} {what}", err=True)
                    raise
    except CsvRefused as refused:
        raise click.ClickException(f"{name}, {refused}") from refused
    except sqlite3.Error as error:
        # The error is about the temporary file: the storages use another SQLite library.
        raise click.ClickException(
            f"cannot write the rows to a temporary file ({error}): set TMPDIR to another folder"
        ) from error
    if rows.skipped:
        click.echo(f"skipped, because the guests were erased or merged: {rows.skipped}", err=True)
    count -= rows.skipped + rows.refused
    click.echo(f"imported {count} {what if count != 1 else what.removesuffix('s')}")
    if rows.refused:
        raise click.ClickException(
            f"rows that were not imported, for the reasons above: {rows.refused}"
        )


# Click's message about an extra argument would show it, and it may be a URL with a password.
@click.command(context_settings={"allow_extra_args": True})
@click.argument("from_url", metavar="FROM_URL")
@click.argument("to_url", metavar="TO_URL")
@click.option("--anyway", is_flag=True, help="Copy even if a worker was seen in the last minute.")
@click.pass_context
def copy_database(context: click.Context, *, from_url: str, to_url: str, anyway: bool) -> None:
    """Move an installation from SQLite to PostgreSQL.

    The command copies all records into the empty database TO_URL. If it fails, TO_URL stays empty.
    FROM_URL does not change. Stop the service first, because neither database can be written to
    during the copy.

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
        # This module needs the PostgreSQL client. `pending` has just checked that it is installed.
        from entrypoints.copy_database import CopyFailed, copying

        with plain_errors(CopyFailed), copying(source, target, anyway=anyway) as copy:
            with _progress("copying rows", copy.total) as move:
                counted = copy.run(on_copied=move)
            _ignore_interrupts()
            copy.commit()
        click.echo(f"{'TABLE':24}{'SQLITE':>12}{'POSTGRESQL':>12}")
        for each in counted:
            click.echo(f"{each.table:24}{each.in_sqlite:12}{each.in_postgresql:12}")


@contextmanager
def _interruptible(sentence: str) -> Iterator[None]:
    """If Ctrl-C is pressed during a `with` block, print a sentence and end the command."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    except KeyboardInterrupt:
        click.echo(f"interrupted: {sentence}", err=True)
        sys.exit(INTERRUPTED)
    finally:
        signal.signal(signal.SIGINT, handler)


def _note_interrupts() -> Event:
    """Return an event that Ctrl-C sets. Until `_interruptible` ends, Ctrl-C has no other effect."""
    noted = Event()
    signal.signal(signal.SIGINT, lambda *_: noted.set())
    return noted


def _ignore_interrupts() -> None:
    """Ignore Ctrl-C until the end of `_interruptible`, because a commit cannot be undone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _progress(label: str, length: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that advances a progress bar. The bar is shown if stderr is a terminal."""
    with click.progressbar(
        length=length,
        label=label,
        file=sys.stderr,
        hidden=not (length and sys.stderr.isatty()),
        update_min_steps=length // 1_000,
    ) as bar:
        yield bar.update
