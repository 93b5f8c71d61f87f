from __future__ import annotations

import pytest

from adapters.psp_suite.samples import a_uuid
from domain.cards.account import Account
from domain.errors import (
    InvalidCenterId,
    InvalidField,
    UserNotAuthorized,
)
from domain.pagination import Page, PageRequest
from domain.permissions import Caller
from tests.builders import CENTER_ID, OTHER_CENTER_ID, a_center, an_account
from tests.installation import Installation

FIRST_PAGE = PageRequest()


def listed(
    installation: Installation,
    *expires_before: str,
    caller: Caller | None = None,
    center_id: str = CENTER_ID,
    page: PageRequest = FIRST_PAGE,
) -> Page[Account]:
    return installation.use_cases.list_expiring_cards(
        caller or installation.caller,
        center_id=center_id,
        expires_before=expires_before,
        page=page,
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
def test_cards_whose_last_day_is_before_the_date_are_listed_soonest_first(
    installation: Installation, expires_before: str, soonest: list[str], total: int
) -> None:
    installation.add_accounts(
        an_account(1, expiry_month=2, expiry_year=2027),
        an_account(2, expiry_month=12, expiry_year=2026),
        an_account(3, expiry_month=3, expiry_year=2027),
    )

    page = listed(installation, expires_before, page=PageRequest(size=2))

    assert ([each.fingerprint for each in page.items], page.total) == (soonest, total)


@pytest.mark.parametrize(
    "given",
    [
        *((), ("",), ("2027-01-01", "2027-01-01"), ("2027-02-29",), ("2027-13-01",)),
        *(("0000-01-01",), ("20270101",), ("2027-W01-1",), ("2027-1-1",), (" 2027-01-01",)),
        *(("2027-01-01T00:00:00",), ("2027-01-01\n",), ("\u0662\u0660\u0662\u0667-01-01",)),
    ],
)
def test_anything_but_one_date_is_refused(
    installation: Installation, given: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidField) as refused:
        listed(installation, *given)
    assert refused.value.message == "expires_before must be a date such as 2027-01-31"


def test_only_a_center_of_the_callers_is_listed(installation: Installation) -> None:
    installation.has_center(a_center(id=OTHER_CENTER_ID))
    limited = installation.a_caller(centers=frozenset({CENTER_ID}))

    assert listed(installation, "2027-01-01", caller=limited).total == 0
    for center_id in (OTHER_CENTER_ID, a_uuid(9)):
        with pytest.raises(UserNotAuthorized):
            listed(installation, caller=limited, center_id=center_id)
    for dates, center_id in ((), "x"), (("2027-01-01",), a_uuid(9)):
        with pytest.raises(InvalidCenterId):
            listed(installation, *dates, center_id=center_id)
