from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from typing import Any

import openapi_spec_validator
import pytest
from falcon import inspect as falcon_inspect

import adapters.http.errors
import domain.errors
from adapters.http.errors import MethodNotAllowed
from adapters.http.operations import OPERATIONS
from domain.errors import Refusal
from tests.adapters.http.api import DOCUMENT, Api
from tests.installation import Installation


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def test_the_document_is_valid_openapi() -> None:
    openapi_spec_validator.validate(DOCUMENT)


def test_the_document_is_served(api: Api) -> None:
    assert api.get("/openapi.json").json == json.loads(json.dumps(DOCUMENT))


def test_every_route_and_method_is_described(installation: Installation) -> None:
    routes = {
        (route.path, method.method.lower())
        for route in falcon_inspect.inspect_routes(installation.container.app())
        for method in route.methods
        if not method.internal and not route.path.startswith("/fake-psp/")
        # HEAD is answered like GET, without the body.
        if method.method != "HEAD"
    }

    assert routes == {(path, method) for path, method, _ in operations()}


def test_every_refusal_is_described() -> None:
    # That a method is not allowed is the answer to what no operation describes.
    every = {
        each
        for module in (domain.errors, adapters.http.errors)
        for _, each in inspect.getmembers(module, inspect.isclass)
        if issubclass(each, Refusal) and each not in (Refusal, MethodNotAllowed)
    }
    document = json.dumps(DOCUMENT)
    for refusal in every:
        message = getattr(refusal, "message", "billing_info.")
        assert message in document, refusal
    assert len(every) > 20


def test_every_answer_and_error_has_an_example() -> None:
    for path, method, operation in operations():
        for status, answer in operation["responses"].items():
            content = answer.get("content", {}).get("application/json")
            if content is None or path == "/openapi.json":
                continue
            if int(status) >= 400:
                assert content["examples"], (path, method, status)
            else:
                schema = DOCUMENT["components"]["schemas"][
                    content["schema"]["$ref"].rpartition("/")[2]
                ]
                assert_exemplary(schema)


def assert_exemplary(schema: dict[str, Any]) -> None:
    """Fail when a plain field has neither an example nor fixed values."""
    for name, field in schema["properties"].items():
        if "$ref" in json.dumps(field) or field.get("type") == "null":
            continue
        assert {"examples", "enum"} & field.keys(), (schema["title"], name)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_every_operation_has_a_summary(operation: Any) -> None:
    assert operation.summary


def descriptions(part: object) -> Iterator[str]:
    """Give every description and summary in a part of the document."""
    if isinstance(part, dict):
        for name, value in part.items():
            if name in ("description", "summary") and isinstance(value, str):
                yield value
            else:
                yield from descriptions(value)
    elif isinstance(part, list):
        for value in part:
            yield from descriptions(value)


def test_every_description_is_a_clean_sentence() -> None:
    every = list(descriptions(DOCUMENT))

    assert len(every) > 100
    for text in every:
        assert text == " ".join(text.split()), text
        assert not re.search(r" [.,;:)]|\( |\.\.|\(interface|``|\bsections? [0-9]", text), text
