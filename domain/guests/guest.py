"""Guests: the people whose cards are on file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass
from hashlib import sha256
from typing import Final, Protocol

from domain.billing import MAX_LENGTHS, is_email_address
from domain.card_numbers import joined_texts_hold_card_number
from domain.errors import GuestIdNotUsable, InvalidField
from domain.fields import NO_CARD_NUMBER, parse_line, parse_uuid, without_card_number
from domain.identifiers import GuestId, plain_uuid
from domain.languages import parse_language
from domain.pagination import Page, PageRequest

MAX_NAME_LENGTH: Final = 200

UNCHANGED: Final = object()
"""The value of a field that a request does not contain. The stored value is then kept."""

ANY_VERSION: Final = "*"
"""A version that matches every version of a guest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """A guest. `email` and `language` (RFC 5646) are None if unknown."""

    id: GuestId
    first_name: str
    last_name: str
    email: str | None = None
    language: str | None = None

    @property
    def full_name(self) -> str:
        """The first name and the last name, as pages show them."""
        return f"{self.first_name} {self.last_name}"

    @property
    def version(self) -> str:
        """An opaque text that is the same for equal guests, and differs if any field differs.

        It is computed from the fields, so guests that an earlier release stored have it too.
        """
        return sha256(ascii(astuple(self)).encode()).hexdigest()[:32]

    @classmethod
    def parse(
        cls,
        *,
        id: object,  # noqa: A002  # the name of the field
        first_name: object,
        last_name: object,
        email: object,
        language: object = None,
    ) -> Guest:
        """Parse a guest from a request or a file. Raises InvalidField.

        `email` and `language` may be None or "" if they are not known.
        """
        guest = cls(
            id=GuestId(parse_uuid("id", id)),
            first_name=_parse_name("first_name", first_name),
            last_name=_parse_name("last_name", last_name),
            email=None if email is None or email == "" else parse_email(email),
            language=parse_language("language", language),
        )
        # Receptionists sometimes type card numbers into name fields. Both names are checked
        # together, because the page shows them side by side.
        if joined_texts_hold_card_number(guest.first_name, guest.last_name):
            raise InvalidField("last_name", NO_CARD_NUMBER)
        return guest


def parse_guest_id(value: str) -> GuestId:
    """Parse a guest id from a path. Raises GuestIdNotUsable if it is not a UUID."""
    guest_id = plain_uuid(value)
    if guest_id is None:
        raise GuestIdNotUsable
    return GuestId(guest_id)


def parse_email(value: object) -> str:
    """Return an e-mail address unchanged. Raises InvalidField."""
    if isinstance(value, str) and len(value) <= MAX_LENGTHS["email"] and is_email_address(value):
        return without_card_number("email", value)
    raise invalid_email()


def invalid_email() -> InvalidField:
    """Return the error for a text that is not an e-mail address."""
    return InvalidField("email", "an e-mail address")


def _parse_name(field: str, value: object) -> str:
    return without_card_number(field, parse_line(field, value, max_length=MAX_NAME_LENGTH))


class Guests(Protocol):
    """Repository of guests."""

    def get(self, guest_id: GuestId) -> Guest | None:
        """Return the guest, or None."""
        ...

    def lock(self, guest_id: GuestId) -> Guest | None:
        """Return the guest, or None. No other unit can change the guest until this unit ends."""
        ...

    def with_email(self, email: str, request: PageRequest) -> Page[Guest]:
        """Return a page of the guests with this e-mail address, sorted by id.

        The letters A to Z are compared without regard to case.
        """
        ...

    def is_on_file(self, guest_id: GuestId) -> bool:
        """Return whether anything is stored about a guest.

        Other records may exist even if the guest's own record was deleted by hand.
        """
        ...

    def add(self, guest: Guest) -> None:
        """Store a new guest. Raises AlreadyStored if the guest exists."""
        ...

    def update(self, guest: Guest) -> None:
        """Replace a stored guest."""
        ...

    def remove(self, guest_id: GuestId) -> None:
        """Delete a guest, if there is one."""
        ...

    def put_many(self, guests: Iterable[Guest]) -> None:
        """Store guests. Guests that are already stored are updated.

        If a guest has no language, the stored language is kept.
        """
        ...
