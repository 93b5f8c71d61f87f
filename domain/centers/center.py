"""Centers: the spas, salons, clinics and hotels that guests visit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from domain.errors import InvalidCenterId
from domain.fields import parse_line, parse_uuid, without_card_number
from domain.identifiers import CenterId, plain_uuid
from domain.pagination import Page, PageRequest

MAX_NAME_LENGTH: Final = 200


class CenterNotFound(LookupError):
    """No center has this id."""

    def __init__(self, center_id: CenterId) -> None:
        super().__init__(f"there is no center {center_id}: import it first")


@dataclass(frozen=True, slots=True, kw_only=True)
class Center:
    """A place of business. Guests read its `name` on the hosted payment page."""

    id: CenterId
    name: str

    @classmethod
    def parse(
        cls,
        *,
        id: object,  # noqa: A002  # the name of the field
        name: object,
    ) -> Center:
        """Parse a center from outside. Raises InvalidField."""
        return cls(
            id=CenterId(parse_uuid("id", id)),
            name=without_card_number("name", parse_line("name", name, max_length=MAX_NAME_LENGTH)),
        )


def parse_center_id(value: object) -> CenterId:
    """Parse a center id that a client sent.

    Raises InvalidCenterId unless it is a UUID in 36-character form.
    """
    center_id = plain_uuid(value)
    if center_id is None:
        raise InvalidCenterId
    return CenterId(center_id)


def parse_only_center(center_ids: Sequence[str]) -> CenterId | None:
    """Parse the values of the query parameter `center_id`, which may be given once.

    Return the center id, or None if there is no value. Raises InvalidCenterId for an invalid id and
    for several values.
    """
    if len(center_ids) > 1:
        raise InvalidCenterId
    return parse_center_id(center_ids[0]) if center_ids else None


class Centers(Protocol):
    """Repository of centers."""

    def get(self, center_id: CenterId) -> Center | None:
        """Return the center, or None."""
        ...

    def page(self, centers: frozenset[CenterId] | None, request: PageRequest) -> Page[Center]:
        """Return a page of the given centers, sorted by name. None means all centers."""
        ...

    def put_many(self, centers: Iterable[Center]) -> None:
        """Store centers. Centers that are already stored are updated."""
        ...
