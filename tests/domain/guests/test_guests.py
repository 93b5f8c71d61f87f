from __future__ import annotations

import pytest

from adapters.psp_suite.concurrency import at_once
from adapters.psp_suite.samples import GUEST_ID, OTHER_GUEST_ID
from domain.errors import GuestIdNotUsable, GuestNotFound, InvalidField, UserNotAuthorized
from domain.guests.guest import UNCHANGED, Guest
from domain.permissions import Caller, Permission
from tests.builders import a_guest
from tests.installation import Installation

ADD, EDIT, VIEW = Permission.GUESTS_ADD, Permission.GUESTS_EDIT, Permission.GUESTS_VIEW


def put(
    installation: Installation,
    *permissions: Permission,
    guest_id: str = OTHER_GUEST_ID,
    first_name: object = "Grace",
    caller: Caller | None = None,
    language: object = UNCHANGED,
) -> Guest:
    return installation.use_cases.put_guest(
        caller or installation.a_caller(*permissions),
        guest_id=guest_id,
        first_name=first_name,
        last_name="Hopper",
        email=None,
        language=language,
    )


def read(installation: Installation, guest_id: str = OTHER_GUEST_ID) -> Guest:
    return installation.use_cases.read_guest(installation.a_caller(VIEW), guest_id=guest_id)


def test_reading_a_guest_returns_the_details_of_the_last_put(installation: Installation) -> None:
    with pytest.raises(GuestNotFound):
        read(installation)

    created = put(installation, ADD, guest_id=OTHER_GUEST_ID.upper())
    assert created == a_guest(id=OTHER_GUEST_ID, first_name="Grace", last_name="Hopper", email=None)
    assert read(installation) == created

    changed = put(installation, EDIT, first_name="Grace B.")
    assert read(installation) == changed
    assert changed.first_name == "Grace B."


def test_putting_a_guest_without_a_language_keeps_the_stored_language(
    installation: Installation,
) -> None:
    assert put(installation, ADD, language="de-at").language == "de-AT"
    assert put(installation, EDIT, first_name="Grace B.").language == "de-AT"
    assert read(installation).language == "de-AT"
    assert put(installation, EDIT, first_name="Grace B.", language=None).language is None
    assert read(installation).language is None
    with pytest.raises(InvalidField, match=r"^language must be a language tag"):
        put(installation, EDIT, language="de_AT")


@pytest.mark.parametrize("permission", list(Permission))
def test_adding_a_guest_requires_a_different_permission_from_editing_a_guest(
    installation: Installation, permission: Permission
) -> None:
    def is_allowed(guest_id: str) -> bool:
        try:
            put(installation, permission, guest_id=guest_id)
        except UserNotAuthorized:
            return False
        return True

    assert is_allowed(GUEST_ID) == (permission is EDIT)
    assert is_allowed(OTHER_GUEST_ID) == (permission is ADD)


def test_adding_a_guest_again_requires_only_the_add_permission(installation: Installation) -> None:
    assert put(installation, ADD) == put(installation, ADD) == put(installation, EDIT)
    with pytest.raises(UserNotAuthorized):
        put(installation, VIEW)


def test_invalid_details_about_a_guest_are_not_stored(installation: Installation) -> None:
    with pytest.raises(GuestIdNotUsable):
        put(installation, guest_id="x")
    with pytest.raises(InvalidField, match=r"^first_name must be "):
        put(installation, first_name=None)
    with pytest.raises(GuestNotFound):
        read(installation)


def test_concurrent_requests_with_the_same_id_create_one_guest(installation: Installation) -> None:
    caller = installation.a_caller(ADD)

    guests = at_once(8, lambda _: put(installation, caller=caller))

    assert guests == [read(installation)] * 8
