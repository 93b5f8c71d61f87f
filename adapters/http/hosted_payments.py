"""The guest's browser: `/hosted-payments` with its return and cancel legs.

Each sends the browser on with 303: to the PSP's page, or back to the stored redirect_uri. Where
neither can be done, the guest sees a page of ours that says why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import falcon

from adapters.http.problem_page import protect_page, show_problem
from adapters.http.requests import Query
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


def add_problem_pages(app: falcon.App[falcon.Request, falcon.Response]) -> None:
    """Have the app show a page to guests whose link leads nowhere just now."""
    app.add_error_handler(LinkUnknown, _on_unknown)
    app.add_error_handler(LinkAltered, _on_altered)
    app.add_error_handler(LinkExpired, _on_expired)
    app.add_error_handler(ProviderUnavailable, _on_unavailable)


def _on_unknown(_: falcon.Request, resp: falcon.Response, __: LinkUnknown, ___: object) -> None:
    show_problem(
        resp,
        status=404,
        title="This link is not known",
        advice="Please go back to the shop and start again from there.",
    )


def _on_altered(_: falcon.Request, resp: falcon.Response, __: LinkAltered, ___: object) -> None:
    show_problem(
        resp,
        status=400,
        title="This link has been changed",
        advice="For your safety it was not followed. Please go back to the shop and start again.",
    )


def _on_expired(_: falcon.Request, resp: falcon.Response, expired: LinkExpired, __: object) -> None:
    show_problem(
        resp,
        status=410,
        title="This link has expired",
        advice="Nothing was added. Please go back to the shop and ask for a new link.",
        way_back=expired.redirect_uri,
    )


def _on_unavailable(
    _: falcon.Request, resp: falcon.Response, __: ProviderUnavailable, ___: object
) -> None:
    resp.set_header("Retry-After", "30")
    show_problem(
        resp,
        status=503,
        title="The payment page cannot be reached",
        advice="Nothing was added. Please wait a moment, then load this page again.",
    )
