"""Validates requests and responses with Mollie's OpenAPI description.

The description is specs.yaml of github.com/mollie/openapi.

The description is not part of this project, because of its license (CC-BY-NC-SA-4.0). For
`make test-mollie-described`, the environment variable MOLLIE_OPENAPI names a copy, and
`-p tests.fake_mollie.described` prints how much was validated. Without it, nothing is.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from functools import cache
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl

import pytest
from jsonschema_rs import Draft202012Validator

Json: TypeAlias = Any  # as it goes over the wire

FILE: Final = os.environ.get("MOLLIE_OPENAPI")
ERROR: Final = {"$ref": "#/components/schemas/error-response"}
UNDESCRIBED: Final = frozenset({400, 401, 403, 409, 410, 422, 503})
"""Statuses of any operation that only Mollie's guides have ("Handling errors", "API idempotency",
and 410 in "Get mandate" of the former reference). Their bodies are errors too."""

validated: Final[Counter[str]] = Counter()
"""How many requests and responses were validated."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many requests and responses were validated, if the tests ran in this process."""
    told = ", ".join(f"{count} {what}" for what, count in sorted(validated.items()))
    terminalreporter.line(f"as Mollie's description says: {told or 'nothing'}")


def require_request(method: str, path: str, query: str, body: bytes) -> None:
    """Raise an exception if a request or one of its fields is not described."""
    if FILE is None:
        return
    operation = _operation(method, path)
    parameters = map(_resolved, operation.get("parameters", []))
    known = {each["name"]: each["schema"] for each in parameters if each["in"] == "query"}
    for name, value in parse_qsl(query, keep_blank_values=True):
        assert name in known, f"{method} {path} has no parameter {name}"
        given = int(value) if value.isdigit() else value
        _validator(json.dumps(known[name]), is_whole=False).validate(given)
    if body:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        _validator(json.dumps(schema)).validate(json.loads(body))
    validated["requests"] += 1


def require_response(method: str, path: str, status: int, body: bytes) -> None:
    """Raise an exception if a response or one of its fields is not described."""
    if FILE is None:
        return
    described = _operation(method, path)["responses"].get(str(status))
    content: Json = None
    if described is None:
        assert status in UNDESCRIBED, f"{method} {path} does not respond {status}"
        content = {"application/hal+json": {"schema": ERROR}}
    else:
        content = _resolved(described).get("content")
    if content is None:
        assert body == b""
    else:
        schema = content["application/hal+json"]["schema"]
        _validator(json.dumps(schema)).validate(json.loads(body))
    validated["responses"] += 1


@cache
def _description() -> Json:
    # Imported only if it is needed, because that takes long.
    from openapi_spec_validator.readers import read_from_filename

    description, _ = read_from_filename(str(FILE))
    return description


def _resolved(described: Json) -> Json:
    """Resolve a reference to a parameter or a response. The reference may add fields."""
    if "$ref" not in described:
        return described
    kind, name = described["$ref"].split("/")[-2:]
    return {**_description()["components"][kind][name], **described}


def _operation(method: str, path: str) -> Json:
    paths = _description()["paths"]
    # A path without parameters, such as /profiles/me, comes before one that has them.
    for template in sorted(paths, key=lambda each: each.count("{")):
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path):
            return paths[template][method.lower()]
    raise AssertionError(f"{path} is not described")


@cache
def _validator(schema: str, *, is_whole: bool = True) -> Draft202012Validator:
    whole = {"unevaluatedProperties": False} if is_whole else {}
    components = {"schemas": _description()["components"]["schemas"]}
    return Draft202012Validator({"allOf": [json.loads(schema)], **whole, "components": components})
