"""Lists of the cards on file of a guest, and of cards of a center that expire soon."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from adapters.psp_suite.samples import GUEST_ID, a_uuid
from domain.cards.account import Account
from domain.errors import (
    GuestIdNotUsable,
    GuestNotFound,
    InvalidCenterId,
    InvalidField,
    UserNotAuthorized,
)
from domain.pagination import Page, PageRequest
from domain.permissions import Caller
from tests.builders import CENTER_ID, OTHER_CENTER_ID, a_center, an_account
from tests.installation import OTHER_GOOD_CARD, Installation

FIRST_PAGE = PageRequest()


def listed(
    installation: Installation,
    caller: Caller | None = None,
    *,
    guest_id: str = GUEST_ID,
    center_ids: Sequence[str] = (),
    page: PageRequest = FIRST_PAGE,
) -> Page[Account]:
    return installation.use_cases.list_accounts(
        caller or installation.caller, guest_id=guest_id, center_ids=center_ids, page=page
    )


def test_the_cards_of_a_guest_are_listed_oldest_first(installation: Installation) -> None:
    installation.stored_card()
    second = installation.stored_card(OTHER_GOOD_CARD)

    page = listed(installation, page=PageRequest(page=2, size=1))
    assert (page.items, page.total) == ((second,), 2)


# Shows S2.
def test_a_caller_limited_to_a_center_does_not_see_cards_at_other_centers(
    installation: Installation,
) -> None:
    installation.has_other_center()
    installation.stored_card()
    there = installation.stored_card(center_id=OTHER_CENTER_ID)
    limited = installation.a_caller(centers=frozenset({OTHER_CENTER_ID}))

    assert listed(installation).total == 2
    assert listed(installation, limited).items == (there,)
    assert listed(installation, limited, center_ids=[OTHER_CENTER_ID]).items == (there,)
    assert listed(installation, center_ids=[OTHER_CENTER_ID]).items == (there,)
    with pytest.raises(UserNotAuthorized):
        listed(installation, limited, center_ids=[CENTER_ID])


def test_listing_cards_of_an_unknown_center_or_guest_is_refused(installation: Installation) -> None:
    for center_ids in (["x"], [""], [a_uuid(9)], [CENTER_ID, CENTER_ID]):
        with pytest.raises(InvalidCenterId):
            listed(installation, center_ids=center_ids)
    with pytest.raises(GuestIdNotUsable):
        listed(installation, guest_id="x")
    with pytest.raises(GuestNotFound):
        listed(installation, guest_id=a_uuid(999))


FIRST_PAGE = PageRequest()


def expiring(
    installation: Installation,
    *expires_before: str,
    caller: Caller | None = None,
    center_id: str = CENTER_ID,
    page: PageRequest = FIRST_PAGE,
) -> Page[Account]:
    return installation.use_cases.list_expiring_cards(
        caller or installation.caller, center_id=center_id, expires_before=expires_before, page=page
    )


@pytest.mark.parametrize(
    ("expires_before", "soonest", "total"),
    [
        ("0001-01-01", [], 0),
        ("2026-12-31", [], 0),
        ("2027-01-01", ["fingerprint-2"], 1),
        ("2027-02-28", ["fingerprint-2"], 1),
        ("9999-12-31", ["fingerprint-2", "fingerprint-1"], 3),
    ],
)
def test_expiring_cards_are_listed_in_order_of_their_expiry_date(
    installation: Installation, expires_before: str, soonest: list[str], total: int
) -> None:
    installation.add_accounts(
        an_account(1, expiry_month=2, expiry_year=2027),
        an_account(2, expiry_month=12, expiry_year=2026),
        an_account(3, expiry_month=3, expiry_year=2027),
    )

    page = expiring(installation, expires_before, page=PageRequest(size=2))

    assert ([each.fingerprint for each in page.items], page.total) == (soonest, total)


@pytest.mark.parametrize(
    "given",
    [
        *((), ("",), ("2027-01-01", "2027-01-01"), ("2027-02-29",), ("2027-13-01",)),
        *(("0000-01-01",), ("20270101",), ("2027-W01-1",), ("2027-1-1",), (" 2027-01-01",)),
        *(("2027-01-01T00:00:00",), ("2027-01-01\n",), ("\u0662\u0660\u0662\u0667-01-01",)),
    ],
)
def test_listing_expiring_cards_requires_exactly_one_valid_date(
    installation: Installation, given: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidField) as refused:
        expiring(installation, *given)
    assert refused.value.message == "expires_before must be a date such as 2027-01-31"


def test_a_caller_limited_to_a_center_does_not_see_expiring_cards_at_other_centers(
    installation: Installation,
) -> None:
    installation.has_center(a_center(id=OTHER_CENTER_ID))
    limited = installation.a_caller(centers=frozenset({CENTER_ID}))

    assert expiring(installation, "2027-01-01", caller=limited).total == 0
    for center_id in (OTHER_CENTER_ID, a_uuid(9)):
        with pytest.raises(UserNotAuthorized):
            expiring(installation, caller=limited, center_id=center_id)
    for dates, center_id in ((), "x"), (("2027-01-01",), a_uuid(9)):
        with pytest.raises(InvalidCenterId):
            expiring(installation, *dates, center_id=center_id)
