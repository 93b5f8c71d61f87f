from __future__ import annotations

from collections.abc import Sequence

import pytest

from adapters.psp_suite.samples import GUEST_ID, a_uuid
from domain.cards.account import Account
from domain.errors import GuestIdNotUsable, GuestNotFound, InvalidCenterId, UserNotAuthorized
from domain.pagination import Page, PageRequest
from domain.permissions import Caller
from tests.builders import CENTER_ID, OTHER_CENTER_ID
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
        caller or installation.caller,
        guest_id=guest_id,
        center_ids=center_ids,
        page=page,
    )


def test_a_guests_cards_are_listed_in_the_order_they_were_added(installation: Installation) -> None:
    installation.stored_card()
    second = installation.stored_card(OTHER_GOOD_CARD)

    page = listed(installation, page=PageRequest(page=2, size=1))
    assert (page.items, page.total) == ((second,), 2)


# Shows S2.
def test_cards_of_other_centers_do_not_exist_for_a_limited_caller(
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


def test_a_center_or_a_guest_that_cannot_be_meant_is_refused(installation: Installation) -> None:
    for center_ids in (["x"], [""], [a_uuid(9)], [CENTER_ID, CENTER_ID]):
        with pytest.raises(InvalidCenterId):
            listed(installation, center_ids=center_ids)
    with pytest.raises(GuestIdNotUsable):
        listed(installation, guest_id="x")
    with pytest.raises(GuestNotFound):
        listed(installation, guest_id=a_uuid(999))
