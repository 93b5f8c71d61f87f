"""Read JSON bodies and query parameters.

Only malformed JSON and malformed queries are refused here. The values are passed on unchanged, and
the domain then checks them in the order that the interface defines.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from math import isfinite
from typing import ClassVar, Final, NoReturn, TypeVar
from urllib.parse import parse_qs

import falcon
import msgspec
from msgspec import Meta, Struct

from adapters.http.errors import (
    InvalidRequestBody,
    RequestBodyTooLarge,
    UnknownQueryParameter,
    UnsupportedMediaType,
)

MAX_BODY_BYTES: Final = 16 * 1024
MAX_QUERY_PARAMETERS: Final = 100

BODY_REFUSALS: Final = (UnsupportedMediaType(), RequestBodyTooLarge(), InvalidRequestBody())
"""The refusals of `read_body`, in the order in which it checks for them."""

Body = TypeVar("Body", bound="RequestBody")


def field(description: str, **schema: object) -> Meta:
    """Return the description and the schema of a field for the OpenAPI document."""
    return Meta(description=description, extra_json_schema=schema)


def text(max_length: int, example: str) -> Meta:
    """Return the description and the schema of a field that is one line of text."""
    return field(
        "One line of text that is not blank, without control characters.",
        type="string",
        minLength=1,
        maxLength=max_length,
        examples=[example],
    )


class RequestBody(Struct, frozen=True, kw_only=True):
    """The body of a request. Unknown fields are ignored and never stored."""

    required: ClassVar[tuple[str, ...]]
    """The fields that clients must send, for the OpenAPI document. The domain refuses a body that
    lacks any of them.
    """


def read_body(req: falcon.Request, body_type: type[Body]) -> Body:
    """Read a JSON body of the type `body_type`.

    Checks, in this order, whether to raise UnsupportedMediaType, RequestBodyTooLarge or
    InvalidRequestBody.
    """
    try:
        return msgspec.convert(read_json_object(req), body_type)
    except UnicodeEncodeError as error:
        # The name of a field is an escaped lone surrogate.
        raise InvalidRequestBody from error


def read_json_object(req: falcon.Request) -> dict[str, object]:
    """Read a JSON object of at most 16 KiB, without repeated keys.

    A byte order mark before the object is ignored (RFC 8259, section 8.1). Raises the same errors
    as `read_body`.
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
        body = _JSON.decode(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InvalidRequestBody from error
    if not isinstance(body, dict):
        raise InvalidRequestBody
    return body


def read_bytes(req: falcon.Request, at_most: int) -> bytes:
    """Return the whole body. Raises RequestBodyTooLarge if it has more than `at_most` bytes.

    At most `at_most` + 1 bytes are read.
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
    """The query parameters of a request, each with all its values.

    `known` contains the names of the allowed parameters. If it is None, all names are allowed. The
    constructor raises HTTPBadRequest if the query is malformed, and UnknownQueryParameter if it
    contains another name.
    """

    def __init__(self, req: falcon.Request, known: Collection[str] | None = None) -> None:
        try:
            self._values = parse_qs(
                req.query_string, keep_blank_values=True, max_num_fields=MAX_QUERY_PARAMETERS
            )
        except ValueError as error:
            raise falcon.HTTPBadRequest from error
        for name in self._values:
            if known is not None and name not in known:
                raise UnknownQueryParameter(name)

    def all(self, name: str) -> Sequence[str]:
        """Return every value of a parameter, in order."""
        return self._values.get(name, ())

    def only(self, name: str) -> str:
        """Return the value of a parameter, or "" if the parameter is missing or repeated."""
        values = self.all(name)
        return values[0] if len(values) == 1 else ""

    def except_for(self, name: str) -> dict[str, str]:
        """Return the first value of each parameter except `name`."""
        return {key: values[0] for key, values in self._values.items() if key != name}
