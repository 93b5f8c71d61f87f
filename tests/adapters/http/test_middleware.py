from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import Final

import pytest
import structlog
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from adapters.http.middleware import SECURITY_HEADERS
from adapters.psp_suite.samples import GUEST_ID
from domain.identifiers import plain_uuid
from tests.adapters.http.api import ACCOUNTS, GOOD_BODY, Api, error_of
from tests.builders import CENTER_ID

ID: Final = "x-request-id"


def test_a_path_returns_the_same_response_with_or_without_the_api_prefix(api: Api) -> None:
    client = api.installation.client()
    headers = {"Authorization": f"apikey {api.token}"}

    def get(path: str) -> tuple[int, object]:
        result = client.simulate_get(path, headers=headers)
        return result.status_code, result.json

    guest = f"/v1/guests/{GUEST_ID}"
    for path in (guest, f"{guest}/accounts", f"{guest}/accounts/x", f"{guest}/x", "/v1/guests/x"):
        assert get(path) == get(f"/api{path}")
    assert get(guest)[0] == 200


def test_a_path_with_a_trailing_slash_responds_404(api: Api) -> None:
    for path in ("/v1/centers/", f"/v1/centers/{CENTER_ID}/products/", f"{ACCOUNTS}/"):
        for method in ("GET", "POST"):
            result = api.send(method, path)
            assert error_of(result) == (404, "Not found")


def test_every_request_is_logged_in_one_line_without_token_or_path(api: Api) -> None:
    with capture_logs() as logs:
        api.get(f"{ACCOUNTS}/sessions/{api.installation.ids.uuid()}", "page=1\r\nfake=line")
    (line,) = logs

    assert line["event"] == "request"
    assert line["route"] == "/api/v1/guests/{guest_id}/accounts/sessions/{token_id}"
    assert (line["method"], line["status"], line["caller"]) == ("GET", 404, "web-shop")
    assert api.token not in repr(line)
    assert "fake=line" not in repr(line)


def test_a_request_for_a_static_file_is_logged_by_its_route(api: Api) -> None:
    with capture_logs() as logs:
        found = api.client.simulate_get("/fake-psp/static/page.js")
        missing = api.client.simulate_get("/fake-psp/static/page.jsx")

    assert (found.status_code, missing.status_code) == (200, 404)
    assert found.headers["Content-Type"].partition(";")[0] == "text/javascript"
    assert {line["route"] for line in logs} == {"/fake-psp/static/{name}"}


@pytest.mark.parametrize(
    ("guest", "body", "error", "ids"),
    [
        (GUEST_ID.upper(), "{", "invalid_request_body", [GUEST_ID]),
        (GUEST_ID, {"center_id": "ada@example.com"}, "invalid_center_id", [GUEST_ID, None]),
        (GUEST_ID, {"center_id": CENTER_ID}, "redirect_uri_required", [GUEST_ID, CENTER_ID]),
        (
            "ada",
            {**GOOD_BODY, "billing_info": "1 Main St"},
            "billing_info_invalid",
            [None, CENTER_ID],
        ),
    ],
)
def test_the_log_line_about_a_refused_add_card_request_contains_the_guest_and_center_ids(
    api: Api, guest: str, body: object, error: str, ids: list[str | None]
) -> None:
    text = body if isinstance(body, str) else json.dumps(body)
    headers = {"Content-Type": "application/json"}
    with capture_logs() as lines:
        api.send("POST", f"/api/v1/guests/{guest}/accounts", body=text, headers=headers)
    (line,) = lines

    assert line["event"] == "request"
    assert line["error"] == error
    assert [line[name] for name in ("guest_id", "center_id") if name in line] == ids
    assert not re.search("ada|Main", repr(line))
    with capture_logs() as lines:
        api.post(GOOD_BODY)
    assert not {"error", "guest_id", "center_id"} & lines[-1].keys()


SENT: Final = ("a", "A" * 128, "web.7_2026-11-23", "00000000-0000-4000-8000-000000000011")
REPLACED: Final = (
    *("", "a b", "A" * 129, "caf\xe9"),
    *("card-4242-4242-4242-4242", "cof_6bK8qzn1IopDD5IZcgb2jemnwnj"),
)


def test_a_request_id_is_replaced_only_if_it_is_malformed_or_resembles_a_card_number_or_token(
    api: Api,
) -> None:
    for sent in SENT:
        assert api.send("GET", "/healthz", headers={"X-Request-ID": sent}).headers[ID] == sent
    for sent in REPLACED:
        with capture_logs([merge_contextvars]) as lines:
            given = api.send("GET", ACCOUNTS, headers={"X-Request-ID": sent}).headers[ID]
        assert given == plain_uuid(given)
        assert [line["request_id"] for line in lines] == [given]


def test_every_log_line_about_a_request_contains_the_request_id_of_the_response(api: Api) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError

    api.installation.container.app().add_route("/fault", SimpleNamespace(on_get=fail))
    paths = ("/healthz", ACCOUNTS, "/nowhere", "/v1/x/", "/fault", "/docs", "/hosted-payments")
    with capture_logs([merge_contextvars]) as lines:
        for turn, path in enumerate(paths):
            sent = {"X-Request-ID": f"turn-{turn}"}
            answer = api.client.simulate_get(path, headers=sent)
            assert answer.headers[ID] == sent["X-Request-ID"]
            # The thread is that of the next request.
            structlog.get_logger().info("between")

    (fault,) = (line for line in lines if line["event"] == "internal_error")
    assert fault["request_id"] == "turn-4"
    assert ["request_id" in line for line in lines if line["event"] == "between"] == [False] * 7
    assert "request" in [line["event"] for line in lines]
    assert all("request_id" in line for line in lines if line["event"] != "between")


def test_health_probes_are_not_logged(api: Api) -> None:
    with capture_logs() as lines:
        for path in ("/healthz", "/readyz"):
            assert api.get(path).status_code == 200
            head = api.client.simulate_head(path)
            assert (head.status_code, head.text) == (200, "")
        api.get("/healthz/")

    assert [(line["event"], line["status"]) for line in lines] == [("request", 404)]


# Shows S9.
@pytest.mark.installed(
    base_url="https://cards.example",
    CARDONFILE_ALLOW_FAKE_PSP="1",
    CARDONFILE_HSTS="max-age=60; includeSubDomains",
)
def test_api_responses_over_https_enable_hsts(api: Api) -> None:
    hsts = api.get("/healthz").headers["strict-transport-security"]
    assert hsts == "max-age=60; includeSubDomains"


# Shows S9.
def test_json_responses_have_the_security_headers(api: Api) -> None:
    headers = api.get("/healthz").headers
    assert {name: headers[name.lower()] for name in SECURITY_HEADERS} == SECURITY_HEADERS
    assert "strict-transport-security" not in headers
