"""The commands that list and remove cards on file."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from adapters.psp_suite.samples import GUEST_ID, NOW, OTHER_GUEST_ID, a_uuid
from adapters.system import operating_system_user
from domain.audit.entry import Action
from domain.cards.account import Account
from domain.events.event import EventType
from domain.identifiers import AccountId, MerchantAccount
from tests.builders import (
    CENTER_ID,
    OTHER_CENTER_ID,
    PROVIDER,
    a_center,
    an_account,
    an_agreement,
    an_event_endpoint,
)
from tests.databases import audit_trail, committed
from tests.entrypoints.conftest import CommandLine


def store(cardonfile: CommandLine, *accounts: Account) -> None:
    with committed(cardonfile.storage) as unit:
        unit.centers.put_many([a_center(), a_center(id=OTHER_CENTER_ID)])
        for account in accounts:
            unit.accounts.add(account)


def listed(cardonfile: CommandLine, *options: str) -> list[str]:
    """Return the account ids that `card list` shows."""
    found = json.loads(cardonfile.succeeds("card", "list", "--json", *options))
    return [each["account_id"] for each in found]


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ((), [5, 3, 2, 1]),
        (("--guest", OTHER_GUEST_ID), [2]),
        (("--center", OTHER_CENTER_ID.upper()), [3]),
        (("--account", "second"), [5]),
        (("--expires-before", "2027-01"), [1, 2]),
        (("--expires-from", "2026-12", "--expires-before", "2027-01"), [2]),
        (("--added-since", "7d"), [5]),
        (("--agreement-ends-before", "2026-03-15"), [3]),
        (("--agreement-ends-before", "2026-03-14"), []),
        (("--added-since", "999999999d"), [5, 3, 2, 1]),
    ],
)
def test_card_list_shows_cards_that_match_the_given_filters(
    cardonfile: CommandLine, options: tuple[str, ...], numbers: list[int]
) -> None:
    now = datetime.now(UTC)
    other = {"merchant_account": MerchantAccount("second"), "created_at": now - timedelta(days=6)}
    store(
        cardonfile,
        an_account(1, expiry_month=11, expiry_year=2026),
        an_account(2, expiry_month=12, expiry_year=2026, guest_id=OTHER_GUEST_ID),
        an_account(3, center_id=OTHER_CENTER_ID, created_at=now - timedelta(days=8)),
        an_account(4, removed_at=NOW),
        an_account(5, **other),
    )
    with committed(cardonfile.storage) as unit:
        # The booking ends on 14 March 2026.
        unit.agreements.add(an_agreement(account_id=AccountId(a_uuid(103))))
    assert listed(cardonfile, *options) == [a_uuid(100 + number) for number in numbers]


def test_card_list_does_not_show_payment_references(cardonfile: CommandLine) -> None:
    account = an_account(1, is_default=True)
    store(cardonfile, account)

    (row,) = json.loads(cardonfile.succeeds("card", "list", "--json"))

    assert datetime.fromisoformat(row.pop("added")) == NOW
    assert row == {
        "account_id": account.account_id,
        "guest": GUEST_ID,
        "center": CENTER_ID,
        "provider": "fake",
        "merchant_account": account.merchant_account,
        "brand": "visa",
        "last_four": "4242",
        "expiry": account.expiry_on,
        "default": True,
    }


def test_removing_a_card_records_the_operating_system_user_as_the_actor(
    cardonfile: CommandLine,
) -> None:
    account, left = an_account(1, is_default=True), an_account(2)
    store(cardonfile, account, left)
    with committed(cardonfile.storage) as unit:
        unit.event_endpoints.add(an_event_endpoint(types=(EventType.ACCOUNT_REMOVED,)))

    printed = cardonfile.succeeds("card", "remove", account.account_id.upper(), "--json")

    (removed,) = json.loads(printed)
    shown = [removed[name] for name in ("account_id", "guest", "brand", "last_four", "default")]
    assert shown == [account.account_id, GUEST_ID, "visa", "4242", False]
    assert removed["removed"] is not None
    with cardonfile.storage.read() as unit:
        assert unit.accounts.get(left.account_id) == replace(left, is_default=True)
        assert unit.discards.get(PROVIDER, account.merchant_account, account.token) is not None
        (delivery,) = unit.event_deliveries.latest(limit=9, only_failed=False)
        (entry,) = unit.audit_trail.latest()
    assert (delivery.event.type, delivery.event.status) == (EventType.ACCOUNT_REMOVED, "removed")
    assert (entry.actor, entry.action) == (operating_system_user(), Action.CARD_REMOVED)
    assert entry.about == account.account_id
    assert listed(cardonfile) == [left.account_id]
    said = cardonfile.refuses("card", "remove", account.account_id)
    assert said.startswith("the card was removed at 20")
    assert len(audit_trail(cardonfile.storage)) == 1
