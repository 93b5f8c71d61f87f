"""JSON responses: the types of bodies and of their parts that several resources share.

The schemas in the OpenAPI document are generated from these types.
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
    """Respond with `body` as JSON."""
    resp.content_type = "application/json"
    resp.data = msgspec.json.encode(body)


def example(value: object, description: str = "", **schema: object) -> Meta:
    """Return an example, the description and the schema of a field for the OpenAPI document."""
    return Meta(description=description or None, extra_json_schema={**schema, "examples": [value]})


def uuid_example(description: str) -> Meta:
    """Return an example, the description and the schema of a field that is a UUID."""
    return example("8c2f3f1a-6b0e-4c57-9a51-0d8f4c3f7b21", description)


def time_example(description: str) -> Meta:
    """Return an example, the description and the schema of a field that is a time."""
    return example("2026-11-20T12:00:00Z", description, format="date-time")


def nullable_time(description: str) -> Meta:
    """Return an example and the description of a field that is a time or null.

    The schema does not have a format, unlike the schema of `time_example`.
    """
    return example("2026-11-20T12:00:00Z", description)


# Client generators need the type of a fixed value, which msgspec leaves out.
TrueValue = Annotated[Literal[True], Meta(extra_json_schema={"type": "boolean"})]
FalseValue = Annotated[Literal[False], Meta(extra_json_schema={"type": "boolean"})]
Uuid = Annotated[str, Meta(extra_json_schema={"format": "uuid"})]


Uri = Annotated[str, Meta(extra_json_schema={"format": "uri"})]


class LimitedAmount(Struct, frozen=True):
    """The maximum amount that may be charged."""

    amount: Annotated[str, example("40.00", "A decimal number with the currency's decimals.")]
    currency: Annotated[str, example("EUR", "The currency (ISO 4217).")]

    @classmethod
    def of(cls, money: Money | None) -> LimitedAmount | None:
        """Return the amount for a response. Return None if `money` is None."""
        return None if money is None else cls(f"{money.amount}", money.currency)


class ErrorObject(Struct, frozen=True, forbid_unknown_fields=True):
    """The reason for a refusal. There are no other fields: strict clients would refuse them."""

    code: Annotated[int, example(400, "The HTTP status.")]
    message: Annotated[str, example("Invalid center id")]


class Refused(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of an error response under `/api/v1`."""

    success: FalseValue = False
    error: ErrorObject


class Done(Struct, frozen=True):
    """The fields that every successful response under `/api/v1` has, unless it is a list."""

    success: TrueValue = True
    error: None = None


class PageInfo(Struct, frozen=True):
    """The number and the size of a page, and the number of items in the whole list."""

    total: Annotated[int, example(1, "The number of records on all pages.")]
    page: Annotated[int, example(1, "The current page.")]
    size: Annotated[int, example(10, "The number of records per page.")]

    @classmethod
    def of(cls, page: Page[Any]) -> PageInfo:  # Any, because only the page itself is described
        """Return the page info of `page`."""
        return cls(total=page.total, page=page.request.page, size=page.request.size)

    def links(self, asked: Mapping[str, Sequence[str]]) -> str:
        """Return the header `Link` (RFC 8288) to the neighboring, first and last pages.

        `asked` contains the parameters of the request's query. The links are relative, and contain
        these parameters unchanged, except `page` and `size`.
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
"""The header `Link` of every page of a list, for the OpenAPI document."""


class Health(Struct, frozen=True):
    """The state of the service itself."""

    status: Annotated[str, example("ok")]
