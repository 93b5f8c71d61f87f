from __future__ import annotations

import json
import re

from falcon import testing

from adapters.http.guests import GuestResource
from adapters.psp_suite.samples import GUEST_ID, OTHER_GUEST_ID
from domain.permissions import Permission
from tests.adapters.http.api import Api, refused, refused_bare
from tests.builders import CENTER_ID
from tests.installation import Installation

GUEST = f"/api/v1/guests/{OTHER_GUEST_ID}"
ADA = {"first_name": "Ada", "last_name": "Lovelace", "email": "ada@guests.example"}


def test_a_guest_who_was_added_through_the_api_can_store_a_card(api: Api) -> None:
    created = api.put(GUEST, ADA)

    assert created.status_code == 200
    assert created.json == {
        "success": True,
        "error": None,
        "id": OTHER_GUEST_ID,
        **ADA,
        "language": None,
    }
    assert api.get(GUEST).json == created.json
    account = api.installation.stored_card(guest_id=OTHER_GUEST_ID)
    (card,) = api.get(f"{GUEST}/accounts").json["accounts"]
    assert card["account_id"] == account.account_id
    (session,) = api.get(f"{GUEST}/accounts/sessions").json["sessions"]
    assert session == {
        "token_id": account.token_id,
        "center_id": CENTER_ID,
        "reference": None,
        "locale": None,
        "status": "completed",
        "progress": "returned",
        "account_id": account.account_id,
        "existing_account_id": None,
        "failure": None,
        "created_at": session["created_at"],
        "expires_at": session["expires_at"],
    }


def test_putting_a_guest_removes_the_language_only_if_the_field_is_null(api: Api) -> None:
    assert api.put(GUEST, {**ADA, "language": "de-AT"}).json["language"] == "de-AT"
    assert api.put(GUEST, {**ADA, "first_name": "Adah"}).json["language"] == "de-AT"
    assert api.put(GUEST, {**ADA, "language": None}).json["language"] is None
    assert api.get(GUEST).json["language"] is None
    code, message = refused(api.put(GUEST, {**ADA, "language": ["de"]}))
    assert (code, message.partition(" a ")[0]) == (400, "language must be")


def test_refusals_of_guest_operations_have_the_error_envelope(api: Api) -> None:
    nameless = api.put(GUEST, {"last_name": "Lovelace"})
    code, message = refused(nameless)

    assert code == 400
    assert message in {refusal.message for refusal in GuestResource.put.refusals}
    assert refused(api.get(GUEST)) == (404, "Guest not found")
    assert refused(api.put("/api/v1/guests/x", ADA)) == (400, "Guest not found")


SEARCH = "/v1/guests/search"


def search(api: Api, body: object, query: str | None = None) -> testing.Result:
    return api.post(body, path=SEARCH, query=query)


def test_a_guest_search_is_validated_in_the_documented_order(api: Api) -> None:
    for body, query, code in (
        ([], "size=101&name=Ada", "invalid_request_body"),
        ({}, "size=101&name=Ada", "unknown_query_parameter"),
        ({}, "size=101", "too_many_items"),
        ({}, None, "invalid_field"),
    ):
        assert search(api, body, query).headers["error-type"] == code


def test_a_guest_search_finds_a_guest_by_email_address(api: Api) -> None:
    api.put(GUEST, ADA)
    found = search(api, {"email": "Ada@Guests.example"})

    assert found.json == {
        "guests": [{"id": OTHER_GUEST_ID, **ADA, "language": None}],
        "page_info": {"total": 1, "page": 1, "size": 10},
    }
    nobody = search(api, {"email": "bob@guests.example"})
    assert nobody.json == {"guests": [], "page_info": {"total": 0, "page": 1, "size": 10}}


def test_a_guest_search_without_an_email_address_is_refused(api: Api) -> None:
    for body in ({}, {"email": None}, {"email": ""}, {"email": "x"}, {"email": ["a@b.example"]}):
        result = search(api, body)
        assert refused_bare(result) == (400, "email must be an e-mail address")


def merge(api: Api, body: object, guest: str = f"/api/v1/guests/{GUEST_ID}") -> testing.Result:
    return api.post(body, path=f"{guest}/merge")


def test_refusals_of_a_merge_have_the_error_envelope(api: Api) -> None:
    api.put(GUEST, ADA)
    for body, result in (
        ({"from": OTHER_GUEST_ID, "last_fours": ["4242"]}, (409, "Cards do not match")),
        ({"from": OTHER_GUEST_ID}, (400, "last_fours must be a list of ")),
        ({"last_fours": []}, (400, "from must be a UUID")),
        ({"from": GUEST_ID, "last_fours": []}, (400, "from must be the id of another guest")),
        ({"from": "00000000-0000-4000-8000-00000000abcd", "last_fours": []}, (404, "Guest not")),
    ):
        code, message = refused(merge(api, body))
        assert (code, message[: len(result[1])]) == result
    assert refused(merge(api, {}, "/api/v1/guests/x")) == (400, "Guest not found")


ON_FILE = f"/api/v1/guests/{GUEST_ID}"


def put_if(api: Api, if_match: str, last_name: str = "Li", guest: str = ON_FILE) -> testing.Result:
    """Put the guest with this If-Match header."""
    headers = {"If-Match": if_match, "Content-Type": "application/json"}
    body = json.dumps({"first_name": "Ada", "last_name": last_name})
    return api.send("PUT", guest, body=body, headers=headers)


def test_an_if_match_header_prevents_overwriting_a_guest_that_another_client_has_changed(
    api: Api,
) -> None:
    tag = api.get(ON_FILE).headers["etag"]
    first = put_if(api, tag)
    second = put_if(api, tag, "Ríos")

    assert first.status_code == 200
    # RFC 9110, 9.3.4: a reader gets other content than the request had.
    assert "etag" not in first.headers
    assert refused(second) == (412, "Precondition failed")
    assert api.get(ON_FILE).json["last_name"] == "Li"
    assert put_if(api, api.get(ON_FILE).headers["etag"], "Ríos").status_code == 200
    # Its response may have been lost.
    assert put_if(api, tag, "Ríos").status_code == 200


def test_an_if_match_header_matches_only_a_strong_entity_tag_of_the_guest(api: Api) -> None:
    tag = api.get(ON_FILE).headers["etag"]

    assert re.fullmatch('"[0-9a-f]{32}"', tag)
    for wrong in (f"W/{tag}", f'W/{tag}, "x"', '"*"', '"x", *', '"'):
        assert put_if(api, wrong).status_code == 412
    assert api.get(ON_FILE).headers["etag"] == tag
    assert put_if(api, f'"x,y" ,{tag},W/"z"').status_code == 200
    assert put_if(api, "*").status_code == 200


def test_a_put_with_an_if_match_header_does_not_create_a_guest(api: Api) -> None:
    assert put_if(api, "*", guest=GUEST).status_code == 412
    assert api.get(GUEST).status_code == 404


def test_a_caller_that_may_not_read_guests_may_not_send_an_if_match_header(
    installation: Installation, api: Api
) -> None:
    blind = Api(installation, installation.a_caller(Permission.GUESTS_EDIT))

    for tag in ("*", api.get(ON_FILE).headers["etag"], '"x"'):
        assert refused(put_if(blind, tag)) == (403, "User not authorized")
    assert blind.put(ON_FILE, ADA).status_code == 200
