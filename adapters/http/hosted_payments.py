"""The guest's browser: `/hosted-payments`, and its `return` and `cancel`.

Each redirects the browser with 303: to the PSP's page, or back to the stored redirect_uri. If
neither is possible, the guest sees a page that says why. An old link shows a page with a button.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import falcon

from adapters.http.continue_page import show_continue_page
from adapters.http.errors import log_card_limit
from adapters.http.problem_page import UNREACHABLE, Problem, protect_page, show_problem
from adapters.http.requests import Query
from adapters.http.use_cases import UseCases
from domain.errors import ServiceUnavailable
from domain.hosted_payments.find_way_back import WayBack
from domain.hosted_payments.link import (
    ClickNeeded,
    HostedLinks,
    LinkAltered,
    LinkExpired,
    LinkPaused,
    LinkUnknown,
)
from domain.hosted_payments.open_hosted_page import PageUnderWay
from domain.psps.payment_provider import ProviderUnavailable
from domain.sessions.session import ASK_AGAIN_AFTER


class ClickedElsewhere(Exception):
    """The button was sent by a page of another origin."""


_PROBLEMS: Final[Mapping[type[Exception], Problem]] = {
    LinkUnknown: Problem(
        status=404,
        title="This link is not known",
        advice="Please go back to where you started, and ask for a new link there.",
    ),
    LinkAltered: Problem(
        status=400,
        title="This link has been changed",
        advice="For your safety it was not followed. Please go back and start again.",
    ),
    ClickedElsewhere: Problem(
        status=403,
        title="This was not sent from your link",
        advice="For your safety it was not followed. Please open your link, and use its button.",
    ),
    LinkExpired: Problem(
        status=410,
        title="This link has expired",
        advice="It can no longer be used. Please go back and ask for a new link.",
    ),
    LinkPaused: Problem(
        status=429,
        title="Too many cards were refused",
        advice="No card can be added for now. Please go back, and try again later.",
    ),
    # The second request of a double click, say.
    PageUnderWay: Problem(
        status=503,
        title="The payment page is being opened",
        advice="This page leads there in a moment. If it does not, please load it again.",
        retry_after_seconds=int(ASK_AGAIN_AFTER.total_seconds()),
        reloads=True,
    ),
    ProviderUnavailable: UNREACHABLE,
}
"""What the guest reads when the link leads nowhere."""


@dataclass(frozen=True, kw_only=True)
class HostedPayments:
    """The link that a client sends its guest to, and the two ways back from the PSP's page."""

    use_cases: UseCases
    links: HostedLinks
    wake_reconciler: Callable[[], None]

    def add_to(self, app: falcon.App[falcon.Request, falcon.Response]) -> None:
        """Add the routes, and the pages for guests who cannot be redirected."""
        app.add_route("/hosted-payments", self)
        app.add_route("/hosted-payments/return", self, suffix="return")
        app.add_route("/hosted-payments/cancel", self, suffix="cancel")
        for error in _PROBLEMS:
            app.add_error_handler(error, self._show_problem)
        app.add_error_handler(ClickNeeded, self._show_button)

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Redirect to the PSP's page, which is created now; an old link shows a button."""
        self._open(req, resp, by_click=False)

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Redirect to the PSP's page, which is created now: the guest clicked the button.

        A browser says from which origin; some programs that guests use say nothing.
        """
        if req.get_header("Origin") not in (None, self.links.base_url):
            raise ClickedElsewhere
        self._open(req, resp, by_click=True)

    def _open(self, req: falcon.Request, resp: falcon.Response, *, by_click: bool) -> None:
        query = Query(req)
        address = self.use_cases.open_hosted_page(
            token_id=query.only("token_id"),
            redirect_uri=query.only("redirect_uri"),
            by_click=by_click,
        )
        self.wake_reconciler()
        _redirect(resp, address)

    def on_get_return(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Settle the session if the PSP responds in time, and redirect to the shop."""
        query = Query(req)
        address = self.use_cases.return_from_hosted_page(
            token_id=query.only("token_id"), parameters=query.except_for("token_id")
        )
        self.wake_reconciler()
        _redirect(resp, address)

    def on_get_cancel(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Note it, and redirect to the shop. The link works until the session ends."""
        _redirect(resp, self.use_cases.cancel_hosted_page(token_id=Query(req).only("token_id")))

    def _show_problem(
        self, req: falcon.Request, resp: falcon.Response, error: Exception, _: object
    ) -> None:
        problem = next(each for kind, each in _PROBLEMS.items() if isinstance(error, kind))
        if isinstance(error, LinkPaused):
            log_card_limit(error.reached, caller=None)
            problem = replace(problem, retry_after_seconds=error.reached.retry_after_seconds)
        show_problem(resp, problem, self._way_back(req))

    def _show_button(
        self, req: falcon.Request, resp: falcon.Response, _: ClickNeeded, __: object
    ) -> None:
        show_continue_page(resp, self._way_back(req))

    def _way_back(self, req: falcon.Request) -> WayBack | None:
        with suppress(ServiceUnavailable):
            return self.use_cases.find_way_back(token_id=Query(req).only("token_id"))
        return None


def _redirect(resp: falcon.Response, address: str) -> None:
    # Falcon's own redirect would encode the address again; this keeps it byte for byte.
    resp.status = falcon.HTTP_303
    resp.set_header("Location", address)
    protect_page(resp)
