"""JSON responses: the parts of a body, and the bodies that several resources share.

The schemas of the OpenAPI document are generated from the types of the bodies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlencode

import falcon
import msgspec
from msgspec import Meta, Struct

from domain.agreements.terms import Money
from domain.pagination import Page


def json_body(resp: falcon.Response, body: Struct) -> None:
    """Set the body of the response to `body`, as JSON."""
    resp.content_type = "application/json"
    resp.data = msgspec.json.encode(body)


def example(value: object, description: str = "", **schema: object) -> Meta:
    """Return a field's example, meaning and further schema for the document."""
    return Meta(description=description or None, extra_json_schema={**schema, "examples": [value]})


def uuid_example(description: str) -> Meta:
    """Return what `example` returns, for an identifier."""
    return example("8c2f3f1a-6b0e-4c57-9a51-0d8f4c3f7b21", description)


def time_example(description: str) -> Meta:
    """Return what `example` returns, for a time."""
    return example("2026-11-20T12:00:00Z", description, format="date-time")


def nullable_time(description: str) -> Meta:
    """Return what `example` returns, for a time that may be null, without a format."""
    return example("2026-11-20T12:00:00Z", description)


# Generators of clients need the type of fixed values, which msgspec leaves out.
TrueValue = Annotated[Literal[True], Meta(extra_json_schema={"type": "boolean"})]
FalseValue = Annotated[Literal[False], Meta(extra_json_schema={"type": "boolean"})]
Uuid = Annotated[str, Meta(extra_json_schema={"format": "uuid"})]


Uri = Annotated[str, Meta(extra_json_schema={"format": "uri"})]


class LimitedAmount(Struct, frozen=True):
    """The most that may be charged."""

    amount: Annotated[str, example("40.00", "A decimal number with the currency's decimals.")]
    currency: Annotated[str, example("EUR", "The currency (ISO 4217).")]

    @classmethod
    def of(cls, money: Money | None) -> LimitedAmount | None:
        """Return the amount as a decimal number; None stays None."""
        return None if money is None else cls(f"{money.amount}", money.currency)


class ErrorObject(Struct, frozen=True, forbid_unknown_fields=True):
    """Why a request was refused. Strict clients refuse any other field."""

    code: Annotated[int, example(400, "The HTTP status.")]
    message: Annotated[str, example("Invalid center id")]


class Refused(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of an error response under `/api/v1`."""

    success: FalseValue = False
    error: ErrorObject


class Done(Struct, frozen=True):
    """What every successful response under `/api/v1` contains, except for lists."""

    success: TrueValue = True
    error: None = None


class PageInfo(Struct, frozen=True):
    """Which page of a list this is."""

    total: Annotated[int, example(1, "The number of records on all pages.")]
    page: Annotated[int, example(1, "The current page.")]
    size: Annotated[int, example(10, "The number of records per page.")]

    @classmethod
    def of(cls, page: Page[Any]) -> PageInfo:  # Any, because only the page itself is described
        """Return the page info of `page`."""
        return cls(total=page.total, page=page.request.page, size=page.request.size)

    def links(self, asked: Mapping[str, Sequence[str]]) -> str:
        """Return the header `Link` (RFC 8288) with the neighbors of this page in the list.

        The links are relative, and keep the other parameters of the query that was `asked`.
        """
        last = max(1, -(-self.total // self.size))
        pages = {"first": 1, "prev": min(self.page - 1, last), "next": self.page + 1, "last": last}
        return ", ".join(
            f'<?{urlencode({**asked, "page": page, "size": self.size}, doseq=True)}>; rel="{name}"'
            for name, page in pages.items()
            if 1 <= page <= last
        )


LINK: Final = {
    "Link": {
        "description": (
            "The addresses of the `first`, `prev`, `next` and `last` page (RFC 8288), relative to "
            "the address of the request. There is no `prev` on the first page, and no `next` on "
            "the last page."
        ),
        "required": True,
        "schema": {"type": "string", "examples": ['<?page=2&size=10>; rel="next"']},
    }
}
"""The header of every page of a list, for the document."""


class Health(Struct, frozen=True):
    """The state of the service itself."""

    status: Annotated[str, example("ok")]
