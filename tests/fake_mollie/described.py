"""Requests and responses, against the excerpt of Mollie's OpenAPI description beside this file.

`-p tests.fake_mollie.described` prints how many a run of pytest has validated.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl

import pytest
from jsonschema_rs import Draft202012Validator

Json: TypeAlias = Any  # as it goes over the wire

DESCRIPTION: Final[Json] = json.loads(Path(__file__).with_name("description.json").read_text())
ERROR: Final = {"$ref": "#/components/schemas/error-response"}
UNDESCRIBED: Final = frozenset({400, 401, 403, 409, 410, 422, 503})
"""Statuses of any operation that only Mollie's guides have ("Handling errors", "API idempotency",
and 410 in "Get mandate" of the former reference). Their bodies are errors too."""

validated: Final[Counter[str]] = Counter()
"""How many requests and responses were found to be as described."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many, if the tests ran in this process."""
    told = ", ".join(f"{count} {what}" for what, count in sorted(validated.items()))
    terminalreporter.line(f"as Mollie's description says: {told or 'nothing'}")


def require_request(method: str, path: str, query: str, body: bytes) -> None:
    """Raise an exception if a request is not described, or has a field that is not."""
    operation = _operation(method, path)
    known = {each["name"]: each["schema"] for each in operation.get("parameters", [])}
    for name, value in parse_qsl(query, keep_blank_values=True):
        assert name in known, f"{method} {path} has no parameter {name}"
        given = int(value) if value.isdigit() else value
        _validator(json.dumps(known[name]), is_whole=False).validate(given)
    if body:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        _validator(json.dumps(schema)).validate(json.loads(body))
    validated["requests"] += 1


def require_response(method: str, path: str, status: int, body: bytes) -> None:
    """Raise an exception if a response is not described, or has a field that is not."""
    described = _operation(method, path)["responses"].get(str(status))
    content: Json = None
    if described is None:
        assert status in UNDESCRIBED, f"{method} {path} does not respond {status}"
        content = {"application/hal+json": {"schema": ERROR}}
    elif "$ref" in described:
        name = described["$ref"].rpartition("/")[2]
        content = DESCRIPTION["components"]["responses"][name]["content"]
    else:
        content = described.get("content")
    if content is None:
        assert body == b""
    else:
        schema = content["application/hal+json"]["schema"]
        _validator(json.dumps(schema)).validate(json.loads(body))
    validated["responses"] += 1


def _operation(method: str, path: str) -> Json:
    for template, operations in DESCRIPTION["paths"].items():
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path):
            return operations[method.lower()]
    raise AssertionError(f"{path} is not described")


@cache
def _validator(schema: str, *, is_whole: bool = True) -> Draft202012Validator:
    whole = {"unevaluatedProperties": False} if is_whole else {}
    components = DESCRIPTION["components"]
    return Draft202012Validator({"allOf": [json.loads(schema)], **whole, "components": components})
