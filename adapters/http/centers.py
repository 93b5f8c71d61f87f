"""The caller's centers: `/v1/centers` and `/v1/centers/{center_id}`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

import falcon
from msgspec import Struct

from adapters.http.authentication import Authentication
from adapters.http.examples import CENTER_IDS
from adapters.http.operations import (
    PAGING,
    PAGING_PARAMETERS,
    STRICT_PAGING_REFUSALS,
    Operation,
    Responder,
    Tag,
    parameter,
)
from adapters.http.requests import Query
from adapters.http.responses import PageInfo, Uuid, example, json_body, uuid_example
from domain import errors
from domain.centers.list_centers import ConfiguredCenter, ListCenters, ReadCenter
from domain.pagination import Page

CENTERS: Final = "/v1/centers"

CENTER_ID: Final = parameter("center_id", "path", "The center.", known=CENTER_IDS)


class CenterInfo(Struct, frozen=True, kw_only=True):
    """A center, and what a client must know before it adds a card there."""

    id: Annotated[Uuid, uuid_example("The center.")]
    name: Annotated[str, example("Harbor Spa")]
    takes_cards: Annotated[bool, example(True, "Whether payments are configured.")]
    live: Annotated[
        bool | None,
        example(
            True, "Whether it takes real cards; null if it takes none, or if that is not known."
        ),
    ]
    avs: Annotated[
        bool, example(False, "Whether add-card needs billing_info: address verification is on.")
    ]
    cards_per_guest: Annotated[
        Literal["one", "many"] | None,
        example("many", "How many cards a guest may have here; null if it takes none."),
    ]
    redirect_origins: Annotated[
        list[str],
        example(["https://shop.example"], "The origins that redirect_uri may have; if empty, any."),
    ]
    link_minutes: Annotated[
        int | None,
        example(43_200, "The longest link_minutes of add-card; null if it takes no cards."),
    ]

    @classmethod
    def of(cls, found: ConfiguredCenter) -> CenterInfo:
        """Return the response for a center."""
        configuration = found.configuration
        return cls(
            id=found.center.id,
            name=found.center.name,
            takes_cards=configuration is not None,
            live=found.live,
            avs=configuration is not None and configuration.avs,
            cards_per_guest=configuration.cards_per_guest.value if configuration else None,
            redirect_origins=list(configuration.redirect_origins) if configuration else [],
            link_minutes=configuration.max_link_minutes if configuration else None,
        )


class ListedCenters(Struct, frozen=True, kw_only=True):
    """A page of the caller's centers."""

    centers: list[CenterInfo]
    page_info: PageInfo

    @classmethod
    def of(cls, page: Page[ConfiguredCenter]) -> ListedCenters:
        """Return a page of centers."""
        centers = [CenterInfo.of(center) for center in page.items]
        return cls(centers=centers, page_info=PageInfo.of(page))


OPERATIONS: Final[Sequence[Operation]] = (
    Operation(
        method="get",
        path=CENTERS,
        name="listCenters",
        tag=Tag.CENTERS,
        summary="List the centers that the token is for",
        description="By name.",
        parameters=PAGING,
        response=ListedCenters,
        calls=ListCenters,
        refusals=STRICT_PAGING_REFUSALS,
    ),
    Operation(
        method="get",
        path=CENTERS + "/{center_id}",
        name="readCenter",
        tag=Tag.CENTERS,
        summary="Read how a center takes cards",
        parameters=(CENTER_ID,),
        response=CenterInfo,
        calls=ReadCenter,
        refusals=(errors.UserNotAuthorized(), errors.InvalidCenterId()),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Centers:
    """List and read the caller's centers."""

    list_centers: ListCenters
    read_center: ReadCenter
    authenticate: Authentication

    def responders(self) -> Mapping[str, Responder]:
        """Return what responds to each operation, by its name."""
        return {"listCenters": self.list, "readCenter": self.read}

    def list(self, req: falcon.Request, resp: falcon.Response) -> None:
        """List the caller's centers, by name."""
        caller = self.authenticate(req)
        query = Query(req, PAGING_PARAMETERS)
        page = self.list_centers(caller, pages=query.all("page"), sizes=query.all("size"))
        json_body(resp, ListedCenters.of(page))

    def read(self, req: falcon.Request, resp: falcon.Response, center_id: str) -> None:
        """Read one of the caller's centers."""
        caller = self.authenticate(req)
        json_body(resp, CenterInfo.of(self.read_center(caller, center_id=center_id)))
