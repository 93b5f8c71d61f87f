from __future__ import annotations

from contextlib import nullcontext
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import http_sf
import pytest

from adapters.psp_suite.samples import GUEST_ID, a_uuid
from domain.billing import BillingInfo
from domain.centers.payment_configuration import CardsPerGuest
from domain.errors import (
    BillingInfoInvalid,
    BillingInfoRequired,
    CenterKeepsOneCard,
    GuestIdNotUsable,
    GuestNotFound,
    IdempotencyKeyInvalid,
    IdempotencyKeyReused,
    IncorrectBillingAddress,
    InvalidCenterId,
    InvalidField,
    InvalidSource,
    PaymentConfigurationNotDone,
    RedirectUriInvalid,
    RedirectUriRequired,
    Refusal,
    UserNotAuthorized,
)
from domain.identifiers import CallerName
from domain.permissions import Permission
from domain.sessions.end import SessionStatus
from domain.sessions.request import AddCardRequest
from domain.source import Source
from tests.builders import CENTER_ID, OTHER_CENTER_ID, a_center
from tests.databases import committed
from tests.installation import REDIRECT_URI, Installation

NOBODY = a_uuid(999)
GOOD_ADDRESS = {"address": "1 Main St", "country_code": "US", "zipcode": "98101"}


# Shows F22.
def test_add_card_stores_the_session_without_calling_the_psp(installation: Installation) -> None:
    session = installation.add_card(billing_info={"city": "Seattle"})

    stored = installation.session(session.token_id)
    assert stored == session
    assert (stored.guest_id, stored.center_id) == (GUEST_ID, CENTER_ID)
    assert (stored.redirect_uri, stored.source) == (REDIRECT_URI, Source.WEB_STORE)
    assert stored.billing_info == BillingInfo(city="Seattle")
    assert stored.status is SessionStatus.OPEN
    assert stored.expires_at == installation.clock.now() + timedelta(minutes=30)
    assert installation.provider.calls == []


def test_changing_a_configuration_does_not_affect_older_sessions(
    installation: Installation,
) -> None:
    installation.configure(avs=True, session_minutes=90)
    session = installation.add_card(billing_info=GOOD_ADDRESS)
    installation.configure(avs=False)

    stored = installation.session(session.token_id)
    assert stored.configuration.avs
    assert stored.expires_at == stored.created_at + timedelta(minutes=90)


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        *(({"center_id": each}, InvalidCenterId) for each in (None, 7, NOBODY, f"{{{CENTER_ID}}}")),
        *(({"redirect_uri": each}, RedirectUriRequired) for each in (None, "  ")),
        *(({"redirect_uri": each}, RedirectUriInvalid) for each in ("javascript:alert(1)", 1)),
        *(({"source": each}, InvalidSource) for each in (2, True, "01", 1.0, None)),
        *(({"billing_info": each}, BillingInfoInvalid) for each in ("x", {"email": "x"})),
        *(
            ({"idempotency_key": each}, IdempotencyKeyInvalid)
            for each in ("", "two words", "k" * 256, "\x7f", "é", '""', '"a b"', f'"{"x" * 256}"')
        ),
        ({"guest_id": "me"}, GuestIdNotUsable),
        ({"guest_id": NOBODY}, GuestNotFound),
    ],
)
def test_an_invalid_add_card_request_does_not_store_a_session(
    installation: Installation, changes: dict[str, Any], refusal: type[Refusal]
) -> None:
    with pytest.raises(refusal):
        installation.add_card(**changes)

    installation.clock.advance(timedelta(days=1))
    assert installation.reconcile().jobs["sessions"] == 0


def test_add_card_checks_fields_in_a_fixed_order_and_reports_the_first_invalid_field(
    installation: Installation,
) -> None:
    installation.unconfigure()
    order: list[tuple[str, object, object, type[Refusal]]] = [
        ("center_id", "x", NOBODY, InvalidCenterId),
        # An unknown center is also reported before an invalid redirect URI.
        ("center_id", NOBODY, CENTER_ID, InvalidCenterId),
        ("redirect_uri", "x", REDIRECT_URI, RedirectUriInvalid),
        ("source", 9, 1, InvalidSource),
        ("billing_info", {"phone": "x"}, None, BillingInfoInvalid),
        ("idempotency_key", "", "key", IdempotencyKeyInvalid),
        ("guest_id", "x", GUEST_ID, GuestIdNotUsable),
    ]
    request: dict[str, Any] = {name: wrong for name, wrong, _, _ in reversed(order)}
    with pytest.raises(UserNotAuthorized):
        installation.add_card(installation.a_caller(Permission.GUESTS_VIEW), **request)
    for name, _, right, refusal in order:
        with pytest.raises(refusal):
            installation.add_card(**request)
        request[name] = right
    with pytest.raises(PaymentConfigurationNotDone):
        installation.add_card(**request)


def test_a_limited_caller_cannot_tell_if_another_center_exists(installation: Installation) -> None:
    installation.has_center(a_center(id=OTHER_CENTER_ID))
    caller = installation.a_caller(centers=frozenset({CENTER_ID}))

    for center_id in (OTHER_CENTER_ID, NOBODY):
        with pytest.raises(UserNotAuthorized):
            installation.add_card(caller, center_id=center_id)
    assert installation.add_card(caller).status is SessionStatus.OPEN


def test_a_center_with_redirect_origins_refuses_other_origins(installation: Installation) -> None:
    installation.configure(redirect_origins=("https://shop.example", "myspa://"))

    for uri in ("https://shop.example/a", "myspa://cards/done"):
        assert installation.add_card(redirect_uri=uri).redirect_uri == uri
    with pytest.raises(RedirectUriInvalid):
        installation.add_card(redirect_uri="https://other.example/a")


def test_a_center_may_refuse_a_second_card_of_a_guest(installation: Installation) -> None:
    installation.configure(cards_per_guest=CardsPerGuest.ONE)
    installation.stored_card()

    with pytest.raises(CenterKeepsOneCard):
        installation.add_card()


@pytest.mark.parametrize(
    ("billing_info", "missing"),
    [
        *((None, ""), ({}, ""), ({"zipcode": "98101"}, ".address")),
        ({"address": "1 Main St", "zipcode": "98101"}, ".country_code"),
        ({"address": "1 Main St", "country_code": "us"}, ".zipcode"),
        ({"address": " ", "country_code": "US"}, ".address"),
    ],
)
def test_the_refusal_of_incomplete_billing_info_names_the_missing_field_if_avs_is_on(
    installation: Installation, billing_info: object, missing: str
) -> None:
    installation.configure(avs=True)

    with pytest.raises(BillingInfoRequired) as refused:
        installation.add_card(billing_info=billing_info)
    assert refused.value.message == f"billing_info{missing} is required"


@pytest.mark.parametrize(
    ("country_code", "zipcode", "is_fine"),
    [
        *(("US", "98101-1234", True), ("US", "9810", False), ("GB", "sw1a 1aa", True)),
        *(("GB", "12345", False), ("AE", None, True), ("HK", "999077", True)),
    ],
)
def test_a_postal_code_must_have_the_format_of_its_country(
    installation: Installation, country_code: str, zipcode: str | None, is_fine: bool
) -> None:
    installation.configure(avs=True)
    address = {"address": "1 Main St", "country_code": country_code, "zipcode": zipcode}

    with nullcontext() if is_fine else pytest.raises(IncorrectBillingAddress):
        installation.add_card(billing_info=address)


def test_a_link_is_valid_for_the_requested_time_up_to_the_limit_of_the_center(
    installation: Installation,
) -> None:
    installation.configure(session_minutes=60, link_minutes=43_200)

    def lives_for(link_minutes: int | None) -> timedelta:
        session = installation.add_card(link_minutes=link_minutes)
        return session.expires_at - session.created_at

    assert lives_for(None) == timedelta(minutes=60)
    assert lives_for(15) == timedelta(minutes=15)
    assert lives_for(43_200) == timedelta(days=30)


@pytest.mark.parametrize("link_minutes", [14, 61, 0, -60, True, 60.0, "60", [60], 10**30])
def test_the_refusal_of_a_link_lifetime_states_the_limit_of_the_center(
    installation: Installation, link_minutes: object
) -> None:
    installation.configure(session_minutes=60)

    with pytest.raises(InvalidField) as refused:
        installation.add_card(link_minutes=link_minutes, idempotency_key="not one")
    assert refused.value.message == "link_minutes must be a whole number from 15 to 60"
    with pytest.raises(BillingInfoInvalid):
        installation.add_card(link_minutes=link_minutes, billing_info=[])
    installation.unconfigure()
    with pytest.raises(PaymentConfigurationNotDone):
        installation.add_card(link_minutes=43_200)


@pytest.mark.parametrize(
    "reference",
    ["", " ", "x" * 101, "a\nb", 7, ["x"], "4242 4242 4242 4242", "order-4242424242424242"],
)
def test_an_invalid_reference_from_the_client_is_refused(
    installation: Installation, reference: object
) -> None:
    with pytest.raises(InvalidField) as refused:
        installation.add_card(reference=reference)
    assert refused.value.message == (
        "reference must be null, or 1 to 100 characters in one line, without a card number"
    )
    assert installation.add_card(reference="x" * 100).reference == "x" * 100


# Shows F1.
def test_repeating_a_request_with_its_key_returns_the_session(installation: Installation) -> None:
    asked: dict[str, Any] = {
        "redirect_uri": "https://shop.example/all",
        "source": 5,
        "billing_info": {**GOOD_ADDRESS, "city": "Seattle"},
        "link_minutes": 20,
        "locale": "de-AT",
        "reference": "order-1",
        "authentication": "required",
        "idempotency_key": "key",
    }
    first = installation.add_card(**asked)
    installation.clock.advance(timedelta(hours=23))

    assert installation.add_card(**asked) == first


A_BOOKING: dict[str, Any] = {
    "reference": "booking-17",
    "description": "2 × massage",
    "starts_at": "2026-11-25T15:00:00+01:00",
    "ends_at": "2026-11-25T16:00:00+01:00",
    "no_show": {"amount": "80.00", "currency": "EUR"},
}
OTHERWISE: dict[str, list[object]] = {
    "guest_id": [NOBODY, "x"],
    "center_id": [OTHER_CENTER_ID],
    "redirect_uri": ["https://shop.example/other"],
    "source": [5],
    "billing_info": [{"city": "Lyon"}],
    "link_minutes": [15],
    "locale": ["de", "auto"],
    "reference": ["order-2"],
    "authentication": ["required"],
    "agreement": [A_BOOKING],
}


def test_the_test_of_reused_idempotency_keys_varies_every_field_of_a_request() -> None:
    assert OTHERWISE.keys() | {"idempotency_key"} == {each.name for each in fields(AddCardRequest)}


@pytest.mark.parametrize(
    "changes", [{name: value} for name, values in OTHERWISE.items() for value in values]
)
def test_a_different_request_with_an_already_used_idempotency_key_is_refused(
    installation: Installation, changes: dict[str, Any]
) -> None:
    installation.has_center(a_center(id=OTHER_CENTER_ID))
    installation.add_card(idempotency_key="key")

    with pytest.raises(IdempotencyKeyReused):
        installation.add_card(idempotency_key="key", **changes)


def test_requesting_automatic_authentication_is_the_same_as_omitting_the_field(
    installation: Installation,
) -> None:
    first = installation.add_card(idempotency_key="key")

    assert installation.add_card(idempotency_key="key", authentication="automatic") == first


def test_an_idempotency_key_can_be_used_again_after_a_day(installation: Installation) -> None:
    key = "!" + "~" * 254
    first = installation.add_card(idempotency_key=key)
    installation.clock.advance(timedelta(hours=24))

    assert installation.add_card(idempotency_key=key, source=5).token_id != first.token_id


@pytest.mark.parametrize("key", ["key", 'a"b', "a\\b", 'a\\"', "!" + "~" * 254])
def test_an_idempotency_key_in_quotes_equals_the_key_without_quotes(
    installation: Installation, key: str
) -> None:
    bare = installation.add_card(idempotency_key=key)

    assert installation.add_card(idempotency_key=http_sf.ser(key)) == bare


@pytest.mark.parametrize("key", ['"key', 'key"', '"a"b"', r'"a\b"', r'"a\"', '"key";a=1'])
def test_an_idempotency_key_with_unbalanced_quotes_is_used_literally(
    installation: Installation, key: str
) -> None:
    other = installation.add_card(idempotency_key=key.strip('"'))
    first = installation.add_card(idempotency_key=key)

    assert first.token_id != other.token_id
    assert installation.add_card(idempotency_key=key) == first


def test_an_idempotency_key_that_an_older_release_stored_with_quotes_is_found(
    installation: Installation,
) -> None:
    session = installation.add_card()
    now = installation.clock.now()
    with committed(installation.storage) as unit:
        unit.idempotency_keys.claim(
            session.caller, '"key"', session.token_id, now=now, since=now - timedelta(days=1)
        )

    assert installation.add_card(idempotency_key='"key"') == session


def test_two_callers_may_use_the_same_idempotency_key(installation: Installation) -> None:
    other = replace(installation.caller, name=CallerName("other-shop"))
    mine = installation.add_card(idempotency_key="key")
    theirs = installation.add_card(other, idempotency_key="key")

    assert mine.token_id != theirs.token_id


def test_a_refused_request_does_not_use_up_its_idempotency_key(installation: Installation) -> None:
    with pytest.raises(GuestNotFound):
        installation.add_card(idempotency_key="key", guest_id=NOBODY)

    assert installation.add_card(idempotency_key="key").status is SessionStatus.OPEN


def test_a_concurrent_request_with_the_same_key_is_refused(installation: Installation) -> None:
    installation.before_next_write(lambda: installation.add_card(idempotency_key="key", source=5))

    with pytest.raises(IdempotencyKeyReused):
        installation.add_card(idempotency_key="key")
