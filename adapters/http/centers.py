"""Centers and the cards that expire there: `/v1/centers`."""

from __future__ import annotations

from dataclasses import dataclass

import falcon

from adapters.http.authentication import Authentication
from adapters.http.requests import Query
from adapters.http.responses import CenterInfo, ExpiringCards, ListedCenters, json_body
from adapters.http.use_cases import UseCases
from domain.outside import Clock


@dataclass(frozen=True, kw_only=True)
class Centers:
    """The caller's centers, and cards that expire."""

    use_cases: UseCases
    authenticate: Authentication
    clock: Clock

    def add_to(self, app: falcon.App[falcon.Request, falcon.Response]) -> None:
        """Add the routes."""
        app.add_route("/v1/centers", self)
        app.add_route("/v1/centers/{center_id}", self, suffix="center")
        app.add_route("/v1/centers/{center_id}/accounts", self, suffix="accounts")

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """List the caller's centers, by name."""
        caller = self.authenticate(req)
        query = Query(req)
        page = self.use_cases.list_centers(caller, pages=query.all("page"), sizes=query.all("size"))
        json_body(resp, ListedCenters.of(page))

    def on_get_center(self, req: falcon.Request, resp: falcon.Response, center_id: str) -> None:
        """Read one of the caller's centers."""
        caller = self.authenticate(req)
        json_body(resp, CenterInfo.of(self.use_cases.read_center(caller, center_id=center_id)))

    def on_get_accounts(self, req: falcon.Request, resp: falcon.Response, center_id: str) -> None:
        """List the center's cards on file that expire before a date, soonest first."""
        caller = self.authenticate(req)
        query = Query(req)
        page = self.use_cases.list_expiring_cards(
            caller,
            center_id=center_id,
            expires_before=query.all("expires_before"),
            pages=query.all("page"),
            sizes=query.all("size"),
        )
        json_body(resp, ExpiringCards.of(page, self.clock.now()))
