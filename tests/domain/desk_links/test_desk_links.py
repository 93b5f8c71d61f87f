"""Desk links: what the page shows, for which caller it acts, and when the link stops."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest

from adapters.psp_suite.samples import GUEST_ID, OTHER_GUEST_ID
from domain.access.token import hash_of
from domain.desk_links.desk_link import MAX_DESK_LINKS
from domain.desk_links.find_desk import PROVIDED_TOKEN_LIFETIME, DeskLinkStopped, DeskLinkUnknown
from domain.desk_links.queries import CARD_IS_SHOWN_FOR, Desk, DeskState
from domain.errors import InvalidField, SessionEnded, TooManyDeskLinks, UserNotAuthorized
from domain.hosted_payments.link import ClickNeeded
from domain.identifiers import CallerName
from domain.permissions import Caller, Permission
from domain.sessions.session import CardSession
from tests.builders import a_desk_link, a_guest
from tests.databases import committed
from tests.domain.agreements.bookings import (
    agree,
    guaranteed_card,
    page_content,
    second_booking,
    takes_agreements,
)
from tests.installation import NO_PREPAID, PREPAID_CARD, REDIRECT_URI, Installation, Trouble

OTHER_VISIT: Final = f"{REDIRECT_URI}&visit=2"


def made(
    installation: Installation,
    session: CardSession,
    *,
    caller: Caller | None = None,
    token: str | None = None,
    label: object = "Chair 3",
) -> str:
    """Make a desk link with a new token of the caller, and return its secret."""
    caller = caller or installation.caller
    return installation.container.make_desk_link()(
        caller,
        access_token=token or installation.token_for(caller),
        guest_id=session.guest_id,
        token_id=session.token_id,
        label=label,
    )


def desk_of(installation: Installation, secret: str) -> Desk:
    return installation.container.read_desk()(secret)


def opened(it: Installation) -> CardSession:
    return it.opened_session()


def returned(it: Installation) -> CardSession:
    session = it.opened_session()
    it.return_to_shop(session)
    return session


def left(it: Installation) -> CardSession:
    session = it.opened_session()
    it.use_cases.cancel_hosted_page(token_id=session.token_id)
    return session


def another_card_needed(it: Installation) -> CardSession:
    it.configure(**NO_PREPAID)
    return it.returned_session(PREPAID_CARD)


def cancelled(it: Installation) -> CardSession:
    session = it.add_card()
    it.cancel_session(session)
    return session


def expired(it: Installation) -> CardSession:
    session = it.add_card()
    it.clock.advance(timedelta(hours=1))
    return session


def on_file(it: Installation) -> CardSession:
    it.stored_card()
    return it.returned_session(redirect_uri=OTHER_VISIT)


@pytest.mark.parametrize(
    ("prepare", "state", "has_link", "is_final"),
    [
        (Installation.add_card, DeskState.CREATED, True, False),
        (opened, DeskState.OPENED, True, False),
        (returned, DeskState.RETURNED, True, False),
        (left, DeskState.LEFT, True, False),
        (another_card_needed, DeskState.ANOTHER_CARD, True, False),
        (cancelled, DeskState.CANCELLED, False, True),
        (expired, DeskState.EXPIRED, False, False),
        (on_file, DeskState.ON_FILE, False, True),
    ],
)
def test_the_desk_page_shows_each_state_of_a_session(
    installation: Installation,
    prepare: Callable[[Installation], CardSession],
    state: DeskState,
    has_link: bool,
    is_final: bool,
) -> None:
    session = prepare(installation)
    link = a_desk_link(
        token_id=session.token_id,
        secret_hash=hash_of("secret"),
        caller=installation.caller,
        access_token_hash=hash_of(installation.token_for(installation.caller)),
    )
    # A new desk link cannot be made for a session that has ended.
    with committed(installation.storage) as unit:
        unit.desk_links.add(link)

    desk = desk_of(installation, "secret")
    assert (desk.state, desk.link is not None, desk.is_final) == (state, has_link, is_final)


def test_the_desk_page_shows_the_stored_card_for_a_minute(installation: Installation) -> None:
    session = installation.opened_session()
    secret = made(installation, session)
    installation.type_card_and_return(session)

    desk = desk_of(installation, secret)
    assert (desk.state, desk.link, desk.is_final) == (DeskState.STORED, None, False)
    assert desk.card is not None
    assert desk.card.last_four == "4242"

    installation.clock.advance(CARD_IS_SHOWN_FOR)
    desk = desk_of(installation, secret)
    assert (desk.state, desk.card, desk.is_final) == (DeskState.DONE, None, True)


def test_only_a_hash_of_the_secret_of_a_desk_link_is_stored(installation: Installation) -> None:
    secret = made(installation, installation.add_card())

    with installation.storage.read() as unit:
        kept = unit.desk_links.get(hash_of(secret))
    assert kept is not None
    assert secret not in repr(kept)
    with pytest.raises(DeskLinkUnknown):
        desk_of(installation, kept.secret_hash)


def test_the_desk_page_names_the_guest_of_an_open_session(installation: Installation) -> None:
    adding = installation.a_caller(Permission.GUESTS_ADD)
    session = installation.add_card(adding)
    secret = made(installation, session)

    assert desk_of(installation, made(installation, session, caller=adding)).guest is None
    assert desk_of(installation, secret).guest == a_guest()
    installation.cancel_session(session)
    assert desk_of(installation, secret).guest is None


def test_the_desk_page_waits_for_a_card_that_was_typed_before_the_link_expired(
    installation: Installation,
) -> None:
    session = installation.opened_session()
    secret = made(installation, session)
    installation.type_card(session)
    installation.provider.have(Trouble.BEFORE_IT_ACTED)
    installation.return_to_shop(session)
    installation.clock.advance(timedelta(hours=2))
    assert desk_of(installation, secret).state is DeskState.RETURNED


def test_a_desk_link_for_another_callers_session_requires_an_extra_permission(
    installation: Installation,
) -> None:
    session = installation.add_card()
    other = Caller(name=CallerName("other"), permissions=frozenset({Permission.GUESTS_ADD}))

    with pytest.raises(UserNotAuthorized):
        made(installation, session, caller=other)


@pytest.mark.parametrize("label", [None, "", " ", "x" * 41, "a\nb", "4242 4242 4242 4242"])
def test_an_invalid_label_for_a_desk_link_is_refused(
    installation: Installation, label: object
) -> None:
    with pytest.raises(InvalidField, match="label"):
        made(installation, installation.add_card(), label=label)


def test_creating_a_desk_link_for_an_ended_session_is_refused(installation: Installation) -> None:
    with pytest.raises(SessionEnded):
        made(installation, cancelled(installation))


def test_a_session_has_at_most_20_desk_links(installation: Installation) -> None:
    session, token = installation.add_card(), installation.token_for(installation.caller)
    for _ in range(MAX_DESK_LINKS):
        made(installation, session, token=token)

    with pytest.raises(TooManyDeskLinks):
        made(installation, session, token=token)
    made(installation, installation.add_card(redirect_uri=OTHER_VISIT), token=token)


@pytest.mark.parametrize("use_case", ["read_desk", "cancel_at_desk"])
def test_a_desk_link_stops_working_when_its_access_token_is_revoked(
    installation: Installation, use_case: str
) -> None:
    session, token = installation.add_card(), installation.token_for(installation.caller)
    stopped = made(installation, session, token=token)
    going_on = made(installation, session)

    installation.container.revoke_token()(token)

    at_desk = getattr(installation.container, use_case)()
    with pytest.raises(DeskLinkStopped):
        at_desk(stopped)
    assert installation.session(session.token_id) == session
    at_desk(going_on)


@pytest.mark.parametrize(
    ("token", "lasts"),
    [(None, timedelta(hours=24)), ("a.json.token", PROVIDED_TOKEN_LIFETIME)],
    ids=["own", "of an identity provider"],
)
def test_a_desk_link_stops_working_when_its_access_token_expires(
    installation: Installation, token: str | None, lasts: timedelta
) -> None:
    caller = replace(installation.caller, name=CallerName("jwt:web-shop" if token else "web-shop"))
    session = installation.add_card(caller=caller)
    secret = made(installation, session, caller=caller, token=token)
    installation.clock.advance(lasts - timedelta(seconds=1))
    assert desk_of(installation, secret).label == "Chair 3"

    installation.clock.advance(timedelta(seconds=1))

    with pytest.raises(DeskLinkStopped):
        desk_of(installation, secret)


def test_a_desk_link_of_a_deleted_access_token_does_not_work(installation: Installation) -> None:
    secret = made(installation, installation.add_card(), token="gone")

    with pytest.raises(DeskLinkStopped):
        desk_of(installation, secret)


def test_a_cancellation_at_the_desk_records_the_caller_that_made_the_link(
    installation: Installation,
) -> None:
    session = installation.opened_session()
    secret = made(installation, session)

    for _ in range(2):
        installation.container.cancel_at_desk()(secret)

    assert installation.session(session.token_id).cancelled_by == "caller:web-shop"
    assert desk_of(installation, secret).state is DeskState.CANCELLED


def test_an_erasure_deletes_the_desk_links_of_the_guest(installation: Installation) -> None:
    installation.has_guest(a_guest(id=OTHER_GUEST_ID))
    session = installation.opened_session()
    others = installation.add_card(guest_id=OTHER_GUEST_ID)
    gone, kept = made(installation, session), made(installation, others)
    with installation.storage.read() as unit:
        (link,) = unit.desk_links.of(session.token_id)

    installation.erase_guest()

    with pytest.raises(DeskLinkUnknown):
        desk_of(installation, gone)
    # Finishing the erasure deletes the links that an earlier release left.
    with committed(installation.storage) as unit:
        unit.desk_links.add(link)
    installation.container.finish_erasures()()
    with pytest.raises(DeskLinkUnknown):
        desk_of(installation, gone)
    assert desk_of(installation, kept).state is DeskState.CREATED


def test_desk_links_do_not_work_in_a_copy_of_the_installation(installation: Installation) -> None:
    secret = made(installation, installation.add_card())

    installation.container.separate_copy()()

    with pytest.raises(DeskLinkStopped):
        desk_of(installation, secret)


def test_a_desk_link_still_works_after_its_guest_was_merged(installation: Installation) -> None:
    installation.has_guest(a_guest(id=OTHER_GUEST_ID))
    session = installation.add_card(guest_id=OTHER_GUEST_ID)
    secret = made(installation, session)

    installation.merge_guests(OTHER_GUEST_ID)

    assert desk_of(installation, secret).guest == a_guest()
    installation.container.cancel_at_desk()(secret)
    assert installation.session(session.token_id).cancelled_at is not None


def test_the_export_of_a_guest_contains_desk_links_without_their_secrets(
    installation: Installation,
) -> None:
    secret = made(installation, installation.add_card())

    exported = json.dumps(installation.container.export_guest()(GUEST_ID), default=str)

    assert '"label": "Chair 3"' in exported
    assert hash_of(secret) not in exported
    assert "access_token_hash" not in exported


def test_a_session_with_a_desk_link_does_not_offer_the_card_on_file(
    installation: Installation,
) -> None:
    takes_agreements(installation)
    account = guaranteed_card(installation)
    session = second_booking(installation)
    assert page_content(installation, session).card == account

    made(installation, session)

    assert page_content(installation, session).card is None
    with pytest.raises(ClickNeeded):
        agree(installation, session, card=account)
