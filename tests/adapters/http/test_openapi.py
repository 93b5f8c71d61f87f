from __future__ import annotations

import inspect
import json

import openapi_spec_validator
from falcon import inspect as falcon_inspect

import adapters.http.errors
import domain.errors
from adapters.http.errors import MethodNotAllowed
from domain.errors import Refusal
from tests.adapters.http.api import DOCUMENT, Api
from tests.installation import Installation


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
        # HEAD has the responses of GET, without a body.
        if method.method != "HEAD"
    }

    assert routes == {
        (path, method) for path, methods in DOCUMENT["paths"].items() for method in methods
    }


def test_every_refusal_is_described() -> None:
    # No operation describes MethodNotAllowed, which is the response to undescribed methods.
    every = {
        each
        for module in (domain.errors, adapters.http.errors)
        for _, each in inspect.getmembers(module, inspect.isclass)
        if issubclass(each, Refusal) and each not in (Refusal, MethodNotAllowed)
    }
    document = json.dumps(DOCUMENT)
    for refusal in every:
        assert getattr(refusal, "message", "billing_info.") in document, refusal
    assert len(every) > 20


def test_an_operation_names_its_permissions_and_its_token() -> None:
    operation = DOCUMENT["paths"]["/api/v1/guests/{guest_id}/accounts"]["get"]

    assert operation["description"].endswith("Needs `guests:view`, `guests:add` or `guests:edit`.")
    assert operation["security"] == [{"accessToken": []}]
    assert DOCUMENT["paths"]["/healthz"]["get"]["security"] == []
