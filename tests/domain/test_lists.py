from __future__ import annotations

from collections.abc import Sequence

import pytest

from adapters.psp.contract.samples import GUEST_ID, a_uuid
from domain.cards.account import PaymentAccount
from domain.errors import (
    GuestIdNotUsable,
    GuestNotFound,
    InvalidCenterId,
    PageParameterInvalid,
    TooManyItems,
    UserNotAuthorized,
)
from domain.pagination import Page
from domain.permissions import Caller, Permission
from tests.builders import CENTER_ID, OTHER_CENTER_ID, a_center, a_product
from tests.installation import OTHER_GOOD_CARD, Installation


def listed(
    installation: Installation,
    caller: Caller | None = None,
    *,
    guest_id: str = GUEST_ID,
    center_ids: Sequence[str] = (),
    pages: Sequence[str] = (),
    sizes: Sequence[str] = (),
) -> Page[PaymentAccount]:
    return installation.use_cases.list_accounts(
        caller or installation.caller,
        guest_id=guest_id,
        center_ids=center_ids,
        pages=pages,
        sizes=sizes,
    )


def test_a_guests_cards_are_listed_in_the_order_they_were_added(
    installation: Installation,
) -> None:
    first = installation.stored_card()
    second = installation.stored_card(OTHER_GOOD_CARD)

    assert listed(installation).items == (first, second)
    page = listed(installation, pages=["2"], sizes=["1"])
    assert (page.items, page.total) == ((second,), 2)


def test_removed_cards_are_not_listed(installation: Installation) -> None:
    account = installation.stored_card()
    installation.use_cases.remove_account(
        installation.caller, guest_id=GUEST_ID, account_id=account.account_id
    )

    assert listed(installation).total == 0


# Shows S2.
def test_cards_of_other_centers_do_not_exist_for_a_limited_caller(
    installation: Installation,
) -> None:
    installation.has_center(a_center(id=OTHER_CENTER_ID))
    installation.configure(OTHER_CENTER_ID)
    installation.stored_card()
    there = installation.stored_card(center_id=OTHER_CENTER_ID)
    limited = installation.a_caller(centers=frozenset({OTHER_CENTER_ID}))

    assert listed(installation).total == 2
    assert listed(installation, limited).items == (there,)
    assert listed(installation, limited, center_ids=[OTHER_CENTER_ID]).items == (there,)
    assert listed(installation, center_ids=[OTHER_CENTER_ID]).items == (there,)
    with pytest.raises(UserNotAuthorized):
        listed(installation, limited, center_ids=[CENTER_ID])


@pytest.mark.parametrize("center_ids", [["x"], [""], [a_uuid(9)], [CENTER_ID, CENTER_ID]])
def test_a_center_that_cannot_be_meant_is_refused(
    installation: Installation, center_ids: list[str]
) -> None:
    with pytest.raises(InvalidCenterId):
        listed(installation, center_ids=center_ids)


def test_a_guest_that_cannot_be_meant_is_refused(installation: Installation) -> None:
    with pytest.raises(GuestIdNotUsable):
        listed(installation, guest_id="x")
    with pytest.raises(GuestNotFound):
        listed(installation, guest_id=a_uuid(999))


@pytest.mark.parametrize("permission", list(Permission))
def test_view_add_or_edit_permission_is_needed(
    installation: Installation, permission: Permission
) -> None:
    caller = installation.a_caller(permission)
    if permission in (Permission.GUESTS_VIEW, Permission.GUESTS_ADD, Permission.GUESTS_EDIT):
        assert listed(installation, caller).total == 0
    else:
        with pytest.raises(UserNotAuthorized):
            listed(installation, caller)


# Shows S1.
def test_permission_comes_before_everything_else(installation: Installation) -> None:
    with pytest.raises(UserNotAuthorized):
        listed(
            installation,
            installation.a_caller(Permission.PRODUCTS_VIEW),
            guest_id="x",
            sizes=["1000"],
        )


def test_products_are_listed_in_pages(installation: Installation) -> None:
    products = [a_product(number) for number in range(1, 26)]
    with installation.storage.write() as unit:
        unit.products.put_many(products)
        unit.commit()

    page = installation.use_cases.list_products(
        installation.caller, center_id=CENTER_ID, pages=["3"], sizes=[]
    )
    assert (page.items, page.total) == (tuple(products[20:]), 25)


def test_a_limited_caller_lists_the_products_of_its_own_centers(
    installation: Installation,
) -> None:
    with installation.storage.write() as unit:
        unit.products.put_many([a_product()])
        unit.commit()
    limited = installation.a_caller(centers=frozenset({CENTER_ID}))

    page = installation.use_cases.list_products(limited, center_id=CENTER_ID, pages=[], sizes=[])

    assert page.items == (a_product(),)


def test_products_have_refusals_of_their_own(installation: Installation) -> None:
    list_products = installation.use_cases.list_products

    with pytest.raises(UserNotAuthorized):
        list_products(
            installation.a_caller(Permission.GUESTS_VIEW), center_id="x", pages=[], sizes=["0"]
        )
    with pytest.raises(TooManyItems):
        list_products(installation.caller, center_id="x", pages=[], sizes=["101"])
    with pytest.raises(PageParameterInvalid):
        list_products(installation.caller, center_id="x", pages=["0"], sizes=[])
    for center_id in ("x", a_uuid(9)):
        with pytest.raises(InvalidCenterId):
            list_products(installation.caller, center_id=center_id, pages=[], sizes=[])
    with pytest.raises(UserNotAuthorized):
        list_products(
            installation.a_caller(centers=frozenset()), center_id=CENTER_ID, pages=[], sizes=[]
        )
