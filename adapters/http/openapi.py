"""The OpenAPI 3.1 document, generated from the operations and the types of their bodies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final, cast

import falcon
import msgspec
from msgspec import Struct

from adapters.http.agreements import AgreementResource
from adapters.http.cards import CardResource
from adapters.http.centers import CenterResource
from adapters.http.desk_links import DeskResource
from adapters.http.errors import ERROR_TYPE, InternalError, InvalidRequest, error_body
from adapters.http.events import EventResource
from adapters.http.evidence import EvidenceResource
from adapters.http.guests import GuestResource
from adapters.http.health import HealthChecks
from adapters.http.hosted_payments import HostedPayments
from adapters.http.middleware import REQUEST_ID, REQUEST_ID_PATTERN
from adapters.http.operations import TAGS, Json, Operation, Tag, operations_of, parameter
from adapters.http.portal import PortalResource
from adapters.http.products import ProductResource
from adapters.http.rate_limits import RATE_LIMIT, RATE_LIMIT_POLICY
from adapters.http.responses import ErrorObject, Refused
from adapters.http.sessions import SessionResource
from adapters.http.webhooks import Webhooks
from adapters.traces import TRACEPARENT
from domain import errors
from domain.errors import Refusal
from domain.events.event import MEANINGS, EventType
from domain.hosted_payments.link import HostedLinks
from domain.permissions import ANY_CALLER


class OpenApiDocument(Struct, frozen=True):
    """An OpenAPI 3.1 document. Only two of its fields are listed here."""

    openapi: str
    paths: dict[str, Any]  # JSON


_REFUSALS: Final = (InvalidRequest(), InternalError(), errors.ServiceUnavailable())
"""The refusals of every operation, with or without authentication."""
_AUTHENTICATED_REFUSALS: Final = (
    errors.UserNotAuthenticated(),
    errors.TooManyRequests(retry_after_seconds=60),
)

_INTRODUCTION: Final = """\
From a token to a card on file:

1. Get a token: `make demo` prints one, and operators issue them with `cardonfile token issue`.
2. List the centers, and choose one that takes cards.
3. Create the guest, under an id that you choose.
4. Start adding a card, and open `hosted_payment_uri` in the guest's browser. The guest enters the \
card there and comes back to `redirect_uri`.
5. Wait for an event, or read the session until its `status` is no longer `open`.
6. List the guest's cards. The list includes the new card, with its `account_id`.

The examples use the ids of `make demo`. The header `Error-Type` of a refusal names its type. A \
request may send an id of your choice in the header `X-Request-ID`. The response and the service's \
log then contain this id, and otherwise a new id. The trace in the header `traceparent` (W3C Trace \
Context) is logged, and continues in events and in calls to payment service providers. Any request may also be refused with 405 Method \
not allowed, or with 431 Request header fields too large.
"""

_SECURITY_SCHEMES: Final = {
    "accessToken": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token that begins with `cof_`, or a token of the company's identity provider.",
    },
    "apikey": {
        "type": "apiKey",
        "in": "header",
        "name": "Authorization",
        "description": "The same token in another form: the word `apikey`, a space, and the token.",
    },
}
_REQUEST_ID: Final[Json] = {
    "description": "The id of the request: the id that the client sent, or a new id.",
    "required": True,
    "schema": {"type": "string", "pattern": f"^{REQUEST_ID_PATTERN}$"},
}
_WRITE_HEADERS: Final[Json] = {
    RATE_LIMIT_POLICY: {
        "description": (
            "How often the caller may write, if the operator limits it: `q` writes in `w` seconds "
            "(draft-ietf-httpapi-ratelimit-headers-10)."
        ),
        "schema": {"type": "string", "examples": ['"writes";q=60;w=60']},
    },
    RATE_LIMIT: {
        "description": "What is left of this limit: `r` writes in the next `t` seconds.",
        "schema": {"type": "string", "examples": ['"writes";r=59;t=60']},
    },
}
"""The headers of a response to a request that writes, once the caller is authenticated."""
_EVENT_HEADERS: Final = {
    "webhook-id": "The id of the event. It is the same at every attempt.",
    "webhook-timestamp": "The time of this attempt, in Unix seconds.",
    "webhook-signature": "One or more signatures, separated by spaces.",
}
_EVENT_TRACE: Final = (
    "The trace of the request that caused the event, if known (W3C Trace Context)."
)
_ANY_SCHEME: Final[list[Json]] = [{name: []} for name in _SECURITY_SCHEMES]


class OpenApi:
    """Serves the document at `/openapi.json`."""

    def __init__(self, links: HostedLinks, events: Mapping[EventType, Struct]) -> None:
        """Set what the document needs. `events` contains an example body of each type of event."""
        self._links = links
        self._events = events

    @cached_property
    def _encoded(self) -> bytes:
        return msgspec.json.encode(document(self._links.base_url, self._events))

    @Operation(
        method="get",
        path="/openapi.json",
        name="openapi",
        tag=Tag.SERVICE,
        summary="This document",
        description="The document describes the service at the address from which it was read.",
        response=OpenApiDocument,
    )
    def show(self, resp: falcon.Response) -> None:
        """Respond with the document."""
        resp.content_type = "application/json"
        resp.data = self._encoded


_RESOURCES = (
    GuestResource,
    SessionResource,
    CardResource,
    DeskResource,
    PortalResource,
    AgreementResource,
    EvidenceResource,
    CenterResource,
    ProductResource,
    EventResource,
    HostedPayments,
    Webhooks,
    HealthChecks,
)

OPERATIONS: Final[Sequence[Operation]] = [
    operation for resource in (*_RESOURCES, OpenApi) for operation in operations_of(resource)
]
"""Every operation of the interface, in the order of the document."""

_BODIES: Final = {op.body.__name__: op.body for op in OPERATIONS if op.body is not None}


def document(base_url: str, events: Mapping[EventType, Struct]) -> Json:
    """Return the OpenAPI document of a service at `base_url`, with these examples of events."""
    types = {body for op in OPERATIONS for body in (op.body, op.response) if body is not None}
    of_events = {type(example) for example in events.values()}
    _, schemas = msgspec.json.schema_components(
        sorted(types | of_events | {Refused, ErrorObject}, key=lambda body: body.__name__),
        ref_template="#/components/schemas/{name}",
    )
    paths: dict[str, Json] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation, base_url)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "cardonfile",
            "version": "1",
            "summary": "Adds payment cards to guests' profiles through a hosted payment page.",
            "description": _INTRODUCTION,
            "contact": {"name": "The operator of this service", "url": base_url},
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": base_url}],
        "tags": [{"name": tag, "description": about} for tag, about in TAGS.items()],
        "paths": paths,
        "webhooks": {kind: {"post": _webhook(kind, body)} for kind, body in events.items()},
        "components": {
            "schemas": {name: _schema(name, schema) for name, schema in schemas.items()},
            "headers": {REQUEST_ID: _REQUEST_ID, **_WRITE_HEADERS},
            "securitySchemes": _SECURITY_SCHEMES,
        },
    }


def _schema(name: str, schema: Json) -> Json:
    """Return the schema of the type `name`, with the list of required fields and without defaults.

    For the body of a request, the type itself lists the required fields. For a response, all fields
    are required except `payment_reference`, because only this field may be missing.
    """
    body = _BODIES.get(name)
    if "properties" not in schema:
        # The schema describes the values of an enumeration.
        return schema
    properties = cast(dict[str, Json], schema["properties"])  # the properties of a Struct
    for described in properties.values():
        # Responses always contain all fields. In a request, client generators would treat a field
        # with a default as required.
        described.pop("default", None)
    _without_constants(properties)
    required = [field for field in properties if field != "payment_reference"]
    return {**schema, "required": required if body is None else list(body.required)}


def _without_constants(properties: dict[str, Json]) -> None:
    """Describe the properties `success` and `error` as properties that may have several values.

    In fact, each of them always has the same value. But client generators produce unusable types
    for a property that can have only one value.
    """
    if success := properties.get("success"):
        is_success = success.pop("enum") == [True]
        success["description"] = f"Always {str(is_success).lower()}."
        if is_success:
            or_null = [_ref(ErrorObject), {"type": "null"}]
            properties["error"] = {"anyOf": or_null, "description": "Always null."}


def _operation(operation: Operation, base_url: str) -> Json:
    described: Json = {
        "operationId": operation.name,
        "tags": [operation.tag],
        "summary": operation.summary,
        "responses": {
            status: _with_common_headers(operation, status, response)
            for status, response in _responses(operation).items()
        },
        "security": _ANY_SCHEME if operation.calls is not None else [],
    }
    if description := f"{operation.description} {_needed(operation)}".strip():
        described["description"] = description
    if operation.parameters:
        described["parameters"] = list(operation.parameters)
    if operation.body is not None:
        content = _json(_ref(operation.body), examples=operation.body_examples(base_url))
        described["requestBody"] = {"required": True, "content": content}
    if operation.has_body_of_provider:
        described["requestBody"] = {"content": _json({})}
    return described


def _webhook(event_type: EventType, example: Struct) -> Json:
    """Return the OpenAPI entry of one event type."""
    examples = {event_type.value: {"value": msgspec.to_builtins(example)}}
    content = _json(_ref(type(example)), examples=examples)
    return {
        "operationId": event_type.value,
        "summary": MEANINGS[event_type],
        "description": "Verify the signature of the event, as docs/events.md describes.",
        "parameters": [
            parameter(name, "header", about, required=True, type="string")
            for name, about in _EVENT_HEADERS.items()
        ]
        + [parameter(TRACEPARENT, "header", _EVENT_TRACE, type="string")],
        "requestBody": {"required": True, "content": content},
        "responses": {
            "2XX": {"description": "The endpoint accepted the event, which is not sent again."},
            "410": {"description": "The endpoint does not want events. No more events are sent."},
        },
        "security": [],
    }


def _needed(operation: Operation) -> str:
    if operation.calls is None:
        return ""
    needs = operation.calls.needs
    if not needs.any_of:
        return "Any valid token may be used."
    limits = "A token that is limited to centers gets 403. " if needs.every_center else ""
    *others, last = [f"`{permission}`" for permission in needs.any_of]
    either = f"{', '.join(others)} or {last}" if others else last
    also = "".join(f" and `{permission}`" for permission in needs.also)
    return f"{limits}Needs {either}{also}."


def _responses(operation: Operation) -> dict[str, Json]:
    responses = {str(status): _page(status, text) for status, text in operation.pages.items()}
    if operation.media_type:
        content: Json = {operation.media_type: {"schema": {"type": "string"}}}
    elif operation.response is not None:
        content = _json(_ref(operation.response))
    else:
        return responses
    responses["200"] = {"description": "Done.", "content": content, "headers": operation.headers}
    if operation.links:
        responses["200"]["links"] = {
            name: {"operationId": name, "parameters": parameters}
            for name, parameters in operation.links.items()
        }
    by_code: dict[int, list[Refusal]] = {}
    for refusal in _refusals(operation):
        by_code.setdefault(refusal.code, []).append(refusal)
    for code, refusals in sorted(by_code.items()):
        responses[str(code)] = _refused(operation.path, refusals)
    return responses


def _with_common_headers(operation: Operation, status: str, response: Json) -> Json:
    headers = cast(Json, response.get("headers", {}))  # made by `_responses`
    is_counted = operation.calls is not None and operation.method != "get" and status != "401"
    common = [REQUEST_ID, *(_WRITE_HEADERS if is_counted else ())]
    references = {name: {"$ref": f"#/components/headers/{name}"} for name in common}
    return {**response, "headers": {**headers, **references}}


def _refusals(operation: Operation) -> Sequence[Refusal]:
    common: tuple[Refusal, ...] = () if operation.calls is None else _AUTHENTICATED_REFUSALS
    if operation.calls and operation.calls.needs != ANY_CALLER:
        common += (errors.UserNotAuthorized(),)
    return (*operation.refusals, *common, *_REFUSALS)


def _refused(path: str, refusals: Sequence[Refusal]) -> Json:
    bodies = [error_body(path, refusal) for refusal in refusals]
    examples = {
        f"{refusal.type} {refusal.message}".lower().rstrip(".").replace(" ", "-"): {
            "summary": refusal.message,
            "value": msgspec.to_builtins(body),
        }
        for refusal, body in zip(refusals, bodies, strict=True)
    }
    headers: Json = {
        ERROR_TYPE: {
            "description": "The type of the refusal.",
            "required": True,
            # There is no `enum`, because strict clients would refuse values that are added later.
            "schema": {
                "type": "string",
                "examples": sorted({refusal.type for refusal in refusals}),
            },
        }
    }
    if isinstance(refusals[0], errors.TooManyRequests):
        headers["Retry-After"] = {
            "description": "The number of seconds to wait before the next request.",
            "schema": {"type": "integer"},
        }
    return {
        "description": " / ".join(dict.fromkeys(refusal.message for refusal in refusals)),
        "headers": headers,
        "content": _json(_ref(type(bodies[-1])), examples=examples),
    }


def _page(status: int, description: str) -> Json:
    if status == 303:
        location: Json = {"required": True, "schema": {"type": "string", "format": "uri"}}
        return {"description": description, "headers": {"Location": location}}
    return {"description": description, "content": {"text/html": {"schema": {"type": "string"}}}}


def _json(schema: Json, **more: object) -> Json:
    return {"application/json": {"schema": schema, **more}}


def _ref(struct: type[Struct]) -> Json:
    return {"$ref": f"#/components/schemas/{struct.__name__}"}
