"""Find which centers exist."""

from __future__ import annotations

from collections.abc import Collection

from domain.centers.center import CenterNotFound
from domain.fields import parse_uuid
from domain.identifiers import CenterId
from domain.storage import UnitOfWork


def existing_centers(unit: UnitOfWork, centers: Collection[str]) -> frozenset[CenterId]:
    """Return the ids of centers that an operator has named.

    Raises InvalidField for one that is not a UUID, and CenterNotFound for one that is not on file.
    """
    ids = [CenterId(parse_uuid("centers", center)) for center in centers]
    for center_id in ids:
        if unit.centers.get(center_id) is None:
            raise CenterNotFound(center_id)
    return frozenset(ids)
