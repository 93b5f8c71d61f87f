"""Add-card over HTTP. The rules are tested in the domain."""

from __future__ import annotations

import json
import re
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from adapters.psp_suite.samples import GUEST_ID
from domain.billing import MAX_LENGTHS
from domain.languages import EXPECTED_LOCALE
from domain.source import Source
from tests.adapters.http.api import ACCOUNTS, GOOD_BODY, Api, refused
from tests.builders import CENTER_ID
from tests.installation import BASE_URL, REDIRECT_URI


def test_the_response_to_add_card_contains_the_link_of_the_session(api: Api) -> None:
    result = api.post({**GOOD_BODY, "source": 5, "billing_info": None, "locale": ""})

    assert result.status_code == 200
    assert list(result.json) == ["success", "error", "hosted_payment_uri", "token_id"]
    token_id = result.json["token_id"]
    assert str(UUID(token_id)) == token_id
    link = result.json["hosted_payment_uri"]
    key = api.installation.session(token_id).link_key
    start = f"{BASE_URL}/hosted-payments?token_id={token_id}&key={key}&redirect_uri=https%3A"
    assert link.startswith(start)
    assert parse_qs(urlsplit(link).query)["redirect_uri"] == [REDIRECT_URI]
    assert result.headers["cache-control"] == "no-store"


def test_the_source_of_add_card_may_be_sent_as_a_string(api: Api) -> None:
    result = api.post({**GOOD_BODY, "source": "5"})

    assert api.installation.session(result.json["token_id"]).source is Source.MOBILE


# Shows S5.
def test_the_address_of_a_link_does_not_depend_on_the_host_header(api: Api) -> None:
    result = api.post(
        GOOD_BODY, headers={"Host": "evil.example", "X-Forwarded-Host": "evil.example"}
    )

    assert result.json["hosted_payment_uri"].startswith(BASE_URL)


# Shows S14.
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"center_id": [CENTER_ID]}, "Invalid center id"),
        ({"redirect_uri": {}}, "redirect_uri is invalid"),
        ({"source": 10**400}, "Invalid source"),
        ({"source": ["1"]}, "Invalid source"),
        ({"billing_info": []}, "billing_info is invalid"),
        ({"link_minutes": 30.0}, "link_minutes must be a whole number from 15 to 30"),
        ({"locale": 7}, f"locale must be {EXPECTED_LOCALE}"),
    ],
)
def test_add_card_with_an_invalid_field_is_refused_without_storing_anything(
    refusing: Api, body: dict[str, object], message: str
) -> None:
    assert refused(refusing.post({**GOOD_BODY, **body})) == (400, message)


# Shows S12.
@pytest.mark.parametrize("broken", ["\x1b[31m", "\ud800"])
def test_add_card_refuses_control_characters_in_every_field(refusing: Api, broken: str) -> None:
    for name, message in (
        ("center_id", "Invalid center id"),
        ("redirect_uri", "redirect_uri is invalid"),
        ("source", "Invalid source"),
    ):
        body = {**GOOD_BODY, name: f"{GOOD_BODY.get(name, 1)}{broken}"}
        assert refused(refusing.post(body)) == (400, message)
    for name in MAX_LENGTHS:
        result = refusing.post({**GOOD_BODY, "billing_info": {name: f"a{broken}b"}})
        assert refused(result) == (400, f"billing_info.{name} is invalid")


# Shows S14.
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"source": NaN}',
        b'{"source": 1e999}',
        b'{"source": 1, "source": 5}',
        b'{"billing_info": {"city": "a", "city": "b"}}',
        b'{"center_id": "\xff"}',
        b'{"source": ' + b"9" * 5000 + b"}",
        b"\xef\xbb\xbf\xef\xbb\xbf{}",
        json.dumps({}).encode("utf-16"),
        b"[" * 16_000,
    ],
    # pytest cannot select a test by a name with brackets and quotes.
    ids=lambda body: re.sub(r"\W+", "-", repr(body[:24])),
)
def test_a_request_body_other_than_a_json_object_is_refused(refusing: Api, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}

    result = refusing.send("POST", ACCOUNTS, body=body, headers=headers)

    assert refused(result) == (400, "Invalid request body")


def test_a_byte_order_mark_at_the_start_of_a_request_body_is_ignored(api: Api) -> None:
    body = b"\xef\xbb\xbf" + json.dumps(GOOD_BODY).encode()
    headers = {"Content-Type": "application/json"}

    assert api.send("POST", ACCOUNTS, body=body, headers=headers).status_code == 200


# Shows S14.
def test_a_request_body_of_more_than_16_kib_is_refused(api: Api) -> None:
    filled = json.dumps({**GOOD_BODY, "padding": ""})
    fits = filled.replace('""', '"' + "x" * (16 * 1024 - len(filled)) + '"')
    headers = {"Content-Type": "application/json"}

    assert api.send("POST", ACCOUNTS, body=fits, headers=headers).status_code == 200
    result = api.send("POST", ACCOUNTS, body=fits + " ", headers=headers)
    assert refused(result) == (413, "Request body too large")


# Shows S14.
@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": ""},
        {"Content-Type": "application/jsonp"},
        {"Content-Type": "application/json; charset=latin-1"},
        {"Content-Encoding": "gzip"},
    ],
    ids=lambda headers: "-".join(headers.values()),
)
def test_a_request_body_with_a_media_type_other_than_json_is_refused(
    refusing: Api, headers: dict[str, str]
) -> None:
    assert refused(refusing.post(GOOD_BODY, headers=headers)) == (415, "Unsupported media type")


def test_every_spelling_of_the_json_media_type_is_accepted(api: Api) -> None:
    for content_type in (
        "application/json; charset=utf-8",
        "Application/JSON",
        "application/json;",
    ):
        assert api.post(GOOD_BODY, headers={"Content-Type": content_type}).status_code == 200


# Shows S15.
def test_unknown_fields_of_add_card_are_never_stored(api: Api) -> None:
    unknown = {
        "card_number": "4111111111111111",
        "billing_info": {"cvc": "cvc-canary", "city": "X"},
    }

    assert api.post({**GOOD_BODY, **unknown}).status_code == 200

    files = list(api.installation.database.parent.glob("cards.db*"))
    assert files
    for file in files:
        content = file.read_bytes()
        assert b"4111111111111111" not in content
        assert b"cvc-canary" not in content


def test_sending_add_card_twice_with_one_idempotency_key_returns_the_same_session(api: Api) -> None:
    headers = {"Idempotency-Key": "order-17"}
    first = api.post(GOOD_BODY, headers=headers)
    assert "idempotent-replayed" not in first.headers

    for source in (1, "1"):
        again = api.post({**GOOD_BODY, "source": source}, headers=headers)
        assert again.json == first.json
        assert again.headers["idempotent-replayed"] == "true"
    for source in (5, "5"):
        assert refused(api.post({**GOOD_BODY, "source": source}, headers=headers)) == (
            422,
            "Idempotency-Key was used with a different request",
        )


@pytest.mark.installed(CARDONFILE_CARD_TESTING_LIMITS="")
def test_refusing_the_eleventh_session_of_a_guest_is_logged(api: Api) -> None:
    assert {api.post(GOOD_BODY).status_code for _ in range(10)} == {200}

    with capture_logs() as logs:
        result = api.post(GOOD_BODY)

    assert refused(result) == (429, "Too many requests")
    assert result.headers["retry-after"] == str(24 * 3600)
    (line,) = (line for line in logs if line["event"] == "card_limit_reached")
    assert (line["limit"], line["of"]) == ("sessions per guest", GUEST_ID)
    assert (line["caller"], line["log_level"]) == (api.installation.caller.name, "warning")
