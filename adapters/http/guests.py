"""Guests: `/api/v1/guests/{guest_id}`, and the search for guests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Literal, Self

import falcon
import msgspec
from msgspec import UNSET, Struct, UnsetType

from adapters.http.examples import GUEST_IDS, GUEST_WITH_CARD_IDS, sample
from adapters.http.middleware import GUEST_SEARCH
from adapters.http.operations import Operation, Tag, parameter
from adapters.http.requests import RequestBody, field, text
from adapters.http.responses import Done, PageInfo, TrueValue, Uuid, example, uuid_example
from adapters.thread_safe_types import prepare
from domain import errors
from domain.billing import MAX_LENGTHS
from domain.fields import invalid_line
from domain.guests.guest import ANY_VERSION, MAX_NAME_LENGTH, UNCHANGED, Guest, invalid_email
from domain.guests.put_guest import PutGuest
from domain.guests.queries import ReadGuest, SearchGuests
from domain.languages import MAX_TAG_LENGTH
from domain.pagination import Page, PageRequest
from domain.permissions import Caller
from domain.personal_data.erase_guest import EraseGuest
from domain.personal_data.merge_guests import MergeGuests

GUEST: Final = "/api/v1/guests/{guest_id}"

GUEST_ID: Final = parameter("guest_id", "path", "The guest.", known=GUEST_IDS)

GUEST_WITH_CARD: Final = parameter("guest_id", "path", "The guest.", known=GUEST_WITH_CARD_IDS)

GUEST_REFUSALS: Final = (errors.GuestNotFound(), errors.GuestIdNotUsable())

SAME_GUEST: Final = {"guest_id": "$request.path.guest_id"}


class GuestBody(RequestBody, frozen=True, kw_only=True):
    """The body that creates or updates a guest. Unknown fields are ignored and never stored."""

    required: ClassVar[tuple[str, ...]] = ("first_name", "last_name")

    first_name: Annotated[object, text(MAX_NAME_LENGTH, "Ada")] = None
    last_name: Annotated[object, text(MAX_NAME_LENGTH, "Sample")] = None
    email: Annotated[
        object,
        field(
            "The guest's e-mail address; null if unknown.",
            type=["string", "null"],
            maxLength=MAX_LENGTHS["email"],
            examples=["ada@example.com"],
        ),
    ] = None
    language: Annotated[
        object | UnsetType,
        field(
            "The guest's language (BCP 47); null if unknown. If the field is missing, the language "
            "does not change.",
            type=["string", "null"],
            maxLength=MAX_TAG_LENGTH,
            examples=["de"],
        ),
    ] = UNSET


class ListedGuest(Struct, frozen=True, kw_only=True):
    """A guest."""

    id: Annotated[Uuid, uuid_example("The guest.")]
    first_name: Annotated[str, example("Ada")]
    last_name: Annotated[str, example("Sample")]
    email: Annotated[
        str | None, example("ada@example.com", "The guest's e-mail address; null if unknown.")
    ]
    language: Annotated[
        str | None,
        example("de", "The guest's language for the hosted page (BCP 47); null if unknown."),
    ]

    @classmethod
    def of(cls, guest: Guest) -> Self:
        """Return the fields of a guest."""
        return msgspec.convert(guest, cls, from_attributes=True)


class GuestRecord(ListedGuest, frozen=True, kw_only=True):
    """One guest."""

    success: TrueValue = True
    error: None = None


class GuestSearch(RequestBody, frozen=True, kw_only=True):
    """The conditions of a search for guests."""

    required: ClassVar[tuple[str, ...]] = ("email",)

    email: Annotated[
        object,
        field(
            "The complete e-mail address. The case of A to Z is ignored.",
            type="string",
            maxLength=MAX_LENGTHS["email"],
            examples=["ada@example.com"],
        ),
    ] = None


class MergeBody(RequestBody, frozen=True, kw_only=True, rename={"merged_id": "from"}):
    """The guest to merge into the guest in the path.

    The body also contains the last four digits of the cards of both guests.
    """

    required: ClassVar[tuple[str, ...]] = ("from", "last_fours")

    merged_id: Annotated[
        object,
        field(
            "The guest to merge, whose id is not used afterwards.",
            type="string",
            format="uuid",
            examples=["6a1f1d4e-2f0b-4d7a-9a3e-5b8f5f0f7c11"],
        ),
    ] = None
    last_fours: Annotated[
        object,
        field(
            "The last four digits of every card on file of both guests, in any order.",
            type="array",
            items={"type": "string"},
            examples=[["4242", "4444"]],
        ),
    ] = None


class FoundGuests(Struct, frozen=True, kw_only=True):
    """A page of guests."""

    guests: list[ListedGuest]
    page_info: PageInfo

    @classmethod
    def of(cls, page: Page[Guest]) -> FoundGuests:
        """Return the response for a page of guests."""
        guests = [ListedGuest.of(guest) for guest in page.items]
        return cls(guests=guests, page_info=PageInfo.of(page))


prepare(GuestBody, GuestRecord, GuestSearch, MergeBody, FoundGuests)


@dataclass(frozen=True, kw_only=True)
class GuestResource:
    """Create, update, read, erase, merge and find guests."""

    put_guest: PutGuest
    read_guest: ReadGuest
    search_guests: SearchGuests
    erase_guest: EraseGuest
    merge_guests: MergeGuests
    wake_reconciler: Callable[[], None]

    @Operation(
        method="put",
        path=GUEST,
        name="putGuest",
        tag=Tag.GUESTS,
        summary="Create or update a guest under an id that you choose",
        description=(
            "To create a guest, the caller needs `guests:add`. To change a guest, it needs "
            "`guests:edit`. A repeated request changes nothing."
        ),
        parameters=(
            GUEST_ID,
            parameter(
                "If-Match",
                "header",
                "The `ETag` of the guest whom you want to change (RFC 9110). If the "
                "`ETag` has changed meanwhile, nothing is done. Needs `guests:view`.",
                type="string",
            ),
        ),
        body_examples=lambda _: {
            "ada": sample(
                "Ada Sample, without changes",
                {"first_name": "Ada", "last_name": "Sample", "email": "ada@example.com"},
            ),
        },
        calls=PutGuest,
        links={"readGuest": SAME_GUEST, "addCard": SAME_GUEST},
        refusals=(
            *GUEST_REFUSALS,
            invalid_line("first_name", max_length=MAX_NAME_LENGTH),
            errors.PreconditionFailed(),
        ),
    )
    def put(
        self, req: falcon.Request, caller: Caller, guest_id: str, body: GuestBody
    ) -> GuestRecord:
        """Create or update the guest."""
        guest = self.put_guest(
            caller,
            guest_id=guest_id,
            first_name=body.first_name,
            last_name=body.last_name,
            email=body.email,
            language=UNCHANGED if body.language is UNSET else body.language,
            versions=_strong_tags(req.if_match),
        )
        return GuestRecord.of(guest)

    @Operation(
        method="delete",
        path=GUEST,
        name="eraseGuest",
        tag=Tag.GUESTS,
        summary="Erase a guest permanently",
        description=(
            "Ends the guest's open sessions, removes the cards, and deletes names and addresses. "
            "Afterwards the payment service providers are asked to delete the guest. The id cannot "
            "be used again."
        ),
        # There are no examples of guests, because "Try it out" on the page would irrevocably erase
        # one.
        parameters=(parameter("guest_id", "path", "The guest."),),
        calls=EraseGuest,
        refusals=GUEST_REFUSALS,
    )
    def erase(self, caller: Caller, guest_id: str) -> Done:
        """Erase the guest."""
        self.erase_guest(caller, guest_id=guest_id)
        self.wake_reconciler()
        return Done()

    @Operation(
        method="post",
        path=f"{GUEST}/merge",
        name="mergeGuests",
        tag=Tag.GUESTS,
        summary="Merge another guest into this guest, permanently",
        description=(
            "Cards, consents and sessions move to this guest. The other id cannot be "
            "used again. A merge cannot be undone."
        ),
        # There are no examples of guests, because "Try it out" on the page would irrevocably merge
        # them.
        parameters=(parameter("guest_id", "path", "The guest to keep."),),
        calls=MergeGuests,
        refusals=(
            *GUEST_REFUSALS,
            errors.InvalidField("from", "a UUID"),
            errors.CardsDoNotMatch(),
        ),
    )
    def merge(self, caller: Caller, guest_id: str, body: MergeBody) -> Done:
        """Merge the guest in the body into the guest `guest_id`."""
        self.merge_guests(
            caller, guest_id=guest_id, merged_id=body.merged_id, last_fours=body.last_fours
        )
        self.wake_reconciler()
        return Done()

    @Operation(
        method="get",
        path=GUEST,
        name="readGuest",
        tag=Tag.GUESTS,
        summary="Read a guest",
        parameters=(GUEST_ID,),
        headers={
            "ETag": {
                "description": (
                    "An opaque text that changes with the guest, for `If-Match` of `putGuest`."
                ),
                "required": True,
                "schema": {"type": "string"},
            }
        },
        calls=ReadGuest,
        refusals=GUEST_REFUSALS,
    )
    def read(self, resp: falcon.Response, caller: Caller, guest_id: str) -> GuestRecord:
        """Read the guest."""
        guest = self.read_guest(caller, guest_id=guest_id)
        resp.etag = guest.version
        return GuestRecord.of(guest)

    @Operation(
        method="post",
        path=GUEST_SEARCH,
        name="searchGuests",
        tag=Tag.GUESTS,
        summary="Find guests by their e-mail address",
        description=(
            "The body contains the e-mail address, because access logs contain URLs. Several guests "
            "may have the same address. A search counts as a write."
        ),
        body_examples=lambda _: {"ada": sample("Ada Sample", {"email": "ada@example.com"})},
        calls=SearchGuests,
        refusals=(invalid_email(),),
    )
    def search(self, caller: Caller, body: GuestSearch, page: PageRequest) -> FoundGuests:
        """Find guests by their e-mail address."""
        return FoundGuests.of(self.search_guests(caller, email=body.email, page=page))


def _strong_tags(tags: Sequence[falcon.ETag | Literal["*"]] | None) -> Sequence[str] | None:
    """Return the strong tags of the header If-Match (RFC 9110, 13.1.1).

    Return None if the request does not have the header. Weak tags are left out, because they never
    match.
    """
    if tags is None:
        return None
    # Only an unquoted star matches every tag.
    return [
        tag
        for tag in tags
        if not isinstance(tag, falcon.ETag) or not (tag.is_weak or tag == ANY_VERSION)
    ]
