"""Find the endpoint that an operator named."""

from __future__ import annotations

from domain.events.event import EventEndpoint
from domain.identifiers import EndpointId, plain_uuid
from domain.storage import UnitOfWork


class EndpointNotFound(LookupError):
    """No endpoint has this id, or the endpoint was removed."""

    def __init__(self) -> None:
        super().__init__("no endpoint has this id; give the complete id")


def existing_endpoint(unit: UnitOfWork, endpoint_id: str) -> EventEndpoint:
    """Return the endpoint with this id. Raises EndpointNotFound."""
    known_id = plain_uuid(endpoint_id)
    endpoint = unit.event_endpoints.get(EndpointId(known_id)) if known_id else None
    if endpoint is None or endpoint.removed_at is not None:
        raise EndpointNotFound
    return endpoint
