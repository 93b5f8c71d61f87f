"""`cardonfile consent`: the consent texts, and the guests' consents."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

import click

from domain.agreements.reservation_text import MAX_FILE_LENGTH
from domain.cards.find_account import account_with
from domain.cards.queries import consents_of
from domain.consents.set_consent import NoTextShipped
from domain.languages import DEFAULT_LANGUAGE
from domain.psps.capabilities import ConsentTooLong
from entrypoints.cli.installation import installation, reading
from entrypoints.cli.terminal import (
    echo_records,
    json_option,
)

if TYPE_CHECKING:
    from entrypoints.container import Container

GENERAL, RESERVATION = "general", "reservation"


@click.group()
def consent() -> None:
    """Set consent texts, and show the texts to which guests agreed."""


@consent.command()
@click.argument("account_id", metavar="ACCOUNT_ID")
@json_option
def show(*, account_id: str, as_json: bool) -> None:
    """Show the texts to which a guest agreed for a card.

    The command also works for a card that was removed. The current consent comes first. Consents
    that the guest gave earlier follow, newest first. A text that is not stored is shown as -.

    \b
    Example:
      cardonfile consent show 607486b1-232f-43c7-906b-540453a04b21
    """
    with reading() as (unit, _):
        given = consents_of(unit, account_with(unit, account_id))
    echo_records(("agreed_at", "version", "language", "text"), given, as_json=as_json)


@consent.command("set")
@click.option("--center", "center_id", metavar="ID", required=True, help="The center.")
@click.option("--language", metavar="TAG", required=True, help="The language, such as de or pt-BR.")
@click.option(
    "--for",
    "purpose",
    type=click.Choice([GENERAL, RESERVATION]),
    default=GENERAL,
    show_default=True,
    help="Whether the text is about later charges in general, or about charges for one booking.",
)
@click.option(
    "--file",
    "text",
    type=click.File(encoding="utf-8"),
    help="Your own text, in UTF-8; {center} stands for the center's name.  [default: the shipped text]",
)
@click.option("--none", is_flag=True, help="Switch the language off.")
def set_(*, center_id: str, language: str, purpose: str, text: TextIO | None, none: bool) -> None:
    """Switch on a language for the guests of a center.

    Guests then read the consent text in this language and agree to it; until then, they read
    English. The text is legally binding for the center, so have a lawyer approve it first. If a
    release ships a newer text, run the command again to use it.

    With --for reservation, the command sets the text about a booking, and prints that text for an
    example booking. --file is then a TOML file.

    \b
    Examples:
      cardonfile consent set --center 7d9f2c54-3f0e-4a53-9c1b-0d6f5be1a2c3 --language de
      cardonfile consent set --center 7d9f2c54-3f0e-4a53-9c1b-0d6f5be1a2c3 --language de --none
    """
    if none and text:
        raise click.UsageError("give either --file or --none, not both")
    with installation() as container:
        try:
            own = text.read(MAX_FILE_LENGTH * 2) if text else None
            if purpose == RESERVATION:
                _set_reservation_text(container, center_id, language, own=own, off=none)
                return
            done = container.set_consent()(center_id, language, own=own, off=none)
        except UnicodeDecodeError:
            raise click.ClickException(
                "--file: the text is not UTF-8: save the file as UTF-8"
            ) from None
        except (NoTextShipped, ConsentTooLong) as refused:
            raise click.ClickException(str(refused)) from refused
        if done.text is None:
            is_english = language.lower() == DEFAULT_LANGUAGE
            now = "the shipped English text" if is_english else f"no text in {language}"
            click.echo(f"guests of {done.center.name} read {now}")
            return
        click.echo(f"guests of {done.center.name} agree to this, version {done.text.version}:")
        click.echo(f"  {done.text.at(done.center).text}")
        if done.not_shown_by is not None:
            click.echo(
                f"{done.not_shown_by}'s page does not support {done.text.language}, so guests "
                "do not see the text there",
                err=True,
            )


def _set_reservation_text(
    container: Container, center_id: str, language: str, *, own: str | None, off: bool
) -> None:
    done = container.set_reservation_text()(center_id, language, own=own, off=off)
    if done.text is None or done.example is None:
        click.echo(f"{done.center.name} has no text about bookings in {language}")
        return
    click.echo(
        f"the text of {done.center.name} about bookings, version {done.text.version}, with an example:"
    )
    for paragraph in done.example.text.splitlines():
        click.echo(f"  {paragraph}")
    click.echo(f"  [ ] {done.example.keep}")
    click.echo(f"  [{done.example.button}]")
