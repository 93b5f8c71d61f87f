from __future__ import annotations

import pytest

from adapters.psp_suite.samples import a_uuid
from domain.centers.queries import ConfiguredCenter
from domain.errors import InvalidCenterId, UserNotAuthorized
from domain.pagination import Page, PageRequest
from domain.permissions import Caller, Permission
from tests.builders import CENTER_ID, OTHER_CENTER_ID, a_center
from tests.installation import Installation

FIRST_PAGE = PageRequest()


def listed(
    installation: Installation, caller: Caller, *, page: PageRequest = FIRST_PAGE
) -> Page[ConfiguredCenter]:
    return installation.use_cases.list_centers(caller, page=page)


def test_centers_are_listed_by_name_with_their_configuration(installation: Installation) -> None:
    first = a_center(id=OTHER_CENTER_ID, name="A first center")
    installation.has_center(first)
    installation.configure(avs=True, redirect_origins=("https://shop.example",))

    found = listed(installation, installation.caller)

    assert [each.center for each in found.items] == [first, a_center()]
    assert found.items[0].configuration is None
    configuration = found.items[1].configuration
    assert configuration is not None
    assert configuration.redirect_origins == ("https://shop.example",)
    second_page = listed(installation, installation.caller, page=PageRequest(page=2, size=1))
    assert (second_page.items, second_page.total) == (found.items[1:], 2)


def test_a_limited_caller_sees_only_its_centers(installation: Installation) -> None:
    installation.has_center(a_center(id=OTHER_CENTER_ID))
    caller = installation.a_caller(Permission.GUESTS_VIEW, centers=frozenset({OTHER_CENTER_ID}))

    found = listed(installation, caller)

    assert ([each.center.id for each in found.items], found.total) == ([OTHER_CENTER_ID], 1)
    read = installation.use_cases.read_center
    assert read(caller, center_id=OTHER_CENTER_ID.upper()) == found.items[0]
    with pytest.raises(UserNotAuthorized):
        read(caller, center_id=CENTER_ID)


def test_reading_a_center_that_does_not_exist_is_refused(installation: Installation) -> None:
    for center_id in ("x", a_uuid(999)):
        with pytest.raises(InvalidCenterId):
            installation.use_cases.read_center(installation.caller, center_id=center_id)
