"""Reading JSON bodies and query parameters.

Only malformed JSON and malformed queries are refused here. Values are passed on unchanged: the
domain checks each of them, in the order of the interface.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import isfinite
from typing import Annotated, ClassVar, Final, NoReturn, TypeVar
from urllib.parse import parse_qs

import falcon
import msgspec
from msgspec import Meta, Struct

from adapters.first_reads import prepare
from adapters.http.errors import InvalidRequestBody, RequestBodyTooLarge, UnsupportedMediaType
from domain.billing import MAX_LENGTHS
from domain.cards.source import DEFAULT_SOURCE, Source
from domain.centers.payment_configuration import MAX_LINK_MINUTES, MIN_LINK_MINUTES
from domain.guests.guest import MAX_NAME_LENGTH as MAX_GUEST_NAME_LENGTH
from domain.products.product import MAX_CODE_LENGTH, MAX_DESCRIPTION_LENGTH
from domain.products.product import MAX_NAME_LENGTH as MAX_PRODUCT_NAME_LENGTH
from domain.redirects import MAX_REDIRECT_URI_LENGTH
from domain.sessions.add_card import AddCardRequest

MAX_BODY_BYTES: Final = 16 * 1024
MAX_QUERY_PARAMETERS: Final = 100


Body = TypeVar("Body", bound=Struct)


def _field(description: str, **schema: object) -> Meta:
    return Meta(description=description, extra_json_schema=schema)


def _text(max_length: int, example: str) -> Meta:
    return _field(
        "Not blank, without control characters and line breaks.",
        type="string",
        minLength=1,
        maxLength=max_length,
        examples=[example],
    )


_BILLING_FIELDS: Final[dict[str, dict[str, object]]] = {
    name: {"type": ["string", "null"], "maxLength": length} for name, length in MAX_LENGTHS.items()
}


class AddCardBody(Struct, frozen=True, kw_only=True):
    """The body of add-card. Unknown fields are ignored and never stored."""

    required: ClassVar = ("center_id", "redirect_uri")

    center_id: Annotated[
        object,
        _field(
            "Identifies the center.",
            type="string",
            format="uuid",
            examples=["5d0c6e2e-7b1f-4a66-8a43-2f1b0c9d7e10"],
        ),
    ] = None
    redirect_uri: Annotated[
        object,
        _field(
            "Where the guest's browser is sent after the card is added.",
            type="string",
            format="uri",
            maxLength=MAX_REDIRECT_URI_LENGTH,
            examples=["https://shop.example/cards"],
        ),
    ] = None
    billing_info: Annotated[
        object,
        _field(
            "Required when address verification is on: address, country_code, and zipcode where "
            "the country has postal codes.",
            type=["object", "null"],
            properties=_BILLING_FIELDS,
            examples=[{"address": "1 Main St", "country_code": "US", "zipcode": "98101"}],
        ),
    ] = None
    source: Annotated[
        object,
        _field("1 = web store, 5 = mobile.", type="integer", enum=[each.value for each in Source]),
    ] = DEFAULT_SOURCE.value
    link_minutes: Annotated[
        object,
        _field(
            "How long the link may wait to be opened: up to the center's link_minutes.",
            type=["integer", "null"],
            minimum=MIN_LINK_MINUTES,
            maximum=MAX_LINK_MINUTES,
        ),
    ] = None


class GuestBody(Struct, frozen=True, kw_only=True):
    """The body that creates or updates a guest. Unknown fields are ignored and never stored."""

    required: ClassVar = ("first_name", "last_name")

    first_name: Annotated[object, _text(MAX_GUEST_NAME_LENGTH, "Ada")] = None
    last_name: Annotated[object, _text(MAX_GUEST_NAME_LENGTH, "Sample")] = None
    email: Annotated[
        object,
        _field(
            "Null if it is not known.",
            type=["string", "null"],
            maxLength=MAX_LENGTHS["email"],
            examples=["ada@example.com"],
        ),
    ] = None


class ProductBody(Struct, frozen=True, kw_only=True):
    """The body that creates or updates a product. Unknown fields are ignored and never stored."""

    required: ClassVar = ("code", "name", "price")

    code: Annotated[object, _text(MAX_CODE_LENGTH, "OIL-50")] = None
    name: Annotated[object, _text(MAX_PRODUCT_NAME_LENGTH, "Massage oil, 50 ml")] = None
    description: Annotated[
        object,
        _field(
            "May be empty, and have line breaks.",
            type="string",
            maxLength=MAX_DESCRIPTION_LENGTH,
            examples=["Almond and lavender"],
        ),
    ] = ""
    price: Annotated[
        object,
        _field(
            "A decimal number in major units, and a currency (ISO 4217).",
            type="object",
            properties={
                "amount": {"type": "string", "pattern": "^[0-9]+([.][0-9]{1,4})?$"},
                "currency": {"type": "string", "pattern": "^[A-Z]{3}$"},
            },
            required=["amount", "currency"],
            examples=[{"amount": "49.90", "currency": "EUR"}],
        ),
    ] = None


prepare(AddCardBody, GuestBody, ProductBody)


def read_add_card(req: falcon.Request, guest_id: str) -> AddCardRequest:
    """Read a request to add a card.

    Raises UnsupportedMediaType, RequestBodyTooLarge or InvalidRequestBody, in this order.
    """
    body = read_body(req, AddCardBody)
    return AddCardRequest(
        guest_id=guest_id,
        center_id=body.center_id,
        redirect_uri=body.redirect_uri,
        source=body.source,
        billing_info=body.billing_info,
        link_minutes=body.link_minutes,
        idempotency_key=req.get_header("Idempotency-Key"),
    )


def read_body(req: falcon.Request, body_type: type[Body]) -> Body:
    """Read a JSON body. Raises the same errors as `read_add_card`."""
    try:
        return msgspec.convert(read_json_object(req), body_type)
    except UnicodeEncodeError as error:
        # The name of a field is an escaped lone surrogate.
        raise InvalidRequestBody from error


def read_json_object(req: falcon.Request) -> dict[str, object]:
    """Read a JSON object of at most 16 KiB (RFC 8259), without repeated keys.

    Raises the same errors as `read_add_card`.
    """
    media_type, parameters = falcon.parse_header(req.content_type or "")
    if (
        media_type.strip().lower() != "application/json"
        or parameters.get("charset", "utf-8").lower() not in ("utf-8", "utf8")
        or req.get_header("Content-Encoding", default="identity").lower() != "identity"
    ):
        raise UnsupportedMediaType
    raw = read_bytes(req, MAX_BODY_BYTES)
    try:
        body = _JSON.decode(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidRequestBody from error
    if not isinstance(body, dict):
        raise InvalidRequestBody
    return body


def read_bytes(req: falcon.Request, at_most: int) -> bytes:
    """Read the whole body, reading no more than `at_most` + 1 bytes.

    Raises RequestBodyTooLarge if it has more than `at_most` bytes.
    """
    if (req.content_length or 0) > at_most:
        raise RequestBodyTooLarge
    # A chunked body has no Content-Length. A server that ends the stream itself sets this flag.
    is_ended_by_server = req.env.get("wsgi.input_terminated", False)
    stream = req.stream if is_ended_by_server else req.bounded_stream
    raw = b""
    while len(raw) <= at_most and (part := stream.read(at_most + 1 - len(raw))):
        raw += part
    if len(raw) > at_most:
        raise RequestBodyTooLarge
    return raw


def _without_repeated_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("repeated key")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(number: str) -> float:
    value = float(number)
    if not isfinite(value):
        raise ValueError("number too large")
    return value


_JSON = json.JSONDecoder(
    parse_float=_finite, object_pairs_hook=_without_repeated_keys, parse_constant=_refuse_constant
)


class Query:
    """The query parameters of a request, with every value of each. Raises HTTPBadRequest."""

    def __init__(self, req: falcon.Request) -> None:
        try:
            self._values = parse_qs(
                req.query_string, keep_blank_values=True, max_num_fields=MAX_QUERY_PARAMETERS
            )
        except ValueError as error:
            raise falcon.HTTPBadRequest from error

    def all(self, name: str) -> Sequence[str]:
        """Return every value of a parameter, in order."""
        return self._values.get(name, ())

    def only(self, name: str) -> str:
        """Return the value of a parameter, or "" if it is missing or repeated."""
        values = self.all(name)
        return values[0] if len(values) == 1 else ""

    def except_for(self, name: str) -> dict[str, str]:
        """Return the first value of every other parameter."""
        return {key: values[0] for key, values in self._values.items() if key != name}
