"""Guests: the people whose cards are kept."""

from __future__ import annotations

from dataclasses import dataclass

from domain.errors import GuestIdNotUsable
from domain.identifiers import GuestId, plain_uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """An existing guest. `email` is None when it is not known."""

    id: GuestId
    first_name: str
    last_name: str
    email: str | None = None


def parse_guest_id(value: str) -> GuestId:
    """Read a guest id from a path. Raises GuestIdNotUsable when it is no UUID."""
    guest_id = plain_uuid(value)
    if guest_id is None:
        raise GuestIdNotUsable
    return GuestId(guest_id)
