"""Requests made from the OpenAPI document, good and bad: no 500, and no answer outside of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from adapters.http.openapi import OPERATIONS, Operation
from tests.adapters.http.api import Api
from tests.builders import CENTER_ID, GUEST_ID, a_product
from tests.installation import Installation

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    installation = Installation(tmp_path_factory.mktemp("fuzzed"))
    installation.stored_card()
    with installation.storage.write() as unit:
        unit.products.put_many(a_product(number) for number in range(1, 30))
        unit.commit()
    yield Api(installation)
    installation.close()


CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
KNOWN = {"guest_id": GUEST_ID, "center_id": CENTER_ID, "provider": "fake", "account": "default"}
# What takes nothing but a path cannot be sent anything wrong.
CASES = [
    (operation, mode)
    for operation in OPERATIONS
    for mode in GenerationMode
    if mode is GenerationMode.POSITIVE
    or (len(operation.parameters) > 1 and not operation.has_signed_body)
]


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize(
    ("operation", "mode"), CASES, ids=[f"{case[0].name}-{case[1].value}" for case in CASES]
)
def test_no_request_gets_an_answer_outside_the_document(
    operation: Operation, mode: GenerationMode, is_known: bool, fuzzed: Api
) -> None:
    app = fuzzed.installation.container.app()
    described = schemathesis.openapi.from_wsgi("/openapi.json", app)[operation.path]
    known = {name: value for name, value in KNOWN.items() if f"{{{name}}}" in operation.path}
    cases = described[operation.method.upper()].as_strategy(
        generation_mode=mode, path_parameters=known if is_known else None
    )

    @settings(
        max_examples=40,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases)
    # Any, because a case may have a body of any type.
    def request_is_answered_as_described(case: Case[Any]) -> None:
        headers = {"Authorization": f"bearer {fuzzed.token}"}
        case.call_and_validate(headers=headers, checks=CHECKS)

    request_is_answered_as_described()


@settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(body=st.binary(max_size=500), signature=st.text(st.characters(codec="latin-1")))
def test_no_webhook_makes_a_fault(fuzzed: Api, body: bytes, signature: str) -> None:
    result = fuzzed.send(
        "POST", "/webhooks/fake", body=body, headers={"Fake-Psp-Signature": signature}
    )

    assert result.status_code == 400
