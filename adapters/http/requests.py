"""Reading requests: JSON bodies, query parameters and path segments, as they came.

What a value must look like is the domain's to judge, each at its turn; here only what is no proper
JSON or no proper query is refused. The schemas are those of the OpenAPI document.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import isfinite
from typing import Annotated, ClassVar, Final, NoReturn
from urllib.parse import parse_qs

import falcon
import msgspec
from msgspec import Meta, Struct

from adapters.http.errors import InvalidRequestBody, RequestBodyTooLarge, UnsupportedMediaType
from domain.add_card import AddCardRequest
from domain.billing import MAX_LENGTHS
from domain.redirects import MAX_REDIRECT_URI_LENGTH
from domain.sources import DEFAULT_SOURCE, Source

MAX_BODY_BYTES: Final = 16 * 1024
MAX_QUERY_PARAMETERS: Final = 100


def _field(description: str, **schema: object) -> Meta:
    return Meta(description=description, extra_json_schema=schema)


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


def read_add_card(req: falcon.Request, guest_id: str) -> AddCardRequest:
    """Read a request to add a card.

    Raises UnsupportedMediaType, RequestBodyTooLarge or InvalidRequestBody, in this order.
    """
    try:
        body = msgspec.convert(read_json_object(req), AddCardBody)
    except UnicodeEncodeError as error:
        # The name of a field, escaped as half a character: no text has it.
        raise InvalidRequestBody from error
    return AddCardRequest(
        guest_id=guest_id,
        center_id=body.center_id,
        redirect_uri=body.redirect_uri,
        source=body.source,
        billing_info=body.billing_info,
        idempotency_key=req.get_header("Idempotency-Key"),
    )


def read_json_object(req: falcon.Request) -> dict[str, object]:
    """Read a JSON object of at most 16 KiB (RFC 8259, and no key twice)."""
    _require_json(req)
    raw = read_bytes(req, MAX_BODY_BYTES)
    try:
        body = _JSON.decode(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidRequestBody from error
    if not isinstance(body, dict):
        raise InvalidRequestBody
    return body


def read_bytes(req: falcon.Request, at_most: int) -> bytes:
    """Read a body of at most so many bytes, and no more. Raises RequestBodyTooLarge."""
    if (req.content_length or 0) > at_most:
        raise RequestBodyTooLarge
    # A chunked body has no length. A server that ends the stream with the body says so.
    is_ended_by_server = req.env.get("wsgi.input_terminated", False)
    stream = req.stream if is_ended_by_server else req.bounded_stream
    raw = b""
    while len(raw) <= at_most and (part := stream.read(at_most + 1 - len(raw))):
        raw += part
    if len(raw) > at_most:
        raise RequestBodyTooLarge
    return raw


def _require_json(req: falcon.Request) -> None:
    media_type, parameters = falcon.parse_header(req.content_type or "")
    if (
        media_type.strip().lower() != "application/json"
        or parameters.get("charset", "utf-8").lower() not in ("utf-8", "utf8")
        or req.get_header("Content-Encoding", default="identity").lower() != "identity"
    ):
        raise UnsupportedMediaType


def _without_repeated_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is given twice")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _finite(number: str) -> float:
    value = float(number)
    if not isfinite(value):
        raise ValueError("a number is too large")
    return value


_JSON = json.JSONDecoder(
    parse_float=_finite, object_pairs_hook=_without_repeated_keys, parse_constant=_refuse_constant
)


class Query:
    """The parameters of a query, each with every value that it was given."""

    def __init__(self, req: falcon.Request) -> None:
        try:
            self._values = parse_qs(
                req.query_string, keep_blank_values=True, max_num_fields=MAX_QUERY_PARAMETERS
            )
        except ValueError as error:
            raise falcon.HTTPBadRequest from error

    def all(self, name: str) -> Sequence[str]:
        """Give every value of a parameter, in order."""
        return self._values.get(name, ())

    def only(self, name: str) -> str:
        """Give the value of a parameter that is given once, and empty text otherwise."""
        values = self.all(name)
        return values[0] if len(values) == 1 else ""

    def except_for(self, name: str) -> dict[str, str]:
        """Give the first value of every other parameter."""
        return {key: values[0] for key, values in self._values.items() if key != name}


# msgspec learns a type when it first reads one, and crashes when several threads do so at once
# (0.22). Making a decoder teaches it the type here, where there is one thread.
for _type in (AddCardBody,):
    msgspec.json.Decoder(_type)
