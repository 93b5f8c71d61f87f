"""`cardonfile guest`: show, export, merge and erase the stored data of guests."""

from __future__ import annotations

import click

from domain.audit.entry import Action
from domain.billing import is_email_address
from domain.cards.account import AccountFilter
from domain.errors import GuestNotFound, InvalidField
from domain.fields import parse_uuid
from domain.identifiers import GuestId
from domain.pagination import ALL, MAX_SIZE, PageRequest
from domain.personal_data.erasure import Erasure
from domain.sessions.session import SessionFilter
from entrypoints.cli import cards, sessions
from entrypoints.cli.installation import how_ended, installation
from entrypoints.cli.terminal import echo_json, echo_record, echo_records, json_option


@click.group()
def guest() -> None:
    """Show, export, merge and erase a guest's stored data."""


@guest.command()
@click.argument("guest_id", metavar="ID")
@click.option(
    "--personal",
    is_flag=True,
    help="Also show the guest's name and e-mail address. The audit trail records this act.",
)
@json_option
def show(*, guest_id: str, personal: bool, as_json: bool) -> None:
    """Show a guest's cards and latest sessions.

    Removed cards are shown too. ID may be an e-mail address instead. If several guests have this
    address, their ids are listed.

    \b
    Example:
      cardonfile guest show 0b54f1d7-63c7-4a34-9c5c-0b6a2f1f2f11
    """
    with installation() as container:
        if is_email_address(guest_id):
            with container.storage().read() as unit:
                found = unit.guests.with_email(guest_id, PageRequest(size=MAX_SIZE)).items
            if not found:
                raise GuestNotFound
            if len(found) > 1:
                echo_records(("id",), found, as_json=as_json, limit=MAX_SIZE)
                return
            guest_id = found[0].id
        known_id = GuestId(parse_uuid("guest_id", guest_id))
        with container.storage().read() as unit:
            known = unit.guests.get(known_id)
            accounts = unit.accounts.search(AccountFilter(guest_id=known_id), limit=MAX_SIZE)
            latest = unit.sessions.search(SessionFilter(guest_id=known_id), limit=MAX_SIZE)
            erasure = unit.erasures.get(known_id)
        if not (known or accounts or latest or erasure):
            raise GuestNotFound
        fields: dict[str, object] = {"id": known_id}
        if erasure is not None:
            fields |= _ended(erasure)
        if personal and known is not None:
            container.note_operators_act()(Action.PERSONAL_DATA_SHOWN, known_id)
            fields |= {"name": f"{known.first_name} {known.last_name}", "email": known.email}
        echo_record(
            fields,
            as_json=as_json,
            cards=(cards.WITH_REMOVED, accounts),
            sessions=(sessions.COLUMNS, latest),
        )


@guest.command()
@click.argument("guest_id", metavar="ID")
def export(*, guest_id: str) -> None:
    """Print everything on file about a guest as JSON.

    The export contains names and addresses. It does not contain anything that could open a link or
    charge a card. The audit trail records the export.

    \b
    Example:
      cardonfile guest export 0b54f1d7-63c7-4a34-9c5c-0b6a2f1f2f11 >guest.json
    """
    with installation() as container:
        echo_json(container.export_guest()(guest_id))


@guest.command()
@click.argument("guest_id", metavar="ID")
@click.option(
    "--from", "merged_id", metavar="ID", required=True, help="The guest to merge into ID."
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def merge(*, guest_id: str, merged_id: str, yes: bool) -> None:
    """Merge another guest into a guest, permanently.

    The command shows the names, addresses and cards of both guests, and asks for confirmation. The
    cards, consents and sessions of the other guest move to the guest ID, and the other id is never
    used again. A merge cannot be undone. The audit trail records what was shown and done.

    \b
    Example:
      cardonfile guest merge 0b54f1d7-63c7-4a34-9c5c-0b6a2f1f2f11 --from 6a1f1d4e-2f0b-4d7a-9a3e-5b8f5f0f7c11
    """
    with installation(acts=True) as container:
        remaining = GuestId(parse_uuid("guest_id", guest_id))
        merged = GuestId(parse_uuid("merged_id", merged_id))
        if merged == remaining:
            raise InvalidField("merged_id", "the id of another guest")
        with container.storage().read() as unit:
            both = [unit.guests.get(each) for each in (remaining, merged)]
            found = [
                unit.accounts.search(AccountFilter(guest_id=each, only_active=True), limit=ALL)
                for each in (remaining, merged)
            ]
        for title, known, accounts in zip(
            ("remaining guest", "merged guest"), both, found, strict=True
        ):
            if known is None or None in both:
                raise GuestNotFound
            container.note_operators_act()(Action.PERSONAL_DATA_SHOWN, known.id)
            fields = {title: known.id, "name": known.full_name, "email": known.email}
            echo_record(fields, as_json=False, cards=(cards.COLUMNS, accounts))
            click.echo()
        last_fours = [account.last_four for accounts in found for account in accounts]
        if not yes:
            click.confirm("Merge these guests? This cannot be undone", abort=True, err=True)
        container.merge_guests()(None, guest_id=remaining, merged_id=merged, last_fours=last_fours)
        click.echo(f"merged {merged} into {remaining}")
        if container.settings().erasures_file is None:
            click.echo(
                "Warning: CARDONFILE_ERASURES_FILE is not set, so restoring an older backup would bring "
                "the guest back",
                err=True,
            )


@guest.command()
@click.argument("guest_id", metavar="ID", required=False)
@click.option(
    "--again", is_flag=True, help="Erase all guests whom a restored backup has brought back."
)
def erase(*, guest_id: str | None, again: bool) -> None:
    """Erase a guest permanently, here and at the PSPs.

    Names, addresses and cards are erased. A running `cardonfile serve` or `work` deletes the guest
    at the PSPs. With --again, the command erases all guests in CARDONFILE_ERASURES_FILE who are not
    erased in this database.

    \b
    Example:
      cardonfile guest erase 0b54f1d7-63c7-4a34-9c5c-0b6a2f1f2f11
    """
    if again == (guest_id is not None):
        raise click.UsageError("give either ID or --again")
    with installation(acts=True) as container:
        is_remembered = container.settings().erasures_file is not None
        if again and not is_remembered:
            raise click.ClickException("--again needs CARDONFILE_ERASURES_FILE, which is not set")
        if guest_id is not None:
            known_id = GuestId(parse_uuid("guest_id", guest_id))
            with container.storage().read() as unit:
                erasure = unit.erasures.get(known_id)
            if erasure is not None:
                raise click.ClickException(f"guest {known_id} {how_ended(erasure)}")
            container.erase_guest()(None, guest_id=known_id)
            click.echo(f"erased {known_id}")
            click.echo(
                "A running worker erases the guest from open pages and at the PSPs within minutes. When it "
                f"is done, `cardonfile guest show {known_id}` shows the time in erased_everywhere."
            )
            if not is_remembered:
                click.echo(
                    "Warning: CARDONFILE_ERASURES_FILE is not set, so restoring an older backup would bring "
                    "the guest back",
                    err=True,
                )
            return
        erased = container.erase_guest().repeat_from_file()
        with container.storage().read() as unit:
            ended = [unit.erasures.get(each) for each in erased]
        for each in filter(None, ended):
            into = f" into {each.merged_into}" if each.merged_into else ""
            click.echo(f"{'merged' if into else 'erased'} {each.guest_id}{into}")
        click.echo(f"erased again: {len(erased)}")


def _ended(erasure: Erasure) -> dict[str, object]:
    """Return the output fields about the erasure or the merge of a guest."""
    if erasure.merged_into is not None:
        return {"merged": erasure.erased_at, "merged_into": erasure.merged_into}
    return {"erased": erasure.erased_at, "erased_everywhere": erasure.done_at}
