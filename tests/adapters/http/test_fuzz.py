"""Valid and invalid requests generated from the OpenAPI document get described responses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from itertools import count, cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from wsgiref.types import StartResponse, WSGIEnvironment

import pytest
from hypothesis import HealthCheck, given, seed, settings

from adapters.http.openapi import OPERATIONS
from adapters.http.operations import Operation
from adapters.psp_suite.samples import GUEST_ID
from domain.centers.payment_configuration import MAX_LINK_MINUTES
from domain.identifiers import TokenId
from domain.sessions.end import SessionStatus
from tests.adapters.http.api import DOCUMENT, GOOD_BODY, Api
from tests.builders import CENTER_ID, a_product
from tests.databases import committed
from tests.fuzzing import TIMES
from tests.installation import DECLINED_CARD, GOOD_CARD, OTHER_GOOD_CARD, Installation

# Imported by the tests: it takes a second, which each process that shares the suite would spend.
if TYPE_CHECKING:
    from schemathesis import Case, Response
    from schemathesis.checks import CheckFunction
    from schemathesis.generation.stateful.state_machine import APIStateMachine
    from schemathesis.specs.openapi.schemas import OpenApiSchema

pytestmark = pytest.mark.fuzz


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    installation = Installation(tmp_path_factory.mktemp("fuzzed"))
    installation.stored_card()
    with committed(installation.storage) as unit:
        unit.products.put_many(a_product(number) for number in range(1, 30))
    yield Api(installation)
    installation.close()


@pytest.fixture(scope="module")
def schema(fuzzed: Api) -> OpenApiSchema:
    import schemathesis

    return schemathesis.openapi.from_wsgi("/openapi.json", fuzzed.installation.container.app())


FUZZING = settings(derandomize=TIMES == 1, suppress_health_check=list(HealthCheck))
KNOWN = {"guest_id": GUEST_ID, "center_id": CENTER_ID, "provider": "fake", "account": "default"}
MOST_ROUNDS = 32
TO_SEE = {
    *((name, 200) for name in ("addCard", "readSession", "listCards", "readCard", "removeCard")),
    ("openHostedPage", 303),
    ("removeCard", 404),
    ("cancelSession", 200),
}
# Nothing wrong can be sent to an operation that has only a path.
CASES = [
    pytest.param(operation, mode, id=f"{operation.name}-{mode}")
    for operation in OPERATIONS
    for mode in ("positive", "negative")
    if mode == "positive" or (len(operation.parameters) > 1 and not operation.has_body_of_provider)
]


@pytest.fixture(scope="module")
def checks() -> list[CheckFunction]:
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_headers_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    return [
        not_a_server_error,
        status_code_conformance,
        content_type_conformance,
        response_headers_conformance,
        response_schema_conformance,
    ]


@pytest.mark.parametrize(("operation", "mode"), CASES)
def test_every_response_to_a_generated_request_matches_the_openapi_document(
    operation: Operation, mode: str, fuzzed: Api, schema: OpenApiSchema, checks: list[CheckFunction]
) -> None:
    from schemathesis.generation import GenerationMode

    described = schema[operation.path][operation.method.upper()]
    known = {name: value for name, value in KNOWN.items() if f"{{{name}}}" in operation.path}
    cases = described.as_strategy(
        generation_mode=GenerationMode(mode), path_parameters=known or None
    )
    if known:
        cases |= described.as_strategy(generation_mode=GenerationMode(mode))

    @settings(FUZZING, max_examples=3 * TIMES)
    @given(cases)
    # Any, because a case may have a body of any type.
    def request_has_a_documented_response(case: Case[Any]) -> None:
        headers = {"Authorization": f"bearer {fuzzed.token}"}
        case.call_and_validate(headers=headers, checks=checks)

    request_has_a_documented_response()


# Shows S17.
def test_every_response_in_a_generated_sequence_of_requests_matches_the_openapi_document(
    tmp_path: Path, checks: list[CheckFunction]
) -> None:
    """The sequences follow the links of the document. Guests type cards on the opened pages."""
    import schemathesis
    from schemathesis.specs.openapi.checks import use_after_free

    folders = (tmp_path / str(number) for number in count())
    api: Api
    seen: Counter[tuple[str, int]] = Counter()

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        return api.installation.container.app()(environ, start_response)

    # Schemathesis changes the document that it is given.
    documented = schemathesis.openapi.from_dict(deepcopy(DOCUMENT)).include(
        path_regex="/guests/.*/accounts|/hosted-payments$"
    )
    documented.app = app

    class History(documented.as_state_machine()):  # type: ignore[misc]  # made from the document
        def setup(self) -> None:
            nonlocal api
            folder = next(folders)
            folder.mkdir()
            api = Api(Installation(folder))
            api.installation.configure(link_minutes=MAX_LINK_MINUTES)
            api.installation.stored_card(OTHER_GOOD_CARD)
            self.cards = cycle([GOOD_CARD, DECLINED_CARD, OTHER_GOOD_CARD])

        def teardown(self) -> None:
            api.installation.close()

        def before_call(self, case: Case[Any]) -> None:
            """Make the request name an existing guest and center."""
            known = {name: KNOWN[name] for name in case.path_parameters if name in KNOWN}
            case.path_parameters.update(known)
            case.query.pop("center_id", None)
            if isinstance(case.body, dict):
                case.body.update(GOOD_BODY)

        def get_call_kwargs(self, _: Case[Any]) -> dict[str, Any]:
            return {"headers": {"Authorization": f"bearer {api.token}"}}

        def after_call(self, response: Response, case: Case[Any]) -> None:
            super().after_call(response, case)
            name = case.operation.definition.raw["operationId"]
            seen[name, response.status_code] += 1
            if (name, response.status_code) == ("addCard", 200):
                # The document cannot lead there: the link holds a key.
                status = open_link(api, response.json(), next(self.cards))
                seen["openHostedPage", status] += 1

        def validate_response(self, response: Response, case: Case[Any], **_: object) -> None:
            # A cancelled session can still be read.
            is_of_session = "/sessions/" in case.operation.path
            also = [] if is_of_session else [use_after_free]
            case.validate_response(response, checks=[*checks, *also], recorder=self.recorder)

    run_until(History, lambda: seen.keys() >= TO_SEE)
    assert seen.keys() >= TO_SEE


def run_until(history: type[APIStateMachine], has_seen_enough: Callable[[], bool]) -> None:
    """Run histories until enough was seen. The document decides which links a round follows."""
    for number in range(MOST_ROUNDS):
        if TIMES == 1:
            seed(number)(history)
        history.run(settings=settings(FUZZING, max_examples=3 * TIMES, stateful_step_count=12))
        if has_seen_enough():
            return


def open_link(api: Api, added: Any, number: str) -> int:  # Any: JSON
    """Open the link of a new session and type a card. Return the status."""
    link = urlsplit(added["hosted_payment_uri"])
    status = api.browse(link.path, link.query).status_code
    if status == 303:
        type_card(api.installation, TokenId(added["token_id"]), number)
    return status


def type_card(installation: Installation, token_id: TokenId, number: str) -> None:
    """Play the guest from the hosted page back to the shop."""
    session = installation.session(token_id)
    if session.status is SessionStatus.OPEN:
        installation.type_card(session, number)
    installation.return_to_shop(session)
