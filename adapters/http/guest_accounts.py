"""A guest's cards: `/api/v1/guests/{guest_id}/accounts` and the paths below it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import falcon
import structlog

from adapters.http.authentication import Authentication
from adapters.http.requests import Query, read_add_card
from adapters.http.responses import (
    CardSessionStarted,
    CardSessionState,
    Done,
    ListedSessions,
    StoredCardDetails,
    StoredCards,
    json_body,
)
from adapters.http.use_cases import UseCases
from domain.hosted_payments.link import HostedLinks
from domain.outside import Clock
from domain.permissions import MAY_ADD_CARDS

log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True)
class GuestAccounts:
    """Add, list, read and remove cards, choose a default; list, read and cancel sessions."""

    use_cases: UseCases
    authenticate: Authentication
    links: HostedLinks
    clock: Clock
    wake_reconciler: Callable[[], None]

    def add_to(self, app: falcon.App[falcon.Request, falcon.Response]) -> None:
        """Add the routes."""
        path = "/api/v1/guests/{guest_id}/accounts"
        app.add_route(path, self)
        app.add_route(path + "/{account_id}", self, suffix="account")
        app.add_route(path + "/{account_id}/default", self, suffix="default")
        app.add_route(path + "/sessions", self, suffix="sessions")
        app.add_route(path + "/sessions/{token_id}", self, suffix="session")

    def on_post(self, req: falcon.Request, resp: falcon.Response, guest_id: str) -> None:
        """Start a card-addition session."""
        caller = self.authenticate(req)
        # The permission is checked before the body is read, so that its refusal comes first.
        caller.require(MAY_ADD_CARDS)
        session = self.use_cases.add_card(caller, read_add_card(req, guest_id))
        json_body(resp, CardSessionStarted.of(session, self.links))

    def on_get(self, req: falcon.Request, resp: falcon.Response, guest_id: str) -> None:
        """List the guest's cards on file."""
        caller = self.authenticate(req)
        query = Query(req)
        page = self.use_cases.list_accounts(
            caller,
            guest_id=guest_id,
            center_ids=query.all("center_id"),
            pages=query.all("page"),
            sizes=query.all("size"),
        )
        json_body(resp, StoredCards.of(page, self.clock.now()))

    def on_get_account(
        self, req: falcon.Request, resp: falcon.Response, guest_id: str, account_id: str
    ) -> None:
        """Read a card on file, with its payment reference if the caller may charge it."""
        caller = self.authenticate(req)
        found = self.use_cases.read_account(caller, guest_id=guest_id, account_id=account_id)
        card = StoredCardDetails.of(found.account, self.clock.now())
        json_body(resp, card.with_reference(found.account) if found.may_charge else card)

    def on_delete_account(
        self, req: falcon.Request, resp: falcon.Response, guest_id: str, account_id: str
    ) -> None:
        """Remove a card on file, here and at the PSP."""
        caller = self.authenticate(req)
        self.use_cases.remove_account(caller, guest_id=guest_id, account_id=account_id)
        # After a backup is restored, these lines tell which cards have been removed since.
        log.info("card_removed", account_id=account_id.lower(), guest_id=guest_id.lower())
        self.wake_reconciler()
        json_body(resp, Done())

    def on_put_default(
        self, req: falcon.Request, resp: falcon.Response, guest_id: str, account_id: str
    ) -> None:
        """Make a card the guest's default at its center. A body is ignored."""
        caller = self.authenticate(req)
        self.use_cases.choose_default_card(caller, guest_id=guest_id, account_id=account_id)
        json_body(resp, Done())

    def on_get_sessions(self, req: falcon.Request, resp: falcon.Response, guest_id: str) -> None:
        """List the guest's sessions, newest first."""
        caller = self.authenticate(req)
        query = Query(req)
        page = self.use_cases.list_sessions(
            caller, guest_id=guest_id, pages=query.all("page"), sizes=query.all("size")
        )
        json_body(resp, ListedSessions.of(page))

    def on_get_session(
        self, req: falcon.Request, resp: falcon.Response, guest_id: str, token_id: str
    ) -> None:
        """Read a session's status, and its account or failure once it has ended."""
        caller = self.authenticate(req)
        session = self.use_cases.read_session(caller, guest_id=guest_id, token_id=token_id)
        json_body(resp, CardSessionState.of(session))

    def on_delete_session(
        self, req: falcon.Request, resp: falcon.Response, guest_id: str, token_id: str
    ) -> None:
        """Cancel a session, and return its state."""
        caller = self.authenticate(req)
        session = self.use_cases.cancel_session(caller, guest_id=guest_id, token_id=token_id)
        self.wake_reconciler()
        json_body(resp, CardSessionState.of(session))
