"""Rows with values from another release that this release cannot decode."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from typing import Final

import pytest
from structlog.testing import capture_logs

from adapters.psp_suite.samples import MERCHANT_ACCOUNT, NOW, a_uuid
from adapters.sql.repositories.cards import _ACCOUNTS, _DISCARDS
from domain.cards.discard import Discard
from domain.identifiers import CardToken, EndpointId
from domain.pagination import PageRequest
from domain.storage import RecordUnreadable, Storage
from tests.builders import (
    CENTER_ID,
    PROVIDER,
    a_configuration,
    a_discard,
    an_access_token,
    an_account,
    an_event_delivery,
    an_event_endpoint,
)
from tests.contracts.storage.records import DAY, MICROSECOND, MINUTE
from tests.databases import change_by_hand, committed

UNREADABLE: Final = "odd"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardOfAnotherRelease(Discard):
    """The discard type of a release that cannot decode the token UNREADABLE."""

    def __post_init__(self) -> None:
        if self.token == UNREADABLE:
            raise ValueError


def test_an_unreadable_account_does_not_block_the_expiry_notices_about_other_accounts(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A process logs each row only once, and other tests run in the same process.
    monkeypatch.setattr(_ACCOUNTS, "_logged", set())
    unreadable = an_account(4).account_id
    with committed(storage) as unit:
        for number in (1, 2, 3):
            due_at = NOW - DAY / number
            unit.accounts.add(an_account(number, expiry_notice_at=due_at))
        unit.accounts.add(an_account(4, expiry_notice_at=NOW - DAY * 2))
    change_by_hand(
        storage, f"UPDATE payment_accounts SET source = 99 WHERE account_id = '{unreadable}'"
    )

    found = []
    with capture_logs() as lines:
        for at_most in (2, 2, 9):
            with committed(storage) as unit:
                found.append(
                    unit.accounts.with_expiry_notice_due(
                        NOW, at_most=at_most, unreadable_until=NOW + DAY
                    )
                )
        with storage.read() as unit, pytest.raises(RecordUnreadable):
            unit.accounts.get(unreadable)
        with storage.read() as unit:
            page = unit.accounts.page_expiring(
                CENTER_ID, before=date(2032, 1, 1), request=PageRequest(size=9)
            )

    assert [[each and each.token for each in taken] for taken in found] == [
        [None, "token-1"],
        ["token-1", "token-2"],
        ["token-1", "token-2", "token-3"],
    ]
    assert [(each["table"], each["key"]) for each in lines] == [("payment_accounts", unreadable)]
    assert (len(page.items), page.total) == (3, 4)


def test_an_unreadable_account_is_skipped_until_its_lease_ends(storage: Storage) -> None:
    with committed(storage) as unit:
        for number in (1, 2, 3):
            unit.accounts.add(an_account(number, due_at=NOW - MINUTE * (4 - number)))
    change_by_hand(
        storage,
        f"UPDATE payment_accounts SET source = 99 WHERE account_id = '{an_account(1).account_id}'",
    )

    taken = []
    for now in (NOW, NOW + MICROSECOND, NOW + MICROSECOND, NOW + 2 * MINUTE):
        with committed(storage) as unit:
            account = unit.accounts.take_due(now, until=now + MINUTE)
            taken.append(account and account.token)
    assert taken == ["token-2", "token-3", None, "token-2"]


def test_an_unreadable_discard_is_skipped_until_its_lease_ends(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every value that PostgreSQL accepts in this table can be decoded.
    monkeypatch.setattr(_DISCARDS, "_record_type", DiscardOfAnotherRelease)
    monkeypatch.setattr(_DISCARDS, "_logged", set())
    due = {"first": NOW - 3 * MINUTE, UNREADABLE: NOW - 2 * MINUTE, "last": NOW - MINUTE}
    with committed(storage) as unit:
        for token, due_at in due.items():
            unit.discards.add(a_discard(token=CardToken(token), due_at=due_at))

    taken = []
    with capture_logs() as lines:
        for now in (NOW, NOW + MICROSECOND, NOW + MICROSECOND, NOW + 2 * MINUTE):
            with committed(storage) as unit:
                discard = unit.discards.take_due(now, until=now + MINUTE)
                taken.append(discard and discard.token)
    assert taken == ["first", "last", None, "first"]
    assert [(each["event"], each["key"]) for each in lines] == [
        ("record_unreadable", f"{PROVIDER}/{MERCHANT_ACCOUNT}/{UNREADABLE}…")
    ]


def test_lists_for_operators_omit_rows_that_cannot_be_decoded(storage: Storage) -> None:
    other = EndpointId(a_uuid(401))
    with committed(storage) as unit:
        unit.event_endpoints.add(an_event_endpoint())
        unit.event_endpoints.add(an_event_endpoint(endpoint_id=other, url="https://other.example"))
        for endpoint_id in (an_event_endpoint().endpoint_id, other):
            unit.event_deliveries.add(an_event_delivery(endpoint_id=endpoint_id))
        unit.access_tokens.add(an_access_token())
        unit.access_tokens.add(replace(an_access_token(), token_hash="other"))
    for statement in (
        f"UPDATE event_endpoints SET secrets = '{{}}' WHERE endpoint_id <> '{other}'",
        f"UPDATE event_deliveries SET status = 'lost' WHERE endpoint_id <> '{other}'",
        "UPDATE access_tokens SET caller = '{}' WHERE token_hash <> 'other'",
    ):
        change_by_hand(storage, statement)

    with storage.read() as unit:
        assert [each.endpoint_id for each in unit.event_endpoints.all()] == [other]
        (delivery,) = unit.event_deliveries.latest(limit=9, only_failed=False)
        assert delivery.endpoint_id == other
        assert [each.token_hash for each in unit.access_tokens.all()] == ["other"]
        for get in (
            partial(unit.event_endpoints.get, an_event_endpoint().endpoint_id),
            partial(unit.event_deliveries.of, delivery.event.event_id),
            partial(unit.access_tokens.get, an_access_token().token_hash),
        ):
            with pytest.raises(RecordUnreadable):
                get()


def test_the_merchant_account_of_an_unreadable_configuration_can_still_be_read(
    storage: Storage,
) -> None:
    with committed(storage) as unit:
        unit.configurations.put(CENTER_ID, a_configuration())
    change_by_hand(storage, "UPDATE payment_configurations SET cards_per_guest = 'three'")

    with storage.read() as unit:
        assert unit.configurations.all() == ()
        assert unit.configurations.psp_accounts() == {a_configuration().psp_account}
