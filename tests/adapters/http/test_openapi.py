from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from itertools import product
from typing import Final
from urllib.parse import urlencode

from falcon import inspect as falcon_inspect

import adapters.http.errors
import domain.errors
from adapters.http.openapi import OPERATIONS
from domain.errors import Refusal
from domain.pagination import PageRequest
from entrypoints.demo.sample import CARD, CONSENT, GUESTS, SPA, store_sample
from tests.adapters.http.api import DOCUMENT, Api
from tests.installation import Installation


def test_the_openapi_document_is_valid() -> None:
    # Imported here, because each process of the run would spend half a second on it.
    import openapi_spec_validator

    openapi_spec_validator.validate(DOCUMENT)
    # Linters ask for these too.
    assert DOCUMENT["info"]["contact"]
    for methods in DOCUMENT["paths"].values():
        assert all(each["description"] and each["summary"] for each in methods.values())


def schemas(part: object) -> Iterator[dict[str, object]]:
    """Yield every schema within a part of the document, and every other object."""
    if isinstance(part, dict):
        yield part
    for inner in (
        part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    ):
        yield from schemas(inner)


def test_client_generators_can_read_the_schemas_of_the_openapi_document() -> None:
    # They apply a format beside `anyOf` to null too, or ignore it.
    assert [each for each in schemas(DOCUMENT) if {"anyOf", "format"} <= each.keys()] == []
    described = DOCUMENT["components"]["schemas"]
    source = described["AddCardBody"]["properties"]["source"]
    assert (source["type"], source["enum"]) == ("integer", [1, 5])
    for name, fields in (("ErrorObject", {"code", "message"}), ("Refused", {"success", "error"})):
        schema = described[name]
        assert schema["properties"].keys() == set(schema["required"]) == fields
        assert schema["additionalProperties"] is False


def test_the_openapi_document_is_served(api: Api) -> None:
    assert api.get("/openapi.json").json == json.loads(json.dumps(DOCUMENT))


def test_the_openapi_document_describes_every_method_of_every_route(
    installation: Installation,
) -> None:
    routes = {
        (route.path, method.method.lower())
        for route in falcon_inspect.inspect_routes(installation.container.app())
        for method in route.methods
        # Pages for people, and what belongs to them, are not described.
        if not method.internal and not route.path.startswith(("/fake-psp/", "/docs"))
        if not route.path.startswith(("/hosted-payments/style/", "/hosted-payments/logos/"))
        # HEAD has the responses of GET, without a body.
        if method.method != "HEAD"
    }

    assert routes == {
        (path, method) for path, methods in DOCUMENT["paths"].items() for method in methods
    }


TYPES: Final = {
    "agreement_ended": (400, "Agreement ended"),
    "agreement_not_found": (404, "Agreement not found"),
    "agreement_reference_used": (409, "Agreement reference used"),
    "consent_not_set": (400, "Consent not set"),
    "too_many_agreements": (400, "Too many agreements"),
    "billing_info_invalid": (400, None),
    "billing_info_required": (400, None),
    "event_not_found": (404, "Event not found"),
    "events_gone": (410, "Events gone"),
    "evidence_key_missing": (400, "Evidence key missing"),
    "cards_do_not_match": (409, "Cards do not match"),
    "card_incomplete": (400, "Card details are incomplete"),
    "guest_not_found": (404, "Guest not found"),
    "idempotency_key_invalid": (400, "Idempotency-Key is invalid"),
    "idempotency_key_reused": (422, "Idempotency-Key was used with a different request"),
    "incorrect_billing_address": (
        400,
        (
            "Transaction failed due to an incorrect billing address. "
            "Please update the postal code and try again."
        ),
    ),
    "center_keeps_one_card": (400, "Payment method already exists"),
    "internal_error": (500, "Internal error"),
    "invalid_center_id": (400, "Invalid center id"),
    "invalid_field": (400, None),
    "invalid_guest_id": (400, "Guest not found"),
    "invalid_product_id": (400, "Invalid product id"),
    "invalid_request": (400, "Invalid request"),
    "invalid_request_body": (400, "Invalid request body"),
    "invalid_source": (400, "Invalid source"),
    "invalid_webhook": (400, "Invalid webhook"),
    "method_not_allowed": (405, "Method not allowed"),
    "not_found": (404, "Not found"),
    "page_parameter_invalid": (422, None),
    "payment_account_not_found": (404, "Payment account not found"),
    "payment_configuration_not_done": (400, "Payment configuration not done"),
    "payment_method_already_exists": (400, "Payment method already exists"),
    "payment_method_not_accepted": (400, "Payment method not accepted"),
    "portal_limit_reached": (429, "Too many requests"),
    "precondition_failed": (412, "Precondition failed"),
    "redirect_uri_invalid": (400, "redirect_uri is invalid"),
    "redirect_uri_required": (400, "redirect_uri is required"),
    "request_body_too_large": (413, "Request body too large"),
    "service_unavailable": (503, "Service temporarily unavailable"),
    "session_ended": (409, "Session has ended"),
    "session_not_found": (404, "Session not found"),
    "too_many_desk_links": (409, "Too many desk links"),
    "too_many_items": (422, "You cannot request more than 100 items."),
    "too_many_requests": (429, "Too many requests"),
    "card_limit_reached": (429, "Too many requests"),
    "unknown_query_parameter": (400, None),
    "unsupported_media_type": (415, "Unsupported media type"),
    "user_not_authenticated": (401, "User not authenticated"),
    "user_not_authorized": (403, "User not authorized"),
}
"""Every type, with its code and its message if that is fixed. Clients rely on each: none changes."""


def test_the_type_and_code_and_message_of_each_error_do_not_change() -> None:
    every = [
        (refusal.type, (refusal.code, getattr(refusal, "message", None)))
        for module in (domain.errors, adapters.http.errors)
        for _, refusal in inspect.getmembers(module, inspect.isclass)
        if issubclass(refusal, Refusal) and refusal is not Refusal
    ]
    assert dict(every) == TYPES


def test_the_openapi_document_names_the_error_types_of_each_operation() -> None:
    named = set()
    for operations in DOCUMENT["paths"].values():
        for operation in operations.values():
            for described in operation["responses"].values():
                content = described.get("content", {}).get("application/json", {})
                if examples := content.get("examples", {}):
                    types = described["headers"]["Error-Type"]["schema"]["examples"]
                    assert {name.partition("-")[0] for name in examples} == set(types)
                    named |= set(types)
    # The others are of sessions that have failed.
    of_sessions = {
        *("payment_method_already_exists", "payment_method_not_accepted", "card_incomplete"),
        "agreement_ended",
    }
    assert named == TYPES.keys() - {"method_not_allowed", *of_sessions}


WITHOUT_EXAMPLES: Final = {
    *("eraseGuest", "mergeGuests", "readAgreement", "endAgreement", "readEvidence"),
    *("makeDeskLink", "readCode", "readEvent"),
}
"""The demo has nothing to erase, to merge or to end, no open session, no event, and no key that signs
evidence.
"""


def example_requests() -> Iterator[tuple[str, str, str, str, object]]:
    """Yield name, method, path, query and body of every combination of examples.

    Operations that need a value without an example, such as a session's token, have no example.
    """
    for path, operations in DOCUMENT["paths"].items():
        for method, operation in operations.items():
            parameters = operation.get("parameters", ())
            needed = [parameter for parameter in parameters if parameter["required"]]
            if all("examples" in parameter for parameter in needed):
                names = [parameter["name"] for parameter in needed]
                content = operation.get("requestBody", {}).get("content", {})
                bodies = content.get("application/json", {}).get("examples", {"": {"value": None}})
                for *ids, body in product(
                    *(
                        [known["value"] for known in parameter["examples"].values()]
                        for parameter in needed
                    ),
                    [known["value"] for known in bodies.values()],
                ):
                    values = dict(zip(names, ids, strict=True))
                    query = {
                        parameter["name"]: values[parameter["name"]]
                        for parameter in needed
                        if parameter["in"] == "query"
                    }
                    address = path.format(**values)
                    yield operation["operationId"], method.upper(), address, urlencode(query), body


def test_every_request_example_works_with_the_records_of_the_demo(
    installation: Installation,
) -> None:
    store_sample(installation.storage)
    api = Api(installation)
    headers = {"Content-Type": "application/json"}

    # Those that only read come first: nothing has been created for them. What they read is removed last.
    order = ("GET", "POST", "PUT", "DELETE")
    requests = sorted(example_requests(), key=lambda request: order.index(request[1]))
    for _, method, path, query, body in requests:
        sent = None if body is None else json.dumps(body)
        result = api.send(method, path, query=query, body=sent, headers=headers)
        assert result.status_code == 200, (method, path, result.text)

    for_clients = {each.name for each in OPERATIONS if each.calls is not None}
    assert {name for name, *_ in requests} >= for_clients - WITHOUT_EXAMPLES
    with installation.storage.read() as unit:
        assert unit.guests.get(GUESTS[0].id) == GUESTS[0]
        assert unit.consents.of(CARD) == [CONSENT]
        products = unit.products.page(SPA.center.id, PageRequest(page=1, size=100)).items
    assert products == tuple(SPA.products())
    # The card that was removed stays removed, and its discard succeeds.
    store_sample(installation.storage)
    assert api.get(f"/api/v1/guests/{CARD.guest_id}/accounts").json["accounts"] == []
    installation.reconcile()


def test_every_webhook_in_the_openapi_document_allows_event_types_of_later_releases() -> None:
    """Later releases may add event types."""
    for name, webhook in DOCUMENT["webhooks"].items():
        content = webhook["post"]["requestBody"]["content"]["application/json"]
        assert content["schema"] == {"$ref": "#/components/schemas/EventPayload"}
        assert content["examples"][name]["value"]["type"] == name
    of_all = DOCUMENT["components"]["schemas"]["EventPayload"]["properties"]["type"]
    assert not {"const", "enum"} & of_all.keys()


def test_every_property_in_the_openapi_document_allows_more_than_one_value() -> None:
    """Many client generators fail at a property with one value, or their code does not compile."""
    for name, schema in DOCUMENT["components"]["schemas"].items():
        for field, described in schema.get("properties", {}).items():
            assert "const" not in described, (name, field)
            assert described.get("type") != "null", (name, field)
            assert len(described.get("enum", "several")) > 1, (name, field)
