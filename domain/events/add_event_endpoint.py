"""Add an endpoint that receives events."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

from domain.audit.entry import Action
from domain.audit.note_act import NoteAct
from domain.centers.find_centers import existing_centers
from domain.errors import InvalidField
from domain.events.event import (
    MAX_ENDPOINTS,
    EventEndpoint,
    Secrets,
    parse_endpoint_url,
    parse_event_types,
)
from domain.identifiers import EndpointId
from domain.outside import Clock, Ids
from domain.storage import AlreadyStored, Storage, WriteUnit


class TooManyEndpoints(Exception):
    """There are already 50 endpoints."""

    def __init__(self) -> None:
        super().__init__(f"there are already {MAX_ENDPOINTS} endpoints, which is the maximum")


@dataclass(frozen=True, slots=True, kw_only=True)
class AddEventEndpoint:
    """Use case: add an endpoint, and return it with the secret that signs its events.

    The endpoint receives events of the given types that occur from now on. `centers` contains the
    ids of the centers whose events it receives; None means all centers. `may_be_http` is set if the
    service runs on a loopback address. Raises InvalidField, CenterNotFound or TooManyEndpoints.

    Only operators may add endpoints. If clients chose the addresses, they could make this service
    send requests inside the operator's network.
    """

    storage: Storage
    clock: Clock
    ids: Ids
    note_act: NoteAct
    may_be_http: bool

    def __call__(
        self, *, url: str, types: Collection[str], centers: Collection[str] | None = None
    ) -> EventEndpoint:
        parse_endpoint_url(url, may_be_http=self.may_be_http)
        event_types = parse_event_types(types)
        endpoint_id = EndpointId(self.ids.uuid())
        secrets = Secrets.of(self.ids.secret())
        now = self.clock.now()

        def add(unit: WriteUnit) -> EventEndpoint:
            if len(unit.event_endpoints.all()) >= MAX_ENDPOINTS:
                raise TooManyEndpoints
            endpoint = EventEndpoint(
                endpoint_id=endpoint_id,
                url=url,
                types=event_types,
                centers=None if centers is None else existing_centers(unit, centers),
                secrets=secrets,
                created_at=now,
            )
            try:
                unit.event_endpoints.add(endpoint)
            except AlreadyStored:
                raise InvalidField("url", "a URL that has not been added yet") from None
            # Some services put a secret into the path of their addresses.
            host = urlsplit(url).hostname or ""
            self.note_act(
                unit, Action.ENDPOINT_ADDED, endpoint_id, {"host": host, "types": ",".join(types)}
            )
            unit.commit()
            return endpoint

        return self.storage.transact(add)
