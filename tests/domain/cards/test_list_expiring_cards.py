from __future__ import annotations

from collections.abc import Sequence

import pytest

from adapters.psp.contract.samples import NOW, OTHER_GUEST_ID, a_uuid
from domain.cards.account import Account
from domain.errors import (
    InvalidCenterId,
    InvalidField,
    PageParameterInvalid,
    TooManyItems,
    UserNotAuthorized,
)
from domain.pagination import Page
from domain.permissions import MAY_VIEW_CARDS, Caller, Permission
from tests.builders import CENTER_ID, OTHER_CENTER_ID, a_center, an_account
from tests.installation import Installation


def listed(
    installation: Installation,
    *expires_before: str,
    caller: Caller | None = None,
    center_id: str = CENTER_ID,
    pages: Sequence[str] = (),
    sizes: Sequence[str] = (),
) -> Page[Account]:
    return installation.use_cases.list_expiring_cards(
        caller or installation.caller,
        center_id=center_id,
        expires_before=expires_before,
        pages=pages,
        sizes=sizes,
    )


def fill(installation: Installation) -> None:
    """Store cards 1 to 8. The first five are active at the center, and expire in this order."""
    with installation.storage.write() as unit:
        for account in (
            an_account(5, expiry_month=1, expiry_year=2028),
            an_account(4, expiry_month=2, expiry_year=2027),
            an_account(2, expiry_month=12, expiry_year=2026),
            an_account(3, expiry_month=12, expiry_year=2026, guest_id=OTHER_GUEST_ID),
            an_account(1, expiry_month=3, expiry_year=2020),
            an_account(7, expiry_month=1, expiry_year=2026, removed_at=NOW),
            an_account(8, expiry_month=1, expiry_year=2026, center_id=OTHER_CENTER_ID),
        ):
            unit.accounts.add(account)
        unit.commit()


def numbers(page: Page[Account]) -> list[int]:
    return [int(account.fingerprint.removeprefix("fingerprint-")) for account in page.items]


@pytest.mark.parametrize(
    ("expires_before", "expected"),
    [
        ("0001-01-01", []),
        ("2020-03-31", []),
        ("2020-04-01", [1]),
        ("2026-12-31", [1]),
        ("2027-01-01", [1, 2, 3]),
        ("2027-01-31", [1, 2, 3]),
        ("2027-02-28", [1, 2, 3]),
        ("2027-03-01", [1, 2, 3, 4]),
        ("9999-12-31", [1, 2, 3, 4, 5]),
    ],
)
def test_cards_whose_last_day_is_before_the_date_are_listed_soonest_first(
    installation: Installation, expires_before: str, expected: list[int]
) -> None:
    fill(installation)

    page = listed(installation, expires_before)

    assert numbers(page) == expected
    assert page.total == len(expected)


def test_they_come_in_pages(installation: Installation) -> None:
    fill(installation)

    page = listed(installation, "2027-03-01", pages=["2"], sizes=["3"])

    assert (numbers(page), page.total) == ([4], 4)


@pytest.mark.parametrize(
    "given",
    [
        (),
        ("",),
        ("2027-01-01", "2027-01-01"),
        ("2027-02-29",),
        ("2027-13-01",),
        ("0000-01-01",),
        ("20270101",),
        ("2027-W01-1",),
        ("2027-1-1",),
        ("2027-01-01T00:00:00",),
        (" 2027-01-01",),
        ("2027-01-01\n",),
        ("\u0662\u0660\u0662\u0667-01-01",),
    ],
)
def test_anything_but_one_date_is_refused(
    installation: Installation, given: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidField) as refused:
        listed(installation, *given)
    assert refused.value.message == "expires_before must be a date such as 2027-01-31"


@pytest.mark.parametrize("permission", list(Permission))
def test_view_add_or_edit_permission_is_needed(
    installation: Installation, permission: Permission
) -> None:
    caller = installation.a_caller(permission)
    if permission in MAY_VIEW_CARDS.any_of:
        assert listed(installation, "2027-01-01", caller=caller).total == 0
    else:
        with pytest.raises(UserNotAuthorized):
            listed(installation, caller=caller, center_id="x", sizes=["0"])


def test_the_center_must_be_one_of_the_callers(installation: Installation) -> None:
    installation.has_center(a_center(id=OTHER_CENTER_ID))
    limited = installation.a_caller(centers=frozenset({CENTER_ID}))

    assert listed(installation, "2027-01-01", caller=limited).total == 0
    for center_id in (OTHER_CENTER_ID, a_uuid(9)):
        with pytest.raises(UserNotAuthorized):
            listed(installation, caller=limited, center_id=center_id)


def test_paging_is_checked_before_the_center(installation: Installation) -> None:
    with pytest.raises(TooManyItems):
        listed(installation, center_id="x", sizes=["101"])
    with pytest.raises(PageParameterInvalid):
        listed(installation, center_id="x", pages=["0"])


def test_a_center_that_does_not_exist_is_refused(installation: Installation) -> None:
    with pytest.raises(InvalidCenterId):
        listed(installation, center_id="x")
    with pytest.raises(InvalidCenterId):
        listed(installation, "2027-01-01", center_id=a_uuid(9))
