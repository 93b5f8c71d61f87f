from __future__ import annotations

import pytest

from adapters.psp.contract.samples import GUEST_ID, OTHER_GUEST_ID, a_uuid
from domain.errors import SessionNotFound, UserNotAuthorized
from domain.permissions import Permission
from tests.builders import CENTER_ID, a_guest
from tests.installation import Installation


def test_a_session_is_read_by_its_guest_and_token(installation: Installation) -> None:
    session = installation.add_card()

    assert (
        installation.use_cases.read_session(
            installation.caller, guest_id=GUEST_ID, token_id=session.token_id
        )
        == session
    )


def test_a_session_does_not_exist_for_others(installation: Installation) -> None:
    session = installation.add_card()
    installation.has_guest(a_guest(id=OTHER_GUEST_ID))
    elsewhere = installation.a_caller(centers=frozenset())

    for caller, guest_id, token_id in (
        (elsewhere, GUEST_ID, session.token_id),
        (installation.caller, OTHER_GUEST_ID, session.token_id),
        (installation.caller, GUEST_ID, a_uuid(9)),
        (installation.caller, GUEST_ID, "x"),
    ):
        with pytest.raises(SessionNotFound):
            installation.use_cases.read_session(caller, guest_id=guest_id, token_id=token_id)


def test_a_limited_caller_reads_the_sessions_of_its_own_centers(
    installation: Installation,
) -> None:
    session = installation.add_card()
    limited = installation.a_caller(centers=frozenset({CENTER_ID}))

    read = installation.use_cases.read_session(
        limited, guest_id=GUEST_ID, token_id=session.token_id
    )

    assert read == session


def test_reading_needs_permission(installation: Installation) -> None:
    session = installation.add_card()

    with pytest.raises(UserNotAuthorized):
        installation.use_cases.read_session(
            installation.a_caller(Permission.GUESTS_DELETE),
            guest_id=GUEST_ID,
            token_id=session.token_id,
        )
