"""A client of the HTTP API that compares every response with the OpenAPI document."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any, Final

import jsonschema_rs
from falcon import testing

from adapters.events.payload import examples
from adapters.http.openapi import document
from adapters.psp_suite.samples import GUEST_ID
from domain.permissions import Caller
from tests.builders import CENTER_ID
from tests.installation import BASE_URL, REDIRECT_URI, Installation

DOCUMENT: Final[Any] = document(BASE_URL, examples())  # JSON has no better type
ACCOUNTS: Final = f"/api/v1/guests/{GUEST_ID}/accounts"
PRODUCTS: Final = f"/v1/centers/{CENTER_ID}/products"
GOOD_BODY: Final = {"center_id": CENTER_ID, "redirect_uri": REDIRECT_URI}

_PATHS = {path: re.compile(re.sub(r"\{\w+\}", "[^/]+", path)) for path in sorted(DOCUMENT["paths"])}


class Api:
    """Sends requests with a token, and fails if a response differs from the document."""

    def __init__(self, installation: Installation, caller: Caller | None = None) -> None:
        self.installation = installation
        self.token = installation.token_for(caller or installation.caller)
        self.client = installation.client()

    def send(
        self,
        method: str,
        path: str,
        *,
        body: str | bytes | None = None,
        query: str | None = None,
        headers: dict[str, str] | None = None,
        authenticated: bool = True,
    ) -> testing.Result:
        """Send a request, and compare its response with the document."""
        all_headers = {"Authorization": f"bearer {self.token}"} if authenticated else {}
        result = self.client.simulate_request(
            method, path, body=body, query_string=query, headers={**all_headers, **(headers or {})}
        )
        assert_documented(method, path, result)
        return result

    def get(self, path: str, query: str | None = None) -> testing.Result:
        """Send a GET request."""
        return self.send("GET", path, query=query)

    def browse(
        self, path: str, query: str, headers: dict[str, str] | None = None
    ) -> testing.Result:
        """Send a GET request as a guest's browser does, without a token."""
        return self.send("GET", path, query=query, headers=headers, authenticated=False)

    def submit(
        self,
        path: str,
        form: str | bytes,
        *,
        query: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> testing.Result:
        """Send a form as a guest's browser does, without a token."""
        sent = {"Content-Type": "application/x-www-form-urlencoded", "Origin": BASE_URL}
        return self.send(
            "POST",
            path,
            body=form,
            query=query,
            headers=sent | (headers or {}),
            authenticated=False,
        )

    def post(
        self,
        body: object,
        *,
        path: str = ACCOUNTS,
        query: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> testing.Result:
        """Send a POST request with a JSON body. Without `path`, the request adds a card."""
        all_headers = {"Content-Type": "application/json", **(headers or {})}
        return self.send("POST", path, body=json.dumps(body), query=query, headers=all_headers)

    def put(self, path: str, body: object) -> testing.Result:
        """Send a PUT request with a JSON body."""
        headers = {"Content-Type": "application/json"}
        return self.send("PUT", path, body=json.dumps(body), headers=headers)


def assert_documented(method: str, path: str, result: testing.Result) -> None:
    """Fail if the document does not describe this response to this request."""
    assert result.headers["x-content-type-options"] == "nosniff"
    assert "server" not in result.headers
    assert result.headers["x-request-id"]
    known = next((known for known, form in _PATHS.items() if form.fullmatch(path)), None)
    operation = known and DOCUMENT["paths"][known].get(method.lower())
    is_refusal = result.status_code >= 400 and "html" not in result.headers["content-type"]
    assert ("error-type" in result.headers) is is_refusal
    if is_refusal and method != "HEAD":
        error_of(result)
    if not operation:
        assert result.status_code in (404, 405)
        return
    assert str(result.status_code) in operation["responses"], (method, path, result.text)
    described = operation["responses"][str(result.status_code)]
    if is_refusal:
        types = described["headers"]["Error-Type"]["schema"]["examples"]
        assert result.headers["error-type"] in types
    content = described.get("content")
    if content is None:
        assert result.text == ""
        return
    content_type = result.headers.get("content-type", "").partition(";")[0]
    assert content_type in content, (content_type, result.text)
    if content_type == "application/json":
        _validator(known, method.lower(), str(result.status_code)).validate(result.json)


@cache
def _validator(path: str, method: str, status: str) -> jsonschema_rs.Validator:
    described = DOCUMENT["paths"][path][method]["responses"][status]
    schema = described["content"]["application/json"]["schema"]
    return jsonschema_rs.validator_for({**schema, "components": DOCUMENT["components"]})


def refused(result: testing.Result) -> tuple[int, str]:
    """Return code and message of a refusal in the envelope."""
    assert "error" in result.json
    return error_of(result)


def refused_bare(result: testing.Result) -> tuple[int, str]:
    """Return code and message of a bare refusal."""
    assert "error" not in result.json
    return error_of(result)


def error_of(result: testing.Result) -> tuple[int, str]:
    """Return code and message of a refusal. The error object must have no other fields."""
    error = result.json.get("error", result.json)
    assert result.json in (error, {"success": False, "error": error})
    assert error == {"code": result.status_code, "message": error["message"]}
    return error["code"], error["message"]
