"""Agreements over HTTP, from add-card to their end."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any, cast

import jwt
import pytest

from adapters.http.hosted_payments import MAX_USER_AGENT_LENGTH
from adapters.psp_suite.samples import GUEST_ID
from domain.permissions import Permission
from tests.adapters.http.api import ACCOUNTS, GOOD_BODY, Api, refused
from tests.builders import CENTER_ID
from tests.installation import BASE_URL

STARTS_AT, ENDS_AT = "2026-12-05T15:00:00+01:00", "2026-12-05T16:00:00+01:00"
TERMS = {
    "reference": "booking-17",
    "description": "2 × massage",
    "starts_at": STARTS_AT,
    "ends_at": ENDS_AT,
    "no_show": {"amount": "80.00", "currency": "EUR"},
    "late_cancellation": None,
    "cancel_by": None,
    "policy_uri": None,
    "replaces": None,
}
BODY = {**GOOD_BODY, "agreement": TERMS}


def takes_agreements(api: Api) -> None:
    container = api.installation.container
    container.set_center()(CENTER_ID, {"time_zone": "Europe/Berlin"})
    container.set_reservation_text()(CENTER_ID, "en")


def agreed(api: Api) -> str:
    """Add a card with an agreement through the page. Return the account."""
    takes_agreements(api)
    started = api.post(BODY).json
    session = api.installation.session(started["token_id"])
    page = api.browse("/hosted-payments", f"key={session.link_key}")
    digest = page.text.partition('name="agreed" value="')[2].partition('"')[0]
    clicked = api.submit(
        "/hosted-payments",
        f"agreed={digest}",
        query=f"key={session.link_key}",
        headers={"Origin": BASE_URL, "User-Agent": "A browser\t" + "x" * 400},
    )
    assert clicked.status_code == 303
    api.installation.type_card_and_return(session)
    (account,) = api.installation.accounts()
    return account.account_id


def test_an_agreement_can_be_listed_read_or_ended(api: Api) -> None:
    account_id = agreed(api)
    listed = api.get(f"{ACCOUNTS}/{account_id}/agreements").json
    (shown,) = listed["agreements"]
    path = f"/api/v1/guests/{GUEST_ID}/agreements/{shown['agreement_id']}"

    in_utc = {"starts_at": "2026-12-05T14:00:00Z", "ends_at": "2026-12-05T15:00:00Z"}
    assert {name: shown[name] for name in TERMS} == TERMS | in_utc
    assert "Harbor Spa may charge the card up to €80.00." in shown["text"]
    assert shown["kept_until"] == "2026-12-12T15:00:00Z"
    assert (shown["account_id"], shown["ended_at"]) == (account_id, None)
    assert api.get(path).json == {**shown, "success": True, "error": None}
    card = api.get(f"{ACCOUNTS}/{account_id}").json
    assert card["keep_until"] == "2026-12-12T15:00:00Z"

    for _ in range(2):
        ended = api.send("DELETE", path, query="reason=cancelled&at=2026-11-20T10:00:00Z")
        assert ended.json == {"success": True, "error": None}
    now = api.get(path).json
    assert (now["ended_at"], now["reason"]) == ("2026-11-20T12:00:00Z", "cancelled")
    assert now["stated_at"] == "2026-11-20T10:00:00Z"
    card = api.get(f"{ACCOUNTS}/{account_id}").json
    assert card["keep_until"] == "2026-11-27T12:00:00Z"


def test_the_payment_reference_states_what_may_be_charged_under_each_agreement(api: Api) -> None:
    account_id = agreed(api)
    installation = api.installation
    (agreement,) = api.get(f"{ACCOUNTS}/{account_id}/agreements").json["agreements"]

    def reference() -> Any:
        caller = installation.a_caller(Permission.GUESTS_VIEW, Permission.PAYMENTS_USE)
        return Api(installation, caller).get(f"{ACCOUNTS}/{account_id}").json["payment_reference"]

    chargeable = {
        "agreement_id": agreement["agreement_id"],
        "reference": "booking-17",
        "no_show": {"amount": "80.00", "currency": "EUR"},
        "late_cancellation": None,
        "ends_at": "2026-12-05T15:00:00Z",
        "kept_until": "2026-12-12T15:00:00Z",
        "charge_as": "unscheduled",
    }
    assert (reference()["kept_for"], reference()["agreements"]) == ("bookings", [chargeable])
    installation.container.configure_payments()(CENTER_ID, {"no_show_indicator": True})
    no_show = {**chargeable, "charge_as": "no_show"}
    assert reference()["agreements"] == [no_show]

    # The booking is over, and the shop charges the card for the no-show.
    installation.clock.advance(timedelta(days=16))
    installation.container.end_agreements()()
    with installation.storage.read() as unit:
        (over,) = unit.agreements.of_guest(GUEST_ID)
    assert over.ended_at == installation.clock.now()
    assert reference()["agreements"] == [no_show]


def test_reading_a_center_shows_whether_it_takes_agreements(api: Api) -> None:
    def takes() -> object:
        return api.get(f"/v1/centers/{CENTER_ID}").json["takes_agreements"]

    assert takes() is False
    refusal = refused(api.post(BODY))
    assert refusal == (400, "Consent not set")
    takes_agreements(api)
    assert takes() is True


def test_the_signed_payload_of_evidence_equals_the_evidence_document(api: Api) -> None:
    account_id = agreed(api)

    read = api.get(f"{ACCOUNTS}/{account_id}/evidence").json
    keys = api.send("GET", "/.well-known/jwks.json", authenticated=False).json
    (key,) = keys["keys"]
    found = jwt.PyJWS().decode_complete(read["jws"], jwt.PyJWK.from_dict(key), ["EdDSA"])
    assert json.loads(found["payload"]) == read["document"]
    kind = {"alg": "EdDSA", "kid": key["kid"], "typ": "cardonfile-evidence"}
    assert found["header"] == kind
    (agreement,) = read["document"]["agreements"]
    assert agreement["booking"]["no_show"] == {"amount": "80.00", "currency": "EUR"}
    assert agreement["agreed"] == {"at": "2026-11-20T12:00:00Z", "clock": "service"}


@pytest.mark.installed(CARDONFILE_EVIDENCE_BROWSER_DAYS="30")
def test_the_recorded_user_agent_of_a_click_is_one_line_of_limited_length(api: Api) -> None:
    agreed(api)

    exported = api.installation.container.export_guest()(GUEST_ID)
    (session,) = cast(list[Any], exported["sessions"])  # as this test stored it
    (browser,) = session["browsers"]
    assert browser["address"] == "127.0.0.1"
    assert browser["user_agent"] == ("A browser" + "x" * 400)[:MAX_USER_AGENT_LENGTH]
