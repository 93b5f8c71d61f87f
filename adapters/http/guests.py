"""A guest: `/api/v1/guests/{guest_id}`."""

from __future__ import annotations

from dataclasses import dataclass

import falcon

from adapters.http.authentication import Authentication
from adapters.http.requests import GuestBody, read_body
from adapters.http.responses import GuestRecord, json_body
from adapters.http.use_cases import UseCases
from domain.permissions import MAY_PUT_GUESTS


@dataclass(frozen=True, kw_only=True)
class Guests:
    """Create, update and read a guest."""

    use_cases: UseCases
    authenticate: Authentication

    def add_to(self, app: falcon.App[falcon.Request, falcon.Response]) -> None:
        """Add the route."""
        app.add_route("/api/v1/guests/{guest_id}", self)

    def on_put(self, req: falcon.Request, resp: falcon.Response, guest_id: str) -> None:
        """Create or update the guest."""
        caller = self.authenticate(req)
        # The permission is checked before the body is read, so that its refusal comes first.
        caller.require_all_centers()
        caller.require(MAY_PUT_GUESTS)
        body = read_body(req, GuestBody)
        guest = self.use_cases.put_guest(
            caller,
            guest_id=guest_id,
            first_name=body.first_name,
            last_name=body.last_name,
            email=body.email,
        )
        json_body(resp, GuestRecord.of(guest))

    def on_get(self, req: falcon.Request, resp: falcon.Response, guest_id: str) -> None:
        """Read the guest."""
        caller = self.authenticate(req)
        json_body(resp, GuestRecord.of(self.use_cases.read_guest(caller, guest_id=guest_id)))
