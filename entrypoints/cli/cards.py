"""`cardonfile card`: cards on file."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from typing import Final

import click

from domain.cards.account import AccountFilter
from domain.centers.configure_payments import lists_cards
from domain.errors import EvidenceKeyMissing
from domain.fields import parse_uuid
from domain.identifiers import AccountId, MerchantAccount, PspAccount
from domain.outside import time_before
from domain.psps.payment_provider import ProviderRefused, ProviderUnavailable
from entrypoints.cli.installation import existing, installation, reading
from entrypoints.cli.terminal import (
    cell_of,
    center_option,
    duration,
    echo_json,
    echo_records,
    guest_option,
    json_option,
    limit_option,
)

COLUMNS: Final = (
    *("account_id", "guest=guest_id", "center=center_id", "provider", "merchant_account"),
    *("brand=card_logo", "last_four", "expiry=expiry_on", "default=is_default", "added=created_at"),
)
"""The columns that commands show for a card."""
WITH_REMOVED: Final = (*COLUMNS, "removed=removed_at")


def _month(value: str) -> date:
    """Parse a month such as 2026-12, and return its first day. Raises click.BadParameter."""
    try:
        return date.fromisoformat(f"{value}-01")
    except ValueError:
        raise click.BadParameter("it must be YYYY-MM, such as 2026-12") from None


@click.group()
def card() -> None:
    """List, compare and remove cards on file, and print evidence about them."""


@card.command("list")
@guest_option
@center_option
@click.option(
    "--account",
    "merchant_account",
    metavar="NAME",
    help="List only cards at this merchant account.",
)
@click.option(
    "--expires-from",
    type=_month,
    metavar="YYYY-MM",
    help="List only cards that expire in the given month or later.",
)
@click.option(
    "--expires-before",
    type=_month,
    metavar="YYYY-MM",
    help="List only cards that expire before this month.",
)
@click.option(
    "--added-since",
    "added_within",
    type=duration,
    metavar="AGO",
    help="List only cards added within this time, such as 7d.",
)
@click.option(
    "--agreement-ends-before",
    type=click.DateTime(["%Y-%m-%d"]),
    help="List only cards that guarantee a booking that ends before this day (UTC).",
)
@limit_option
@json_option
def list_(
    *,
    guest_id: str | None,
    center_id: str | None,
    merchant_account: MerchantAccount | None,
    expires_from: date | None,
    expires_before: date | None,
    added_within: timedelta | None,
    agreement_ends_before: datetime | None,
    limit: int,
    as_json: bool,
) -> None:
    """List cards on file, newest first.

    With --expires-from or --expires-before, the cards that expire soonest come first. A card
    expires at the end of its month. AGO is a time such as 12h or 7d.

    \b
    Examples:
      cardonfile card list --expires-from 2027-01 --expires-before 2027-02
      cardonfile card list --added-since 7d
      cardonfile card list --agreement-ends-before 2026-12-06
    """
    with reading() as (unit, now):
        guest, center = existing(unit, guest_id, center_id)
        wanted = AccountFilter(
            guest_id=guest,
            center_id=center,
            merchant_account=merchant_account,
            expires_from=expires_from,
            expires_before=expires_before,
            added_since=None if added_within is None else time_before(now, added_within),
            agreement_ends_before=agreement_ends_before
            and agreement_ends_before.replace(tzinfo=UTC),
            only_active=True,
        )
        found = unit.accounts.search(wanted, limit=limit)
    echo_records(COLUMNS, found, as_json=as_json, limit=limit)


@card.command()
@click.argument("account_id", metavar="ID")
@json_option
def remove(*, account_id: str, as_json: bool) -> None:
    """Remove a card here and at the PSP, as the API does.

    ID is an account id that `cardonfile card list` shows. A running `cardonfile serve` or `work`
    discards the card at the PSP. The audit trail records who removed it.

    \b
    Example:
      cardonfile card remove 607486b1-232f-43c7-906b-540453a04b21
    """
    with installation(acts=True) as container:
        known_id = AccountId(parse_uuid("account_id", account_id))
        with container.storage().read() as unit:
            known = unit.accounts.get(known_id)
        if known is None:
            raise click.ClickException(f"no card has the id {known_id}")
        if known.removed_at is not None:
            raise click.ClickException(f"the card was removed at {cell_of(known.removed_at)}")
        removed = container.remove_account()(None, account_id=known_id)
        echo_records(WITH_REMOVED, [removed], as_json=as_json)


@card.command()
@click.option(
    "--account", "merchant_account", metavar="NAME", required=True, help="The merchant account."
)
@click.option(
    "--provider", metavar="NAME", help="The PSP, if several have a merchant account of this name."
)
@json_option
def compare(*, merchant_account: MerchantAccount, provider: str | None, as_json: bool) -> None:
    """Compare the cards on file with those at the PSP.

    The command lists the cards that are stored only at the PSP, and those that are only on file.
    The exit status is 1 if the command lists any cards. Nothing is changed. A card that a guest is
    adding right now may be listed as stored only at the PSP.

    \b
    Example:
      cardonfile card compare --account default
    """
    with installation(acts=True) as container:
        psps = container.settings().psps
        able = [
            account
            for account in (PspAccount(name, merchant_account) for name in psps)
            if lists_cards(psps, account) and provider in (None, account.provider)
        ]
        if len(able) != 1:
            names = ", ".join(account.provider for account in able)
            raise click.ClickException(
                f"--provider must be one of {names}"
                if able
                else f"no PSP that is set up can list the cards of the merchant account {merchant_account}"
            )
        try:
            found = container.compare_cards()(able[0])
        except (ProviderUnavailable, ProviderRefused) as failure:
            raise click.ClickException(
                f"{able[0].provider} did not list its cards: run `cardonfile doctor` to see why"
            ) from failure
    columns = ("only", "token", "guest_reference", "guest=guest_id", "account_id")
    rows = [
        *({"only": "at_psp", **card._asdict()} for card in found.only_at_psp),
        *({"only": "on_file", **asdict(account)} for account in found.only_on_file),
    ]
    nobody = {"guest_id": None, "account_id": None}
    echo_records(columns, [nobody | row for row in rows], as_json=as_json)
    click.echo(f"cards that are in both places: {found.in_both}", err=True)
    raise SystemExit(bool(rows))


@card.command()
@click.argument("account_id", metavar="ID")
@click.option("--html", "as_html", is_flag=True, help="Print an HTML page instead of JSON.")
@click.option(
    "--after-erasure",
    is_flag=True,
    help="Print the evidence even if the guest was erased. It then lacks the name and the address.",
)
def evidence(*, account_id: str, as_html: bool, after_erasure: bool) -> None:
    """Print the signed evidence about a card, for a dispute.

    The command also works for a card that was removed. The evidence is signed JSON, as the API
    returns it, or an HTML page with the same content. The audit trail records that the evidence was
    printed.

    \b
    Example:
      cardonfile card evidence 607486b1-232f-43c7-906b-540453a04b21 >evidence.json
    """
    with installation() as container:
        known_id = parse_uuid("account_id", account_id)
        try:
            signed = container.read_evidence().for_operator(known_id, after_erasure=after_erasure)
        except EvidenceKeyMissing as missing:
            raise click.ClickException(
                "no key signs evidence: make one with `cardonfile evidence new-key FILE`, and set "
                "CARDONFILE_EVIDENCE_KEYS_FILE to the file"
            ) from missing
    if as_html:
        from adapters.evidence_page import page_of

        click.echo(page_of(signed))
    else:
        echo_json({"document": signed.document, "jws": signed.jws})
