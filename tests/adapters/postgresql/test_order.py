"""Lists have one order, however the server reads the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from itertools import permutations
from typing import Any, Final

import pytest

from adapters.postgresql.storage import PostgresqlStorage
from adapters.psp_suite.samples import GUEST_ID, a_uuid
from domain.identifiers import CenterId, EndpointId, TokenId
from domain.pagination import PageRequest
from domain.sessions.session import SessionFilter
from domain.storage import UnitOfWork, WriteUnit
from tests.builders import (
    CENTER_ID,
    a_center,
    a_session,
    an_access_token,
    an_account,
    an_event_delivery,
    an_event_endpoint,
)
from tests.contracts.storage.records import ADD, UPDATE, kind
from tests.databases import transaction_of

ADDED: Final = (31, 33, 32)
"""Each update moves its row behind the others, if there is no room before them."""

# What the port can change of a token would not leave it as it is.
TOUCH_TOKEN: Final = "UPDATE access_tokens SET caller = caller WHERE token_hash = :token_hash"

FORWARD: Final = (31, 32, 33)
BACKWARD: Final = (33, 32, 31)

# The records are of many types, so they are Any.
MOVE: Final[dict[str, Callable[[WriteUnit, Any], object]]] = {
    **UPDATE,
    "AccessToken": lambda unit, each: transaction_of(unit).execute(
        TOUCH_TOKEN, {"token_hash": each.token_hash}
    ),
}
LISTS: Final[
    dict[str, tuple[Callable[[int], Any], Callable[[UnitOfWork], Sequence[Any]], Sequence[int]]]
] = {
    "centers": (
        lambda number: a_center(id=CenterId(a_uuid(number))),
        lambda unit: unit.centers.page(None, PageRequest()).items,
        FORWARD,
    ),
    "sessions of a guest": (
        lambda number: a_session(token_id=TokenId(a_uuid(number))),
        lambda unit: unit.sessions.page(GUEST_ID, None, PageRequest()).items,
        BACKWARD,
    ),
    "sessions that are searched": (
        lambda number: a_session(token_id=TokenId(a_uuid(number))),
        lambda unit: unit.sessions.search(SessionFilter(), limit=9),
        BACKWARD,
    ),
    "cards of a guest": (
        an_account,
        lambda unit: unit.accounts.page(GUEST_ID, None, PageRequest()).items,
        ADDED,
    ),
    "cards of a guest at a center": (
        an_account,
        lambda unit: unit.accounts.active_at(GUEST_ID, CENTER_ID),
        ADDED,
    ),
    "cards that expire": (
        an_account,
        lambda unit: (
            unit.accounts.page_expiring(CENTER_ID, before=date.max, request=PageRequest()).items
        ),
        ADDED,
    ),
    "latest events": (
        an_event_delivery,
        lambda unit: unit.event_deliveries.latest(limit=9, only_failed=False),
        BACKWARD,
    ),
    "deliveries of an event": (
        lambda number: an_event_delivery(endpoint_id=EndpointId(a_uuid(number))),
        lambda unit: unit.event_deliveries.of(an_event_delivery().event.event_id),
        FORWARD,
    ),
    "latest deliveries of an event": (
        lambda number: an_event_delivery(endpoint_id=EndpointId(a_uuid(number))),
        lambda unit: unit.event_deliveries.latest(limit=9, only_failed=False),
        BACKWARD,
    ),
    "endpoints": (
        lambda number: an_event_endpoint(
            endpoint_id=EndpointId(a_uuid(number)), url=f"https://{number}.example"
        ),
        lambda unit: unit.event_endpoints.all(),
        FORWARD,
    ),
    "access tokens": (
        lambda number: an_access_token(token_hash=str(number)),
        lambda unit: unit.access_tokens.all(),
        ADDED,
    ),
}


@pytest.mark.parametrize(("record", "listed", "order"), LISTS.values(), ids=LISTS)
def test_rows_with_equal_sort_keys_are_always_listed_in_the_same_order(
    storage: PostgresqlStorage,
    record: Callable[[int], Any],
    listed: Callable[[UnitOfWork], Sequence[Any]],
    order: Sequence[int],
) -> None:
    with storage.write() as unit:
        for each in map(record, ADDED):
            ADD[kind(each)](unit, each)
        unit.commit()
    # Where the server puts a row depends on what was there before, so one order may be the right one.
    for numbers in permutations(ADDED):
        with storage.write() as unit:
            for each in map(record, numbers):
                MOVE[kind(each)](unit, each)
            unit.commit()
        with storage.read() as reading:
            for scans in ("on", "off"):
                for scan in ("indexscan", "indexonlyscan", "bitmapscan"):
                    transaction_of(reading).execute(f"SET LOCAL enable_{scan} = {scans}")
                assert list(listed(reading)) == [record(number) for number in order]
