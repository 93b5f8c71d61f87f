"""The OpenAPI 3.1 document, made from the types that read requests and write answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, TypeAlias, cast

import falcon
import msgspec
from msgspec import Struct

from adapters.http.answers import (
    CardSessionStarted,
    CardSessionState,
    Done,
    ErrorObject,
    Health,
    ProductsForSale,
    Refused,
    StoredCardDetails,
    StoredCards,
)
from adapters.http.errors import (
    InternalError,
    InvalidRequest,
    InvalidRequestBody,
    InvalidWebhook,
    NotFound,
    RequestBodyTooLarge,
    UnsupportedMediaType,
    error_body,
)
from adapters.http.requests import AddCardBody
from domain import errors
from domain.errors import Refusal
from domain.hosted_links import HostedLinks
from domain.pagination import DEFAULT_PAGE, DEFAULT_SIZE, MAX_SIZE

Json: TypeAlias = dict[str, object]

_JSON_TYPES: Final[Mapping[type, str]] = {bool: "boolean", int: "integer", str: "string"}

_AUTHENTICATED: Final = (
    errors.UserNotAuthenticated(),
    errors.UserNotAuthorized(),
    errors.TooManyRequests(retry_after_seconds=60),
)
_ALWAYS: Final = (InvalidRequest(), InternalError(), errors.ServiceUnavailable())
_PAGING: Final = (
    errors.TooManyItems(),
    errors.PageParameterInvalid("page"),
    errors.PageParameterInvalid("size"),
)
_GUEST: Final = (errors.GuestNotFound(), errors.GuestIdNotUsable())


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One method of one path: what it takes, what it answers, how it refuses."""

    method: str
    path: str
    name: str
    summary: str
    description: str = ""
    parameters: Sequence[Json] = ()
    body: type[AddCardBody] | None = None
    has_signed_body: bool = False
    """Whether it takes a body in a provider's own format."""
    answer: type[Struct] | None = None
    refusals: Sequence[Refusal] = ()
    is_authenticated: bool = False
    leads_to: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Operations that take what this one answers, and where each of their parameters comes from."""
    pages: Sequence[tuple[int, str]] = ()
    """Statuses that a guest's browser gets as an HTML page, or as a redirect, and what they say."""


def _path(name: str, description: str, **schema: object) -> Json:
    schema = schema or {"type": "string", "format": "uuid"}
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": description,
        "schema": schema,
    }


def _query(name: str, description: str, *, required: bool = False, **schema: object) -> Json:
    return {
        "name": name,
        "in": "query",
        "required": required,
        "description": description,
        "schema": schema,
    }


_GUEST_ID: Final = _path("guest_id", "The guest.")
_ACCOUNT_ID: Final = _path("account_id", "The payment account.")
_TOKEN_ID: Final = _path("token_id", "The token of the card-addition session.")
_PROVIDER: Final = _path("provider", "The provider's name.", type="string", examples=["fake"])
_PAGE: Final = (
    _query("page", "Which page.", type="integer", minimum=1, default=DEFAULT_PAGE),
    _query(
        "size",
        "Records per page.",
        type="integer",
        minimum=1,
        maximum=MAX_SIZE,
        default=DEFAULT_SIZE,
    ),
)
_IDEMPOTENCY_KEY: Final[Json] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same key and request give the same session again for 24 hours.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
}
_LINK_TOKEN: Final = _query(
    "token_id", "The token of the session.", required=True, type="string", format="uuid"
)
_LINK_PROBLEMS: Final = (
    (404, "The link is not known."),
    (503, "Try again in a moment."),
    (500, "A fault of ours."),
)

_SAME_GUEST: Final = {"guest_id": "$request.path.guest_id"}
_SAME_CARD: Final = {**_SAME_GUEST, "account_id": "$request.path.account_id"}
_ITS_CARD: Final = {**_SAME_GUEST, "account_id": "$response.body#/account_id"}
_FIRST_CARD: Final = {**_SAME_GUEST, "account_id": "$response.body#/accounts/0/account_id"}

_ACCOUNTS: Final = "/api/v1/guests/{guest_id}/accounts"

OPERATIONS: Final[Sequence[Operation]] = (
    Operation(
        method="post",
        path=_ACCOUNTS,
        name="addCard",
        summary="Start adding a card to a guest's profile",
        description=(
            "Answers with the address of a hosted page that collects the card. Redirect the "
            "guest's browser to it. The card is stored after the guest has entered it; the browser "
            "then comes back to redirect_uri. Needs `guests:add` or `guests:edit`."
        ),
        parameters=(_GUEST_ID, _IDEMPOTENCY_KEY),
        body=AddCardBody,
        answer=CardSessionStarted,
        is_authenticated=True,
        leads_to={
            "readSession": {**_SAME_GUEST, "token_id": "$response.body#/token_id"},
            "openHostedPage": {
                "token_id": "$response.body#/token_id",
                "redirect_uri": "$request.body#/redirect_uri",
            },
            "listCards": _SAME_GUEST,
        },
        refusals=(
            UnsupportedMediaType(),
            RequestBodyTooLarge(),
            InvalidRequestBody(),
            errors.InvalidCenterId(),
            errors.RedirectUriRequired(),
            errors.RedirectUriInvalid(),
            errors.InvalidSource(),
            errors.BillingInfoInvalid("email"),
            errors.IdempotencyKeyInvalid(),
            errors.IdempotencyKeyReused(),
            *_GUEST,
            errors.PaymentConfigurationNotDone(),
            errors.PaymentMethodAlreadyExists(),
            errors.BillingInfoRequired("address"),
            errors.IncorrectBillingAddress(),
        ),
    ),
    Operation(
        method="get",
        path=_ACCOUNTS,
        name="listCards",
        summary="List a guest's cards on file",
        description=(
            "Active cards, oldest first. Needs `guests:view`, `guests:add` or `guests:edit`."
        ),
        parameters=(
            _GUEST_ID,
            _query("center_id", "Only cards of this center.", type="string", format="uuid"),
            *_PAGE,
        ),
        answer=StoredCards,
        is_authenticated=True,
        leads_to={"readCard": _FIRST_CARD, "removeCard": _FIRST_CARD},
        refusals=(*_PAGING, errors.InvalidCenterId(), *_GUEST),
    ),
    Operation(
        method="get",
        path=_ACCOUNTS + "/{account_id}",
        name="readCard",
        summary="Read one card on file",
        description="A caller with `payments:use` also gets what is needed to charge the card.",
        parameters=(_GUEST_ID, _ACCOUNT_ID),
        answer=StoredCardDetails,
        is_authenticated=True,
        leads_to={"removeCard": _SAME_CARD},
        refusals=(errors.PaymentAccountNotFound(),),
    ),
    Operation(
        method="delete",
        path=_ACCOUNTS + "/{account_id}",
        name="removeCard",
        summary="Remove a card on file",
        description=(
            "It is discarded at the payment service provider too. Needs `guests:edit` or "
            "`guests:delete`."
        ),
        parameters=(_GUEST_ID, _ACCOUNT_ID),
        answer=Done,
        is_authenticated=True,
        leads_to={"readCard": _SAME_CARD, "listCards": _SAME_GUEST},
        refusals=(errors.PaymentAccountNotFound(),),
    ),
    Operation(
        method="get",
        path=_ACCOUNTS + "/sessions/{token_id}",
        name="readSession",
        summary="Read how a card-addition session stands",
        description="Needs `guests:view`, `guests:add` or `guests:edit`.",
        parameters=(_GUEST_ID, _TOKEN_ID),
        answer=CardSessionState,
        is_authenticated=True,
        leads_to={"readCard": _ITS_CARD, "removeCard": _ITS_CARD},
        refusals=(errors.SessionNotFound(),),
    ),
    Operation(
        method="get",
        path="/v1/centers/{center_id}/products",
        name="listProducts",
        summary="List the products of a center",
        description="In the order of their creation. Needs `products:view`.",
        parameters=(_path("center_id", "The center."), *_PAGE),
        answer=ProductsForSale,
        is_authenticated=True,
        refusals=(*_PAGING, errors.InvalidCenterId()),
    ),
    Operation(
        method="get",
        path="/hosted-payments",
        name="openHostedPage",
        summary="Where the guest's browser is redirected to",
        parameters=(
            _LINK_TOKEN,
            _query(
                "redirect_uri", "As it was asked for.", required=True, type="string", format="uri"
            ),
        ),
        pages=(
            (303, "On to the hosted page, or back to redirect_uri once the session is settled."),
            (400, "The link has been changed."),
            (410, "The link has expired."),
            *_LINK_PROBLEMS,
        ),
    ),
    Operation(
        method="get",
        path="/hosted-payments/return",
        name="returnFromHostedPage",
        summary="Where the hosted page sends the guest when it is done",
        parameters=(_LINK_TOKEN,),
        pages=((303, "Back to redirect_uri."), (400, "No proper request."), *_LINK_PROBLEMS),
    ),
    Operation(
        method="get",
        path="/hosted-payments/cancel",
        name="cancelHostedPage",
        summary="Where the hosted page sends a guest who goes back without a card",
        parameters=(_LINK_TOKEN,),
        pages=((303, "Back to redirect_uri."), (400, "No proper request."), *_LINK_PROBLEMS),
    ),
    Operation(
        method="post",
        path="/webhooks/{provider}",
        name="receiveWebhook",
        summary="Where a payment service provider sends its events",
        description="Signed by the provider, in its own format. Unknown events are ignored.",
        parameters=(_PROVIDER,),
        has_signed_body=True,
        answer=Health,
        refusals=(InvalidWebhook(), NotFound(), RequestBodyTooLarge()),
    ),
    Operation(
        method="post",
        path="/webhooks/{provider}/{account}",
        name="receiveWebhookOfAccount",
        summary="Where a payment service provider sends the events of one merchant account",
        description="As above, verified with the secrets of that account.",
        parameters=(
            _PROVIDER,
            _path("account", "The merchant account's name.", type="string", examples=["harbor"]),
        ),
        has_signed_body=True,
        answer=Health,
        refusals=(InvalidWebhook(), NotFound(), RequestBodyTooLarge()),
    ),
    Operation(
        method="get",
        path="/healthz",
        name="alive",
        summary="Whether the process is alive",
        answer=Health,
    ),
    Operation(
        method="get",
        path="/readyz",
        name="ready",
        summary="Whether the service can read and write its records",
        answer=Health,
    ),
    Operation(
        method="get",
        path="/openapi.json",
        name="openapi",
        summary="This document",
        pages=((200, "The OpenAPI document."),),
    ),
)


class OpenApi:
    """Serves the document."""

    def __init__(self, links: HostedLinks) -> None:
        self._links = links

    @cached_property
    def _encoded(self) -> bytes:
        return msgspec.json.encode(document(self._links.base_url))

    def on_get(self, _: falcon.Request, resp: falcon.Response) -> None:
        """Answer with the document."""
        resp.content_type = "application/json"
        resp.data = self._encoded


def document(base_url: str) -> Json:
    """Give the OpenAPI document of a service at `base_url`."""
    types = {each for op in OPERATIONS for each in (op.body, op.answer) if each is not None}
    _, schemas = msgspec.json.schema_components(
        sorted(types | {Refused, ErrorObject}, key=lambda each: each.__name__),
        ref_template="#/components/schemas/{name}",
    )
    required = {op.body.__name__: op.body.required for op in OPERATIONS if op.body is not None}
    paths: dict[str, Json] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "cardonfile",
            "version": "1",
            "summary": "Adds payment cards to guests' profiles through a hosted payment page.",
            "description": (
                "Whatever is asked for may also be answered 405 Method not allowed, and 431 "
                "Request header fields too large."
            ),
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": base_url}],
        "paths": paths,
        "components": {
            "schemas": {
                name: _described(schema, required.get(name)) for name, schema in schemas.items()
            },
            "securitySchemes": {"accessToken": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(operation: Operation) -> Json:
    described: Json = {
        "operationId": operation.name,
        "summary": operation.summary,
        "responses": _responses(operation),
    }
    if operation.description:
        described["description"] = operation.description
    if operation.parameters:
        described["parameters"] = list(operation.parameters)
    if operation.body is not None:
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _ref(operation.body)}},
        }
    if operation.has_signed_body:
        described["requestBody"] = {"content": {"application/json": {"schema": {}}}}
    described["security"] = [{"accessToken": []}] if operation.is_authenticated else []
    return described


def _responses(operation: Operation) -> Json:
    responses: Json = {}
    if operation.answer is not None:
        links = {
            name: {"operationId": name, "parameters": parameters}
            for name, parameters in operation.leads_to.items()
        }
        done = _json_response("Done.", _ref(operation.answer))
        responses["200"] = {**done, "links": links} if links else done
    for status, meaning in operation.pages:
        responses[str(status)] = _page_response(status, meaning)
    if operation.answer is None:
        return responses
    common = (*_AUTHENTICATED, *_ALWAYS) if operation.is_authenticated else _ALWAYS
    by_code: dict[int, list[Refusal]] = {}
    for refusal in (*operation.refusals, *common):
        by_code.setdefault(refusal.code, []).append(refusal)
    for code, refusals in sorted(by_code.items()):
        responses[str(code)] = _refusal_response(operation.path, refusals)
    return responses


def _refusal_response(path: str, refusals: Sequence[Refusal]) -> Json:
    examples: Json = {}
    schema: type[Struct] = ErrorObject
    for refusal in refusals:
        body = error_body(path, refusal)
        schema = type(body)
        name = refusal.message.lower().rstrip(".").replace(" ", "-")
        examples[name] = {"summary": refusal.message, "value": msgspec.to_builtins(body)}
    described = _json_response(" / ".join(each.message for each in refusals), _ref(schema))
    described["content"] = {"application/json": {"schema": _ref(schema), "examples": examples}}
    if any(isinstance(refusal, errors.TooManyRequests) for refusal in refusals):
        described["headers"] = {
            "Retry-After": {
                "description": "Seconds until it is worth trying again.",
                "schema": {"type": "integer"},
            }
        }
    return described


def _page_response(status: int, meaning: str) -> Json:
    if status == 303:
        location: Json = {"required": True, "schema": {"type": "string", "format": "uri"}}
        return {"description": meaning, "headers": {"Location": location}}
    if status == 200:
        return _json_response(meaning, {"type": "object"})
    return {"description": meaning, "content": {"text/html": {"schema": {"type": "string"}}}}


def _json_response(meaning: str, schema: Json) -> Json:
    return {"description": meaning, "content": {"application/json": {"schema": schema}}}


def _ref(struct: type[Struct]) -> Json:
    return {"$ref": f"#/components/schemas/{struct.__name__}"}


def _described(schema: Json, required: Sequence[str] | None) -> Json:
    """Say which fields there must be: in an answer all, but for those that some do not get."""
    fields = cast(dict[str, Json], schema["properties"])  # a schema of a Struct has them
    properties = {name: _property(field, required is None) for name, field in fields.items()}
    if required is None:
        required = [name for name in properties if name != "payment_reference"]
    return {**schema, "properties": properties, "required": list(required)}


def _property(field: Json, is_of_answer: bool) -> Json:
    """Give a field's schema with the types that generators of clients need, and msgspec leaves out.

    Fixed values get their type, and a format stands beside the type that it belongs to.
    """
    field = dict(field)
    # A default of null stands for "not given" in the code, and is no value a client could send.
    if is_of_answer or field.get("default", ...) is None:
        field.pop("default", None)
    if "enum" in field and "type" not in field:
        (kind,) = {type(value) for value in cast(list[object], field["enum"])}
        field["type"] = _JSON_TYPES[kind]
    if "anyOf" in field and "format" in field:
        kinds = cast(list[Json], field["anyOf"])  # a type, or null
        added = {"format": field.pop("format")}
        field["anyOf"] = [each if each == {"type": "null"} else {**each, **added} for each in kinds]
    return field
