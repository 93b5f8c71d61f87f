"""Find the centers that an operator named."""

from __future__ import annotations

from collections.abc import Collection

from domain.centers.center import Center, CenterNotFound
from domain.fields import parse_uuid
from domain.identifiers import CenterId
from domain.storage import UnitOfWork


def existing_center(unit: UnitOfWork, center_id: str, *, field: str = "center_id") -> Center:
    """Return the center with an id that an operator typed.

    Raises CenterNotFound. Raises InvalidField with the name `field` if the id is not a UUID.
    """
    known_id = CenterId(parse_uuid(field, center_id))
    center = unit.centers.get(known_id)
    if center is None:
        raise CenterNotFound(known_id)
    return center


def existing_centers(unit: UnitOfWork, centers: Collection[str]) -> frozenset[CenterId]:
    """Return the ids of several centers that an operator typed.

    Raises CenterNotFound if any of them does not exist. Raises InvalidField (centers) if any id is
    not a UUID.
    """
    return frozenset(existing_center(unit, center_id, field="centers").id for center_id in centers)
