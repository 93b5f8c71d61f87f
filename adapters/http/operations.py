"""Operations of the interface: their description for the OpenAPI document, and their method."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import NoneType
from typing import Final, Protocol, TypeAlias, get_type_hints

from msgspec import Struct

from adapters.http.errors import UnknownQueryParameter
from adapters.http.examples import Example
from adapters.http.requests import BODY_REFUSALS, RequestBody
from adapters.http.responses import LINK
from domain import errors
from domain.errors import Refusal
from domain.pagination import DEFAULT_PAGE, DEFAULT_SIZE, MAX_SIZE
from domain.permissions import Needs

Json: TypeAlias = dict[str, object]

Handler: TypeAlias = Callable[..., Struct | None]
"""A method that responds to a request.

It returns the body of a response with status 200, or None if it has written the response itself.
"""


class Tag(StrEnum):
    """The groups of operations. The last group is not for clients."""

    CARDS = "Cards"
    SESSIONS = "Sessions"
    GUESTS = "Guests"
    CENTERS = "Centers"
    PRODUCTS = "Products"
    EVENTS = "Events"
    SERVICE = "Service"


TAGS: Final[Mapping[Tag, str]] = {
    Tag.CARDS: "Adding, listing and removing payment cards.",
    Tag.SESSIONS: "The progress of each addition of a card.",
    Tag.GUESTS: "The guests whose cards are on file.",
    Tag.CENTERS: "The centers at which cards are added and charged.",
    Tag.PRODUCTS: "The products that a center sells.",
    Tag.EVENTS: "What happened to cards and sessions.",
    Tag.SERVICE: "For guests' browsers, payment service providers and operators.",
}
"""The description of each group."""


def parameter(
    name: str,
    place: str,
    description: str,
    *,
    required: bool = False,
    known: Mapping[str, Example] | None = None,
    **schema: object,
) -> Json:
    """Return the OpenAPI description of a parameter. Without `schema`, its type is a UUID.

    `place` is `path`, `query`, `header` or `cookie`. `known` contains example values.
    """
    described: Json = {
        "name": name,
        "in": place,
        "required": required or place == "path",
        "description": description,
        "schema": schema or {"type": "string", "format": "uuid"},
    }
    return {**described, "examples": known} if known else described


SIZE: Final = parameter(
    "size",
    "query",
    "The number of records per page.",
    type="integer",
    minimum=1,
    maximum=MAX_SIZE,
    default=DEFAULT_SIZE,
)
SIZE_REFUSALS: Final = (errors.TooManyItems(), errors.PageParameterInvalid("size"))

PAGING: Final = (
    parameter(
        "page",
        "query",
        "The number of the page.",
        type="integer",
        minimum=1,
        default=DEFAULT_PAGE,
    ),
    SIZE,
)
PAGING_REFUSALS: Final = (*SIZE_REFUSALS, errors.PageParameterInvalid("page"))


class UseCase(Protocol):
    """A use case that requires permissions (`needs`) of its caller."""

    needs: Needs


def _nothing_responds() -> None:
    raise NotImplementedError  # `Operation.__call__` sets the method that responds


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One HTTP method of one path, with its input, its response and its refusals.

    Use an operation as a decorator of the resource's method that responds. The signature of this
    method determines which arguments it receives (see `Dispatcher`). The annotation of the argument
    `body` is the type of the request's body. The annotation of the result is the type of the body
    of a response with status 200. A method with an argument `page` lists records.
    """

    method: str
    """The HTTP method in lower case."""
    path: str
    name: str
    tag: Tag
    summary: str
    description: str = ""
    parameters: Sequence[Json] = ()
    ignores_unknown: bool = False
    """Whether unknown query parameters are ignored. Clients expect this of some lists."""
    body: type[RequestBody] | None = None
    body_examples: Callable[[str], Mapping[str, Example]] = lambda _: {}
    """A function that returns examples of the body. Its argument is the service's base URL."""
    has_body_of_provider: bool = False
    """Whether the PSP chooses the format of the request's body."""
    response: type[Struct] | None = None
    """The type of the body of a response with status 200. None if there is no JSON body."""
    media_type: str | None = None
    """The media type of a response with status 200 whose body is not JSON."""
    headers: Mapping[str, Json] = field(default_factory=dict)
    """The headers that a response with status 200 may have."""
    also_head: bool = False
    """Whether HEAD works like `method`, but without a body. The document does not mention HEAD."""
    refusals: Sequence[Refusal] = ()
    """The refusals of the use case.

    When the operation decorates a method, the refusals of the body and of the query are added. The
    document also adds the refusals that every operation with `response` or `media_type` has.
    """
    calls: type[UseCase] | None = None
    """The use case, which states the required permission. None if no caller is authenticated."""
    logged: Collection[str] = ()
    """The ids in the path that the access log contains if a request is refused."""
    links: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Operations whose parameters can be taken from this response (OpenAPI Link Objects)."""
    pages: Mapping[int, str] = field(default_factory=dict)
    """The statuses of redirects and HTML pages for a guest's browser, each with its meaning."""
    handler: Handler = _nothing_responds
    takes: frozenset[str] = frozenset()
    """The names of the method's arguments."""

    def __call__(self, handler: Handler) -> Operation:
        """Return a copy of this operation with the method `handler`, which responds to requests.

        The copy also contains what the signature of `handler` states: the names of its arguments,
        the types of the bodies, and for a list, the parameters, header and refusals of paging.
        """
        takes = get_type_hints(handler)
        returned, body, is_list = takes.pop("return"), takes.get("body"), "page" in takes
        operation = replace(
            self,
            handler=handler,
            takes=frozenset(takes),
            parameters=(*self.parameters, *(PAGING if is_list else ())),
            headers={**self.headers, **(LINK if is_list else {})},
            body=body,
            response=self.response if returned is NoneType else returned,
        )
        is_strict = operation.query and not self.ignores_unknown
        refusals = (
            *(BODY_REFUSALS if body else ()),
            *(PAGING_REFUSALS if is_list else ()),
            *((UnknownQueryParameter("name"),) if is_strict else ()),
            *self.refusals,
        )
        return replace(operation, refusals=refusals)

    @property
    def query(self) -> Sequence[str]:
        """The names of the query parameters, or () if the method takes no query parameter."""
        names = [str(each["name"]) for each in self.parameters if each["in"] == "query"]
        return () if self.takes.isdisjoint(names) else names


def operations_of(resource: type) -> Sequence[Operation]:
    """Return the operations of a resource, in the order of its methods."""
    return [each for each in vars(resource).values() if isinstance(each, Operation)]
