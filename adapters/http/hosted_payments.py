"""The guest's browser: `/hosted-payments` with its return and cancel legs.

Each sends the browser on with 303: to the PSP's page, or back to the stored redirect_uri. Where
neither can be done, the guest sees a page of ours that says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import falcon

from adapters.http.problem_page import protect_page, show_problem
from adapters.http.requests import Query
from domain.errors import ServiceUnavailable
from domain.find_way_back import FindWayBack
from domain.leave_hosted_page import CancelHostedPage, ReturnFromHostedPage
from domain.open_hosted_page import LinkAltered, LinkExpired, LinkUnknown, OpenHostedPage
from domain.ports import ProviderUnavailable


@dataclass(frozen=True, kw_only=True)
class HostedPaymentLink:
    """The link that a client redirects its guest to."""

    open_hosted_page: OpenHostedPage
    wake_reconciler: Callable[[], None]

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Send the browser to the PSP's page, which is made now."""
        query = Query(req)
        address = self.open_hosted_page(
            token_id=query.only("token_id"), redirect_uri=query.only("redirect_uri")
        )
        self.wake_reconciler()
        _send_on(resp, address)


@dataclass(frozen=True, kw_only=True)
class HostedPaymentReturn:
    """Where the PSP's page sends the guest when it is done."""

    return_from_hosted_page: ReturnFromHostedPage
    wake_reconciler: Callable[[], None]

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Settle the session if that can be done at once, and send the browser back."""
        query = Query(req)
        address = self.return_from_hosted_page(
            token_id=query.only("token_id"), parameters=query.except_for("token_id")
        )
        self.wake_reconciler()
        _send_on(resp, address)


@dataclass(frozen=True, kw_only=True)
class HostedPaymentCancel:
    """Where the PSP's page sends a guest who goes back without a card."""

    cancel_hosted_page: CancelHostedPage

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Send the browser back; the link can be used again until the session ends."""
        _send_on(resp, self.cancel_hosted_page(token_id=Query(req).only("token_id")))


def _send_on(resp: falcon.Response, address: str) -> None:
    # The header is set as it is: Falcon's own redirect would encode the address anew.
    resp.status = falcon.HTTP_303
    resp.set_header("Location", address)
    protect_page(resp)


@dataclass(frozen=True, kw_only=True)
class _Problem:
    status: int
    title: str
    advice: str
    retry_after_seconds: int | None = None


_PROBLEMS: Final[Mapping[type[Exception], _Problem]] = {
    LinkUnknown: _Problem(
        status=404,
        title="This link is not known",
        advice="Please go back to where you started, and ask for a new link there.",
    ),
    LinkAltered: _Problem(
        status=400,
        title="This link has been changed",
        advice="For your safety it was not followed. Please go back and start again.",
    ),
    LinkExpired: _Problem(
        status=410,
        title="This link has expired",
        advice="It can no longer be used. Please go back and ask for a new link.",
    ),
    ProviderUnavailable: _Problem(
        status=503,
        title="The payment page cannot be reached",
        advice="Nothing was charged. Please wait a moment, then load this page again.",
        retry_after_seconds=30,
    ),
}
"""What a guest reads whose link leads nowhere just now."""


@dataclass(frozen=True, kw_only=True)
class ProblemPages:
    """The pages for guests who cannot be sent on. Each has the way back, if there is one."""

    find_way_back: FindWayBack

    def add_to(self, app: falcon.App[falcon.Request, falcon.Response]) -> None:
        """Have the app show them."""
        for kind in _PROBLEMS:
            app.add_error_handler(kind, self._show)

    def _show(
        self, req: falcon.Request, resp: falcon.Response, error: Exception, _: object
    ) -> None:
        problem = next(each for kind, each in _PROBLEMS.items() if isinstance(error, kind))
        way_back = None
        with suppress(ServiceUnavailable):
            way_back = self.find_way_back(token_id=Query(req).only("token_id"))
        if problem.retry_after_seconds is not None:
            resp.set_header("Retry-After", str(problem.retry_after_seconds))
        show_problem(
            resp,
            status=problem.status,
            title=problem.title,
            advice=problem.advice,
            way_back=way_back,
        )
