"""Centers: the spas, salons, clinics and hotels that guests visit."""

from __future__ import annotations

from dataclasses import dataclass

from domain.errors import InvalidCenterId
from domain.identifiers import CenterId, plain_uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class Center:
    """A place of business; its name is what a guest reads on the hosted page."""

    id: CenterId
    name: str


def parse_center_id(value: object) -> CenterId:
    """Read a center id as a client sent it (interface, section 2.1).

    Raises InvalidCenterId when it is missing, no text, or no UUID in 36-character form.
    """
    center_id = plain_uuid(value)
    if center_id is None:
        raise InvalidCenterId
    return CenterId(center_id)
