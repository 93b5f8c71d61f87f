"""A guest: `/api/v1/guests/{guest_id}`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

import falcon
import msgspec

from adapters.first_reads import prepare
from adapters.http.authentication import Authentication
from adapters.http.examples import GUEST_IDS, GUEST_WITH_CARD_IDS, sample
from adapters.http.operations import Operation, Responder, Tag, parameter
from adapters.http.requests import BODY_REFUSALS, RequestBody, field, read_body, text
from adapters.http.responses import Done, Uuid, example, json_body, uuid_example
from domain import errors
from domain.billing import MAX_LENGTHS
from domain.erasure.erase_guest import EraseGuest
from domain.fields import invalid_line
from domain.guests.guest import MAX_NAME_LENGTH, Guest
from domain.guests.put_guest import PutGuest
from domain.guests.read_guest import ReadGuest
from domain.permissions import MAY_ERASE_GUESTS, MAY_PUT_GUESTS, MAY_VIEW_GUESTS

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
            "Null if it is not known.",
            type=["string", "null"],
            maxLength=MAX_LENGTHS["email"],
            examples=["ada@example.com"],
        ),
    ] = None


class GuestRecord(Done, frozen=True, kw_only=True):
    """A guest."""

    id: Annotated[Uuid, uuid_example("The guest.")]
    first_name: Annotated[str, example("Ada")]
    last_name: Annotated[str, example("Sample")]
    email: Annotated[str | None, example("ada@example.com", "Null if it is not known.")]

    @classmethod
    def of(cls, guest: Guest) -> GuestRecord:
        """Return the response for a guest."""
        return msgspec.convert(guest, cls, from_attributes=True)


OPERATIONS: Final[Sequence[Operation]] = (
    Operation(
        method="put",
        path=GUEST,
        name="putGuest",
        tag=Tag.GUESTS,
        summary="Create or update a guest under an id of yours",
        description=(
            "Creating needs `guests:add`, changing `guests:edit`; repeating a request changes "
            "nothing. Tokens that are limited to centers get 403."
        ),
        parameters=(GUEST_ID,),
        body=GuestBody,
        body_examples=lambda _: {
            "ada": sample(
                "Ada Sample, unchanged",
                {"first_name": "Ada", "last_name": "Sample", "email": "ada@example.com"},
            ),
        },
        response=GuestRecord,
        needs=MAY_PUT_GUESTS,
        links={"readGuest": SAME_GUEST, "addCard": SAME_GUEST},
        refusals=(
            *BODY_REFUSALS,
            *GUEST_REFUSALS,
            invalid_line("first_name", max_length=MAX_NAME_LENGTH),
        ),
    ),
    Operation(
        method="delete",
        path=GUEST,
        name="eraseGuest",
        tag=Tag.GUESTS,
        summary="Erase a guest, for good",
        description=(
            "Ends the guest's open sessions, removes the cards, and deletes names and addresses here "
            "and at the PSPs. The id cannot be used again. Tokens that are limited to centers get 403."
        ),
        # Without known guests: what "Try it out" of the page does here cannot be taken back.
        parameters=(parameter("guest_id", "path", "The guest."),),
        response=Done,
        needs=MAY_ERASE_GUESTS,
        refusals=GUEST_REFUSALS,
    ),
    Operation(
        method="get",
        path=GUEST,
        name="readGuest",
        tag=Tag.GUESTS,
        summary="Read a guest",
        description="Tokens that are limited to centers get 403.",
        parameters=(GUEST_ID,),
        response=GuestRecord,
        needs=MAY_VIEW_GUESTS,
        refusals=GUEST_REFUSALS,
    ),
)


prepare(GuestBody, GuestRecord)


@dataclass(frozen=True, kw_only=True)
class Guests:
    """Create, update and read a guest."""

    put_guest: PutGuest
    read_guest: ReadGuest
    erase_guest: EraseGuest
    authenticate: Authentication
    wake_reconciler: Callable[[], None]

    def responders(self) -> Mapping[str, Responder]:
        """Return what responds to each operation, by its name."""
        return {"putGuest": self.put, "readGuest": self.read, "eraseGuest": self.erase}

    def put(self, req: falcon.Request, resp: falcon.Response, guest_id: str) -> None:
        """Create or update the guest."""
        caller = self.authenticate(req)
        # The permission is checked before the body is read, so that its refusal comes first.
        caller.require_all_centers()
        caller.require(MAY_PUT_GUESTS)
        body = read_body(req, GuestBody)
        guest = self.put_guest(
            caller,
            guest_id=guest_id,
            first_name=body.first_name,
            last_name=body.last_name,
            email=body.email,
        )
        json_body(resp, GuestRecord.of(guest))

    def read(self, req: falcon.Request, resp: falcon.Response, guest_id: str) -> None:
        """Read the guest."""
        caller = self.authenticate(req)
        json_body(resp, GuestRecord.of(self.read_guest(caller, guest_id=guest_id)))

    def erase(self, req: falcon.Request, resp: falcon.Response, guest_id: str) -> None:
        """Erase the guest."""
        self.erase_guest(self.authenticate(req), guest_id=guest_id)
        json_body(resp, Done())
        self.wake_reconciler()
