from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from adapters.psp_suite.concurrency import at_once
from adapters.psp_suite.samples import NOW, OTHER_GUEST_ID, TOKEN_ID, a_uuid
from domain.centers.card_limit import CardLimit, Counted, CountedPer
from domain.identifiers import TokenId
from domain.storage import Storage, WriteUnit
from tests.builders import OTHER_CENTER_ID, a_refused_card, a_session
from tests.contracts.storage.records import (
    DAY,
    MINUTE,
    OTHER_TOKEN_ID,
    store,
)
from tests.databases import committed


# Shows S23.
@pytest.mark.parametrize("counted", Counted)
@pytest.mark.parametrize(
    ("per", "another"),
    [
        (CountedPer.GUEST, {"guest_id": OTHER_GUEST_ID}),
        (CountedPer.GUEST, {"center_id": OTHER_CENTER_ID}),
        (CountedPer.GUEST_EVERYWHERE, {"guest_id": OTHER_GUEST_ID}),
        (CountedPer.CALLER, {"caller": "kiosk"}),
        (CountedPer.CENTER, {"center_id": OTHER_CENTER_ID}),
    ],
)
def test_a_limit_counts_only_recent_records_of_its_guest_caller_or_center(
    storage: Storage, counted: Counted, per: CountedPer, another: dict[str, Any]
) -> None:
    with committed(storage) as unit:
        for number, (of, minutes) in enumerate([({}, 0), ({}, 1), ({}, 2), ({}, 3), (another, 4)]):
            changes = {**of, "token_id": TokenId(a_uuid(500 + number))}
            time = NOW + minutes * MINUTE
            if counted is Counted.SESSIONS:
                unit.sessions.add(a_session(**changes, created_at=time))
            else:
                unit.refused_cards.add([a_refused_card(**changes, refused_at=time)])
    limits = [CardLimit(counted, per, at_most) for at_most in range(1, 5)]
    with storage.read() as unit:
        # A record stops counting at the moment when it is 24 hours old, as the first record is.
        reached = unit.refused_cards.reached(limits, a_session(), since=NOW)
        of_another = unit.refused_cards.reached(limits, a_session(**another), since=NOW)
    assert reached == {
        limits[0]: NOW + 3 * MINUTE,
        limits[1]: NOW + 2 * MINUTE,
        limits[2]: NOW + MINUTE,
    }
    assert of_another == {limits[0]: NOW + 4 * MINUTE}


# Shows S23.
def test_concurrent_units_do_not_exceed_the_limit_for_a_guest(storage: Storage) -> None:
    limits = [CardLimit(Counted.SESSIONS, CountedPer.GUEST, 3)]

    def add_below_the_limit(number: int) -> bool:
        def add(unit: WriteUnit) -> bool:
            if unit.refused_cards.reached(limits, a_session(), since=NOW - DAY):
                return False
            unit.sessions.add(a_session(token_id=TokenId(a_uuid(500 + number))))
            unit.commit()
            return True

        return storage.transact(add)

    assert sum(at_once(4, add_below_the_limit)) == 3


def test_adding_a_refused_card_again_does_not_change_the_stored_card(storage: Storage) -> None:
    for minutes in (0, 1):
        cards = [
            a_refused_card(number=number, refused_at=NOW + minutes * MINUTE)
            for number in range(minutes + 1)
        ]
        with committed(storage) as unit:
            assert unit.refused_cards.add(cards) == 1
            assert unit.refused_cards.add(cards) == 0
    limits = [CardLimit(Counted.REFUSED_CARDS, CountedPer.GUEST, most) for most in (1, 2, 3)]
    with storage.read() as unit:
        reached = unit.refused_cards.reached(limits, a_session(), since=NOW - DAY)
    assert reached == {limits[0]: NOW + MINUTE, limits[1]: NOW}


def test_the_limit_for_a_guest_also_counts_sessions_at_other_centers(storage: Storage) -> None:
    store(storage, a_session(), a_session(token_id=OTHER_TOKEN_ID, center_id=OTHER_CENTER_ID))
    limits = [CardLimit(Counted.SESSIONS, per, 2) for per in CountedPer]
    with storage.read() as unit:
        reached = unit.refused_cards.reached(limits, a_session(), since=NOW - DAY)
    assert {each.per for each in reached} == {CountedPer.GUEST_EVERYWHERE, CountedPer.CALLER}


def test_the_refused_cards_of_a_session_are_listed_with_their_codes(storage: Storage) -> None:
    first = a_refused_card(code="insufficient_funds")
    second = a_refused_card(number=2, refused_at=NOW + MINUTE)
    on_next_page = a_refused_card(attempt=2, code="expired_card", refused_at=NOW + MINUTE)
    with committed(storage) as unit:
        unit.refused_cards.add([on_next_page, second, first])
        unit.refused_cards.add([a_refused_card(token_id=OTHER_TOKEN_ID)])
        # A card that is already stored does not change.
        unit.refused_cards.add([replace(second, code="lost_card")])
    with storage.read() as unit:
        assert unit.refused_cards.of(TOKEN_ID) == (first, second, on_next_page)
