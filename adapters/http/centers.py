"""The caller's centers: `/v1/centers` and `/v1/centers/{center_id}`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from msgspec import Struct

from adapters.http.examples import CENTER_IDS
from adapters.http.operations import Operation, Tag, parameter
from adapters.http.responses import PageInfo, Uuid, example, uuid_example
from domain import errors
from domain.centers.queries import ConfiguredCenter, ListCenters, ReadCenter
from domain.pagination import Page, PageRequest
from domain.permissions import Caller

CENTERS: Final = "/v1/centers"

CENTER_ID: Final = parameter("center_id", "path", "The center.", known=CENTER_IDS)


class CenterInfo(Struct, frozen=True, kw_only=True):
    """A center, and what a client must know before it adds a card there."""

    id: Annotated[Uuid, uuid_example("The center.")]
    name: Annotated[str, example("Harbor Spa")]
    takes_cards: Annotated[bool, example(True, "Whether the center is set up to take cards.")]
    live: Annotated[
        bool | None,
        example(
            True,
            "Whether the center takes real cards. Null if the center does not take "
            "cards, or if this is unknown.",
        ),
    ]
    avs: Annotated[
        bool,
        example(
            False, "Whether address verification is on. If it is, add-card needs billing_info."
        ),
    ]
    cards_per_guest: Annotated[
        Literal["one", "many"] | None,
        example(
            "many",
            "How many cards a guest may have at the center. Null if the center takes no cards.",
        ),
    ]
    redirect_origins: Annotated[
        list[str],
        example(
            ["https://shop.example"],
            "The origins that redirect_uri may have. An empty list allows any origin.",
        ),
    ]
    link_minutes: Annotated[
        int | None,
        example(
            43_200,
            "The maximum link_minutes of add-card. Null if the center takes no cards.",
        ),
    ]
    refuse_funding: Annotated[
        list[str],
        example(
            ["prepaid"],
            "The kinds of cards that the center does not accept: credit, debit or prepaid.",
        ),
    ]
    authentication: Annotated[
        Literal["automatic", "required"] | None,
        example(
            "automatic",
            "Whether the bank must authenticate guests. Null if the center does not take cards.",
        ),
    ]

    takes_agreements: Annotated[
        bool,
        example(
            False,
            "Whether add-card may contain an agreement, with which a card guarantees a booking.",
        ),
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
            refuse_funding=sorted(configuration.refuse_funding) if configuration else [],
            authentication=configuration.authentication.value if configuration else None,
            takes_agreements=found.takes_agreements,
        )


class ListedCenters(Struct, frozen=True, kw_only=True):
    """A page of the caller's centers."""

    centers: list[CenterInfo]
    page_info: PageInfo

    @classmethod
    def of(cls, page: Page[ConfiguredCenter]) -> ListedCenters:
        """Return the response for a page of centers."""
        centers = [CenterInfo.of(center) for center in page.items]
        return cls(centers=centers, page_info=PageInfo.of(page))


@dataclass(frozen=True, kw_only=True)
class CenterResource:
    """List and read the caller's centers."""

    list_centers: ListCenters
    read_center: ReadCenter

    @Operation(
        method="get",
        path=CENTERS,
        name="listCenters",
        tag=Tag.CENTERS,
        summary="List the centers that the token may use",
        description="Sorted by name.",
        calls=ListCenters,
    )
    def list(self, caller: Caller, page: PageRequest) -> ListedCenters:
        """List the caller's centers, sorted by name."""
        return ListedCenters.of(self.list_centers(caller, page=page))

    @Operation(
        method="get",
        path=CENTERS + "/{center_id}",
        name="readCenter",
        tag=Tag.CENTERS,
        summary="Read how a center takes cards",
        parameters=(CENTER_ID,),
        calls=ReadCenter,
        refusals=(errors.UserNotAuthorized(), errors.InvalidCenterId()),
    )
    def read(self, caller: Caller, center_id: str) -> CenterInfo:
        """Read one of the caller's centers."""
        return CenterInfo.of(self.read_center(caller, center_id=center_id))
