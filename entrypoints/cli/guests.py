"""`cardonfile guest`: what is on file about a guest, and its erasure."""

from __future__ import annotations

import click

from entrypoints.cli.cards import card_record
from entrypoints.cli.installation import installation
from entrypoints.cli.sessions import session_record
from entrypoints.cli.terminal import echo_json, echo_records, json_option, personal_option

_CARDS = (
    *("account_id", "center", "brand", "last_four", "expiry", "state", "default"),
    *("added", "removed"),
)
_SESSIONS = ("prefix", "created", "center", "caller", "status", "progress", "reason")


@click.group()
def guest() -> None:
    """Show, export and erase what is on file about a guest.

    \b
    Example:
      cardonfile guest show 0b54f1d7-63c7-4a34-9c5c-0b6a2f1f2f11
    """


@guest.command()
@click.argument("guest_id", metavar="ID")
@personal_option
@json_option
def show(*, guest_id: str, personal: bool, as_json: bool) -> None:
    """Show a guest's cards, also removed ones, and latest sessions.

    \b
    Example:
      cardonfile guest show 0b54f1d7-63c7-4a34-9c5c-0b6a2f1f2f11
    """
    with installation() as container:
        now = container.clock().now()
        found = container.show_guest()(guest_id)
        known: dict[str, object] = {"id": found.guest_id}
        if personal and found.guest is not None:
            container.note_personal_data_shown()(found.guest_id)
            name, email = f"{found.guest.first_name} {found.guest.last_name}", found.guest.email
            known |= {"name": name, "email": email}
        cards = [card_record(each, now) for each in found.accounts]
        sessions = [session_record(each) for each in found.sessions]
        if as_json:
            echo_json({**known, "cards": cards, "sessions": sessions})
            return
        echo_records(known, [known], as_json=False)
        for columns, records in ((_CARDS, cards), (_SESSIONS, sessions)):
            click.echo()
            echo_records(columns, records, as_json=False)


@guest.command()
@click.argument("guest_id", metavar="ID")
def export(*, guest_id: str) -> None:
    """Print everything on file about a guest as JSON; the audit trail notes it.

    It has names and addresses, and nothing that could open a link or charge a card.

    \b
    Example:
      cardonfile guest export 0b54f1d7-63c7-4a34-9c5c-0b6a2f1f2f11 >guest.json
    """
    with installation() as container:
        echo_json(container.export_guest()(guest_id))


@guest.command()
@click.argument("guest_id", metavar="ID", required=False)
@click.option("--again", is_flag=True, help="Erase the guests whom a restored backup brought back.")
def erase(*, guest_id: str | None, again: bool) -> None:
    """Erase a guest, for good: names, addresses, cards; here and at the PSPs.

    A running `cardonfile serve` or `work` does what is left at the PSPs. With --again, everybody in
    CARDONFILE_ERASURES_FILE who is in the database is erased.

    \b
    Example:
      cardonfile guest erase 0b54f1d7-63c7-4a34-9c5c-0b6a2f1f2f11
    """
    if again == (guest_id is not None):
        raise click.UsageError("give either ID or --again")
    with installation() as container:
        if guest_id is not None:
            container.erase_guest()(None, guest_id=guest_id)
            click.echo(f"erased {guest_id}")
            return
        erased = container.erase_again()()
        for each in erased:
            click.echo(f"erased {each}")
        click.echo(f"erased again: {len(erased)}")
