"""`cardonfile card`: cards on file."""

from __future__ import annotations

from datetime import datetime, timedelta

import click

from domain.cards.account import Account
from entrypoints.cli.installation import installation
from entrypoints.cli.terminal import Duration, echo_records, json_option, limit_option

_MONTH = click.DateTime(formats=["%Y-%m"])


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
@click.option("--removed", is_flag=True, help="Those that were removed instead.")
@limit_option
@json_option
def list_(
    *,
    guest: str | None,
    center: str | None,
    merchant_account: str | None,
    expires_from: datetime | None,
    expires_before: datetime | None,
    added_within: timedelta | None,
    removed: bool,
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
    with installation() as container:
        now = container.clock().now()
        accounts = container.list_cards()(
            guest=guest,
            center=center,
            merchant_account=merchant_account,
            expires_from=expires_from and expires_from.date(),
            expires_before=expires_before and expires_before.date(),
            added_within=added_within,
            removed=removed,
            limit=limit,
        )
        columns = (
            *("account_id", "guest", "center", "provider", "merchant_account"),
            *("brand", "last_four", "expiry", "state", "default", "added"),
            *(("removed",) if removed else ()),
        )
        records = (card_record(each, now) for each in accounts)
        echo_records(columns, records, as_json=as_json, limit=limit)


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


def card_record(account: Account, now: datetime) -> dict[str, object]:
    """Return what commands show of a card as of `now`, by column."""
    expired = "expired" if account.has_expired(now) else "active"
    return {
        "account_id": account.account_id,
        "guest": account.guest_id,
        "center": account.center_id,
        "provider": account.provider,
        "merchant_account": account.merchant_account,
        "brand": account.card_logo,
        "last_four": account.last_four,
        "expiry": account.expiry_on,
        "state": expired if account.removed_at is None else "removed",
        "default": account.is_default,
        "added": account.created_at,
        "removed": account.removed_at,
    }
