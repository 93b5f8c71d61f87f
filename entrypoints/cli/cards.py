"""`cardonfile card`: cards on file."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import click

from domain.cards.account import AccountFilter
from domain.fields import parse_uuid
from domain.identifiers import CenterId, GuestId, MerchantAccount
from domain.outside import time_before
from entrypoints.cli.installation import installation, reading
from entrypoints.cli.terminal import Duration, echo_records, json_option, limit_option

COLUMNS: Final = (
    *("account_id", "guest=guest_id", "center=center_id", "provider", "merchant_account"),
    *("brand=card_logo", "last_four", "expiry=expiry_on", "default=is_default", "added=created_at"),
)
"""What commands show of a card."""

_MONTH: Final = click.DateTime(formats=["%Y-%m"])


@click.group()
def card() -> None:
    """List and remove cards on file.

    \b
    Example:
      cardonfile card list --added-since 7d
    """


@card.command("list")
@click.option("--guest", metavar="ID", help="Only the cards of this guest.")
@click.option("--center", metavar="ID", help="Only the cards at this center.")
@click.option(
    "--account", "merchant_account", metavar="NAME", help="Only at this merchant account."
)
@click.option(
    "--expires-from", type=_MONTH, metavar="YYYY-MM", help="Only those that expire in it or later."
)
@click.option(
    "--expires-before", type=_MONTH, metavar="YYYY-MM", help="Only those that expire before it."
)
@click.option(
    "--added-since", "added_within", type=Duration(), metavar="AGO", help="Only those added since."
)
@limit_option
@json_option
def list_(
    *,
    guest: str | None,
    center: str | None,
    merchant_account: MerchantAccount | None,
    expires_from: datetime | None,
    expires_before: datetime | None,
    added_within: timedelta | None,
    limit: int,
    as_json: bool,
) -> None:
    """List cards on file, the newest first; with a month, those that expire first.

    A card expires with the end of its month. AGO is a time such as 12h or 7d.

    \b
    Examples:
      cardonfile card list --expires-from 2027-01 --expires-before 2027-02
      cardonfile card list --added-since 7d
    """
    with reading() as (unit, now):
        wanted = AccountFilter(
            guest_id=None if guest is None else GuestId(parse_uuid("guest", guest)),
            center_id=None if center is None else CenterId(parse_uuid("center", center)),
            merchant_account=merchant_account,
            expires_from=expires_from and expires_from.date(),
            expires_before=expires_before and expires_before.date(),
            added_since=None if added_within is None else time_before(now, added_within),
            are_removed=False,
        )
        found = unit.accounts.search(wanted, limit=limit)
        echo_records(COLUMNS, found, as_json=as_json, limit=limit)


@card.command()
@click.argument("account_id", metavar="ID")
def remove(*, account_id: str) -> None:
    """Remove a card, also at the PSP, as the API does.

    ID is an account id that `cardonfile card list` shows. The audit trail notes who did it. A running
    `cardonfile serve` or `work` discards it at the PSP.

    \b
    Example:
      cardonfile card remove 607486b1-232f-43c7-906b-540453a04b21
    """
    with installation() as container:
        removed = container.remove_card()(account_id)
        click.echo(
            f"removed {removed.account_id} of guest {removed.guest_id}: "
            f"{removed.card_logo} {removed.last_four}"
        )
