"""Add-card over HTTP: sections 2 and 4.1 of the interface, and every row of section 7.1."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import pytest

from adapters.psp.contract.samples import a_uuid
from domain.billing import MAX_LENGTHS
from domain.payment_configuration import CardsPerGuest
from domain.permissions import Permission
from tests.adapters.http.api import ACCOUNTS, GOOD_BODY, Api, refused
from tests.builders import CENTER_ID, OTHER_CENTER_ID, a_center
from tests.installation import BASE_URL, REDIRECT_URI, Installation

NOBODY = a_uuid(999)
WRONG_ADDRESS = (
    "Transaction failed due to an incorrect billing address. "
    "Please update the postal code and try again."
)
NOTHING: dict[str, str] = {}
US_ADDRESS = {"address": "1 Main St", "country_code": "US", "zipcode": "98101"}


def sessions_stored(installation: Installation) -> int:
    """Count the sessions, all of which are due after a day."""
    installation.clock.advance(timedelta(days=2))
    return installation.reconcile().sessions


def test_the_answer_holds_the_link_and_the_token(api: Api) -> None:
    result = api.post({**GOOD_BODY, "source": 5, "billing_info": None})

    assert result.status_code == 200
    assert list(result.json) == ["success", "error", "hosted_payment_uri", "token_id"]
    assert result.json["success"] is True
    assert result.json["error"] is None
    token_id = result.json["token_id"]
    assert str(UUID(token_id)) == token_id
    link = result.json["hosted_payment_uri"]
    assert link.startswith(f"{BASE_URL}/hosted-payments?token_id={token_id}&redirect_uri=https%3A")
    assert parse_qs(urlsplit(link).query) == {
        "token_id": [token_id],
        "redirect_uri": [REDIRECT_URI],
    }
    assert result.headers["cache-control"] == "no-store"


def test_the_link_never_follows_the_host_header(api: Api) -> None:
    result = api.post(
        GOOD_BODY, headers={"Host": "evil.example", "X-Forwarded-Host": "evil.example"}
    )

    assert result.json["hosted_payment_uri"].startswith(BASE_URL)


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ({"center_id": None}, 400, "Invalid center id"),
        ({"center_id": ""}, 400, "Invalid center id"),
        ({"center_id": 5}, 400, "Invalid center id"),
        ({"center_id": [CENTER_ID]}, 400, "Invalid center id"),
        ({"center_id": NOBODY}, 400, "Invalid center id"),
        ({"center_id": f"urn:uuid:{CENTER_ID}"}, 400, "Invalid center id"),
        ({"center_id": CENTER_ID.replace("-", "")}, 400, "Invalid center id"),
        ({"center_id": CENTER_ID + "\x00"}, 400, "Invalid center id"),
        ({"redirect_uri": None}, 400, "redirect_uri is required"),
        ({"redirect_uri": ""}, 400, "redirect_uri is required"),
        ({"redirect_uri": " \t"}, 400, "redirect_uri is required"),
        ({"redirect_uri": "shop"}, 400, "redirect_uri is invalid"),
        ({"redirect_uri": {}}, 400, "redirect_uri is invalid"),
        ({"redirect_uri": "https://shop.example/\u0000"}, 400, "redirect_uri is invalid"),
        ({"redirect_uri": "https://shop.example/" + "x" * 9000}, 400, "redirect_uri is invalid"),
        ({"source": "1"}, 400, "Invalid source"),
        ({"source": True}, 400, "Invalid source"),
        ({"source": 1.0}, 400, "Invalid source"),
        ({"source": 3}, 400, "Invalid source"),
        ({"source": 10**400}, 400, "Invalid source"),
        ({"source": None}, 400, "Invalid source"),
        ({"billing_info": 1}, 400, "billing_info is invalid"),
        ({"billing_info": []}, 400, "billing_info is invalid"),
        ({"billing_info": {"email": "x"}}, 400, "billing_info.email is invalid"),
        ({"billing_info": {"country_code": "ZZ"}}, 400, "billing_info.country_code is invalid"),
        ({"billing_info": {"phone": "555-0100"}}, 400, "billing_info.phone is invalid"),
        ({"billing_info": {"first_name": "\u0000"}}, 400, "billing_info.first_name is invalid"),
        ({"billing_info": {"last_name": "a\nb"}}, 400, "billing_info.last_name is invalid"),
        ({"billing_info": {"address": "\ud800"}}, 400, "billing_info.address is invalid"),
        ({"billing_info": {"state": "\u001b[0m"}}, 400, "billing_info.state is invalid"),
        ({"billing_info": {"zipcode": 98101}}, 400, "billing_info.zipcode is invalid"),
        ({"billing_info": {"city": "x" * 101}}, 400, "billing_info.city is invalid"),
    ],
)
def test_a_wrong_field_is_refused_and_nothing_is_stored(
    api: Api, body: dict[str, object], code: int, message: str
) -> None:
    assert refused(api.post({**GOOD_BODY, **body})) == (code, message)
    assert sessions_stored(api.installation) == 0


@pytest.mark.parametrize(
    "broken", ["a\x00b", "a\x1b[31mb", "a\r\nb", "a\ud800b", "a\u2028b", "\x7f"]
)
@pytest.mark.parametrize("field", MAX_LENGTHS)
def test_control_characters_are_refused_in_every_billing_field(
    api: Api, field: str, broken: str
) -> None:
    result = api.post({**GOOD_BODY, "billing_info": {field: broken}})

    assert refused(result) == (400, f"billing_info.{field} is invalid")
    assert sessions_stored(api.installation) == 0


@pytest.mark.parametrize("broken", ["\x00", "\x1b", "\r\n", "\ud800", "\u2028", "\x7f"])
def test_control_characters_are_refused_in_every_other_field(api: Api, broken: str) -> None:
    for field, message in (
        ("center_id", "Invalid center id"),
        ("redirect_uri", "redirect_uri is invalid"),
        ("source", "Invalid source"),
    ):
        result = api.post({**GOOD_BODY, field: f"{GOOD_BODY.get(field, 1)}{broken}"})
        assert refused(result) == (400, message)
    assert sessions_stored(api.installation) == 0


def test_missing_fields_are_named(api: Api) -> None:
    assert refused(api.post({})) == (400, "Invalid center id")
    assert refused(api.post({"center_id": CENTER_ID})) == (400, "redirect_uri is required")


@pytest.mark.parametrize(
    ("guest_id", "code"),
    [
        (NOBODY, 404),
        ("me", 400),
        ("{" + NOBODY + "}", 400),
        (NOBODY.replace("-", ""), 400),
        ("\u0661", 400),
        ("%00", 400),
    ],
)
def test_a_guest_that_does_not_exist_is_not_found(api: Api, guest_id: str, code: int) -> None:
    result = api.post(GOOD_BODY, path=f"/api/v1/guests/{guest_id}/accounts")

    assert refused(result) == (code, "Guest not found")


def test_payment_must_be_configured(api: Api) -> None:
    api.installation.unconfigure()

    assert refused(api.post(GOOD_BODY)) == (400, "Payment configuration not done")


def test_a_card_that_is_there_is_refused_where_one_is_allowed(api: Api) -> None:
    api.installation.configure(cards_per_guest=CardsPerGuest.ONE)
    api.installation.stored_card()

    assert refused(api.post(GOOD_BODY)) == (400, "Payment method already exists")


def test_a_wrong_postal_code_is_refused_while_avs_is_on(api: Api) -> None:
    api.installation.configure(avs=True)

    assert refused(api.post({**GOOD_BODY, "billing_info": {**US_ADDRESS, "zipcode": "9"}})) == (
        400,
        WRONG_ADDRESS,
    )
    assert refused(api.post(GOOD_BODY)) == (400, "billing_info is required")
    assert api.post({**GOOD_BODY, "billing_info": US_ADDRESS}).status_code == 200


def test_a_caller_without_permission_learns_nothing(installation: Installation) -> None:
    api = Api(installation, installation.a_caller(Permission.GUESTS_VIEW))

    for path in (ACCOUNTS, f"/api/v1/guests/{NOBODY}/accounts", "/api/v1/guests/x/accounts"):
        for body in (NOTHING, GOOD_BODY, [1]):
            assert refused(api.post(body, path=path)) == (403, "User not authorized")
    result = api.send("POST", ACCOUNTS, body="{", headers={"Content-Type": "text/plain"})
    assert refused(result) == (403, "User not authorized")


def test_a_center_outside_the_token_is_forbidden(installation: Installation) -> None:
    installation.has_center(a_center(id=OTHER_CENTER_ID))
    api = Api(installation, installation.a_caller(centers=frozenset({CENTER_ID})))

    for center_id in (OTHER_CENTER_ID, NOBODY):
        result = api.post({**GOOD_BODY, "center_id": center_id})
        assert refused(result) == (403, "User not authorized")
    assert api.post(GOOD_BODY).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"{'center_id': 1}",
        b'{"source": NaN}',
        b'{"source": Infinity}',
        b'{"source": -Infinity}',
        b'{"source": 1, "source": 5}',
        b'{"billing_info": {"city": "a", "city": "b"}}',
        b'{"center_id": "\xff"}',
        b'{"\\ud800": 1}',
        b'{"source": ' + b"9" * 5000 + b"}",
        b"\xef\xbb\xbf{}",
        json.dumps({}).encode("utf-16"),
        b"[" * 16_000,
        b'{"x":' * 3_000,
    ],
    # Brackets and quotes in a name keep pytest from finding the test by it.
    ids=lambda body: re.sub(r"\W+", "-", repr(body[:24])),
)
def test_a_body_that_is_no_json_object_is_refused(api: Api, body: bytes) -> None:
    result = api.send("POST", ACCOUNTS, body=body, headers={"Content-Type": "application/json"})

    assert refused(result) == (400, "Invalid request body")
    assert sessions_stored(api.installation) == 0


def test_a_hundred_thousand_brackets_are_too_large(api: Api) -> None:
    result = api.send(
        "POST", ACCOUNTS, body="[" * 100_000, headers={"Content-Type": "application/json"}
    )

    assert refused(result) == (413, "Request body too large")


def test_a_body_may_have_16_kib_and_no_more(api: Api) -> None:
    filled = json.dumps({**GOOD_BODY, "padding": ""})
    fits = filled.replace('""', '"' + "x" * (16 * 1024 - len(filled)) + '"')
    headers = {"Content-Type": "application/json"}

    assert api.send("POST", ACCOUNTS, body=fits, headers=headers).status_code == 200
    result = api.send("POST", ACCOUNTS, body=fits + " ", headers=headers)
    assert refused(result) == (413, "Request body too large")


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        "text/plain",
        "text/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/json; charset=latin-1",
        "application/json; charset=utf-16",
        "application/jsonp",
    ],
)
def test_other_media_types_are_refused(api: Api, content_type: str) -> None:
    result = api.send(
        "POST", ACCOUNTS, body=json.dumps(GOOD_BODY), headers={"Content-Type": content_type}
    )

    assert refused(result) == (415, "Unsupported media type")


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br"])
def test_an_encoded_body_is_refused(api: Api, encoding: str) -> None:
    result = api.post(GOOD_BODY, headers={"Content-Encoding": encoding})

    assert refused(result) == (415, "Unsupported media type")


@pytest.mark.parametrize(
    "content_type", ["application/json; charset=utf-8", "Application/JSON", "application/json;"]
)
def test_json_in_utf_8_is_taken(api: Api, content_type: str) -> None:
    assert api.post(GOOD_BODY, headers={"Content-Type": content_type}).status_code == 200


def test_unknown_fields_are_ignored_and_never_stored(api: Api) -> None:
    result = api.post(
        {
            **GOOD_BODY,
            "card_number": "4111111111111111",
            "billing_info": {"cvc": "987", "city": "X"},
        }
    )

    assert result.status_code == 200
    files = list(api.installation.database.parent.glob("cards.db*"))
    assert files
    for file in files:
        content = file.read_bytes()
        assert b"4111111111111111" not in content
        assert b"987" not in content


def test_the_same_key_gives_the_same_answer(api: Api) -> None:
    headers = {"Idempotency-Key": "order-17"}
    first = api.post(GOOD_BODY, headers=headers)

    assert api.post({**GOOD_BODY, "source": 1}, headers=headers).json == first.json
    assert refused(api.post({**GOOD_BODY, "source": 5}, headers=headers)) == (
        422,
        "Idempotency-Key was used with a different request",
    )


@pytest.mark.parametrize("key", ["two words", "k" * 256, "\u00e9"])
def test_a_key_of_wrong_form_is_refused(api: Api, key: str) -> None:
    result = api.post(GOOD_BODY, headers={"Idempotency-Key": key})

    assert refused(result) == (400, "Idempotency-Key is invalid")


def test_add_card_can_be_limited_per_caller(tmp_path_factory: pytest.TempPathFactory) -> None:
    limited = Installation(tmp_path_factory.mktemp("limited"), CARDONFILE_ADD_CARD_LIMIT="2/minute")
    api = Api(limited)
    assert [api.post(GOOD_BODY).status_code for _ in range(2)] == [200, 200]

    result = api.post(GOOD_BODY)

    assert refused(result) == (429, "Too many requests")
    assert 1 <= int(result.headers["retry-after"]) <= 60
    assert sessions_stored(limited) == 2
    limited.close()
