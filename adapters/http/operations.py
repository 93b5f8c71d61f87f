"""What an operation of the interface is, as the OpenAPI document describes it, and what responds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol, TypeAlias

from msgspec import Struct

from adapters.http.errors import UnknownQueryParameter
from adapters.http.examples import Example
from adapters.http.requests import RequestBody
from domain import errors
from domain.errors import Refusal
from domain.pagination import DEFAULT_PAGE, DEFAULT_SIZE, MAX_SIZE
from domain.permissions import Needs

Json: TypeAlias = dict[str, object]

Responder: TypeAlias = Callable[..., None]
"""Takes a request, its response, and the parameters of the path by name."""


class Tag(StrEnum):
    """The groups of operations, the last for others than clients."""

    CARDS = "Cards"
    SESSIONS = "Sessions"
    GUESTS = "Guests"
    CENTERS = "Centers"
    PRODUCTS = "Products"
    SERVICE = "Service"


TAGS: Final[Mapping[Tag, str]] = {
    Tag.CARDS: "Adding, listing and removing payment cards.",
    Tag.SESSIONS: "How the addition of a card goes on.",
    Tag.GUESTS: "The guests whose cards are on file.",
    Tag.CENTERS: "Where cards are added and charged.",
    Tag.PRODUCTS: "What a center sells.",
    Tag.SERVICE: "For guests' browsers, payment service providers and operators.",
}
"""What each group is about."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One method of one path: its parameters, its responses, and how it refuses."""

    method: str
    """In lower case."""
    path: str
    name: str
    tag: Tag
    summary: str
    description: str = ""
    parameters: Sequence[Json] = ()
    body: type[RequestBody] | None = None
    body_examples: Callable[[str], Mapping[str, Example]] = lambda _: {}
    """Returns examples of the body, for a service at this base URL."""
    has_signed_body: bool = False
    """Whether it takes a body in the provider's own format."""
    response: type[Struct] | None = None
    """The body of status 200."""
    headers: Mapping[str, Json] = field(default_factory=dict)
    """The headers of status 200 that it may have."""
    also_head: bool = False
    """Whether HEAD has the same responses, without a body. The document does not say so."""
    refusals: Sequence[Refusal] = ()
    """Its own refusals, besides those of every operation with a `response`."""
    calls: type[UseCase] | None = None
    """The use case, which says what a caller needs; None if there is no caller."""
    links: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Operations that take parameters from the response, and which (OpenAPI Link Objects)."""
    pages: Mapping[int, str] = field(default_factory=dict)
    """Statuses that are a redirect or an HTML page, for a guest's browser, and their meaning."""


class UseCase(Protocol):
    """A use case of which each caller needs something, which it checks before all else."""

    needs: Needs


class Resource(Protocol):
    """Responds to operations."""

    def responders(self) -> Mapping[str, Responder]:
        """Return what responds to each operation, by its name."""


def parameter(
    name: str,
    place: str,
    description: str,
    *,
    required: bool = False,
    known: Mapping[str, Example] | None = None,
    **schema: object,
) -> Json:
    """Return the description of a parameter, by default a UUID, with `known` values as examples."""
    described: Json = {
        "name": name,
        "in": place,
        "required": required or place == "path",
        "description": description,
        "schema": schema or {"type": "string", "format": "uuid"},
    }
    return {**described, "examples": known} if known else described


PAGING: Final = (
    parameter("page", "query", "Which page.", type="integer", minimum=1, default=DEFAULT_PAGE),
    parameter(
        "size",
        "query",
        "Records per page.",
        type="integer",
        minimum=1,
        maximum=MAX_SIZE,
        default=DEFAULT_SIZE,
    ),
)

PAGING_PARAMETERS: Final = ("page", "size")

PAGING_REFUSALS: Final = (
    errors.TooManyItems(),
    errors.PageParameterInvalid("page"),
    errors.PageParameterInvalid("size"),
)

STRICT_PAGING_REFUSALS: Final = (*PAGING_REFUSALS, UnknownQueryParameter("name"))
"""Of lists that refuse other parameters than theirs."""
