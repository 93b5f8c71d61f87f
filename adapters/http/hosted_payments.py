"""The requests of a guest's browser: `/hosted-payments`, `return`, `cancel`, and the short `/h/…`.

Each request redirects the browser with 303, either to the PSP's page or back to the stored
redirect_uri. If neither is possible, the guest sees a page with the reason. In some cases, the
guest first sees a page with a button, for example if the link is old, or if the PSP's page cannot
ask for consent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from math import ceil
from typing import Final, TypeAlias
from urllib.parse import parse_qs

import falcon
import structlog

from adapters.guest_pages import is_sent_from
from adapters.http.continue_page import show_continue_page
from adapters.http.cookies import Cookies
from adapters.http.errors import log_card_limit
from adapters.http.operations import Operation, Tag, parameter
from adapters.http.problem_page import UNREACHABLE, Problem, accepted_by, protect_page, show_problem
from adapters.http.requests import (
    MAX_BODY_BYTES,
    MAX_QUERY_PARAMETERS,
    Query,
    read_bytes,
)
from domain.desk_links.find_desk import DeskLinkStopped, DeskLinkUnknown
from domain.errors import ServiceUnavailable
from domain.hosted_payments.find_page_content import FindPageContent, PageContent
from domain.hosted_payments.leave_hosted_page import CancelHostedPage, ReturnFromHostedPage
from domain.hosted_payments.link import (
    ClickNeeded,
    FormNeeded,
    HostedLinks,
    LinkCancelled,
    LinkExpired,
    LinkPaused,
    LinkUnknown,
)
from domain.hosted_payments.open_hosted_page import OpenHostedPage, PageUnderWay
from domain.identifiers import TOKEN_PREFIX_LENGTH, find_link_key
from domain.outside import Ids
from domain.portal.find_portal import PortalEnded, PortalExpired, PortalUnknown
from domain.psps.payment_provider import ProviderUnavailable
from domain.sessions.polling import ASK_AGAIN_AFTER

log = structlog.get_logger()

_SESSION: Final = parameter("token_id", "query", "The session.", required=True)

_LINK_PROBLEMS: Final = {
    400: "Malformed request.",
    404: "The link is unknown.",
    503: "Try again in a moment.",
    500: "A fault of the service.",
}

_BROWSER_COOKIE: Final = "cardonfile"
"""The cookie with a secret that identifies the browser in which a guest agreed to a text."""
_LINK_COOKIE: Final = "cardonfile-link"
"""The cookie with the key of the link that the browser opened last."""
_SECRET: Final = re.compile(r"[A-Za-z0-9_-]{22,64}")
"""The form of the secret that identifies a browser."""

MAX_USER_AGENT_LENGTH: Final = 300

_REDIRECTS_TO_SHOP: Final = {303: "Redirects to redirect_uri.", **_LINK_PROBLEMS}

_LINK: Final = Operation(
    method="get",
    path="/hosted-payments",
    name="openHostedPage",
    tag=Tag.SERVICE,
    summary="The link to which the client redirects the guest's browser",
    description="The response to add-card contains this link as `hosted_payment_uri`. Open it in a "
    "browser.",
    parameters=(
        parameter(
            "key",
            "query",
            "The secret of the link. Only this secret opens the page. A link made by a release before "
            "0.3 has no key.",
            required=True,
            type="string",
        ),
        parameter(
            "token_id",
            "query",
            "The token of the session. It opens only a link that was made by a release before 0.3, "
            "which has no key.",
        ),
        parameter(
            "redirect_uri",
            "query",
            "Ignored. The stored redirect_uri is used.",
            type="string",
            format="uri",
        ),
        parameter(
            "another_card",
            "query",
            "`yes` shows the page without the guest's card on file.",
            type="string",
            enum=["yes"],
        ),
    ),
    pages={
        200: "A page with a button that continues. The page is shown if the link is older than 24 "
        "hours, if too many cards were refused at the center, or if the PSP's page cannot show the "
        "text to which the guest agrees. It is also shown if only a form opens the PSP's page.",
        303: "Redirects to the hosted page, or to redirect_uri once the session is settled.",
        410: "The link has expired.",
        429: "Too many cards were refused. Retry-After states how long to wait.",
        **_LINK_PROBLEMS,
    },
)


_RETURN: Final = Operation(
    method="get",
    path="/hosted-payments/return",
    name="returnFromHostedPage",
    tag=Tag.SERVICE,
    summary="Where the hosted page sends a guest who has finished",
    description="The session is settled first, if the PSP responds in time.",
    parameters=(_SESSION,),
    pages=_REDIRECTS_TO_SHOP,
)

_CANCEL: Final = Operation(
    method="get",
    path="/hosted-payments/cancel",
    name="cancelHostedPage",
    tag=Tag.SERVICE,
    summary="Where the hosted page sends a guest who goes back without a card",
    description="The link keeps working until the session ends.",
    parameters=(_SESSION,),
    pages=_REDIRECTS_TO_SHOP,
)


class ClickedElsewhere(Exception):
    """A page from another origin sent the form with the button."""


_PROBLEMS: Final[Mapping[type[Exception], Problem]] = {
    LinkUnknown: Problem(status=404, key="problem.unknown"),
    ClickedElsewhere: Problem(status=403, key="problem.clicked_elsewhere"),
    LinkExpired: Problem(status=410, key="problem.expired"),
    LinkCancelled: Problem(status=410, key="problem.cancelled"),
    DeskLinkUnknown: Problem(status=404, key="problem.unknown"),
    DeskLinkStopped: Problem(status=403, key="problem.desk_stopped"),
    PortalUnknown: Problem(status=404, key="problem.unknown"),
    PortalExpired: Problem(status=410, key="problem.expired"),
    PortalEnded: Problem(status=410, key="problem.portal_ended"),
    ProviderUnavailable: UNREACHABLE,
}
"""The problems that are shown to guests whose link cannot be opened."""

_UNDER_WAY: Final = Problem(
    status=503,
    key="problem.under_way",
    retry_after_seconds=int(ASK_AGAIN_AFTER.total_seconds()),
    reloads=True,
)
"""The problem that a guest sees while another request for the same page is still running.

This happens after a double click, for example.
"""

_ErrorHandler: TypeAlias = Callable[[falcon.Request, falcon.Response, Exception, object], None]


@dataclass(frozen=True, kw_only=True)
class HostedPayments:
    """The link of a session, and the addresses to which the PSP's page sends the guest back."""

    open_hosted_page: OpenHostedPage
    return_from_hosted_page: ReturnFromHostedPage
    cancel_hosted_page: CancelHostedPage
    find_page_content: FindPageContent
    links: HostedLinks
    ids: Ids
    wake_reconciler: Callable[[], None]

    def add_error_handlers(self, app: falcon.App[falcon.Request, falcon.Response]) -> None:
        """Add handlers that show a page to a guest who cannot be redirected."""
        for error, problem in _PROBLEMS.items():
            app.add_error_handler(error, self._showing(problem))
        app.add_error_handler(PageUnderWay, self._show_under_way)
        app.add_error_handler(LinkPaused, self._show_pause)
        app.add_error_handler(ClickNeeded, self._show_button)
        app.add_error_handler(FormNeeded, self._show_form)

    @_LINK
    def open(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Create the PSP's page and redirect to it, or show the page with the button.

        This request is never taken as consent, because programs that make previews send it too.
        """
        self._open(req, resp, browser=self._browser_of(req))

    @replace(
        _LINK,
        method="post",
        name="openHostedPageByClick",
        summary="The button with which a guest agrees to a text, or opens an old link",
        description="As above, whatever the age of the link. The form field `agreed` identifies the "
        "text to which the guest agrees; the page fills it in. The field `keep` is `yes` if the guest also "
        "allows the center to keep the card after a booking. The field `card` names the card "
        "on file that the guest uses for the booking; the page fills it in. A cookie then identifies the browser "
        "in which the guest agreed. In any other browser, the guest must agree again.",
        pages={
            **_LINK.pages,
            200: "A page with a button that continues. The page is shown if the guest has not agreed "
            "to the current text, or if only a form opens the PSP's page.",
            413: "The form is longer than 16 KiB.",
            403: "A page of another origin sent the form.",
        },
    )
    def open_by_click(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Create the PSP's page and redirect to it, after the guest clicked on the button.

        Raises ClickedElsewhere if a page of another origin sent the form. A form is accepted if its
        origin is unknown, because some programs do not state the origin.
        """
        if not is_sent_from(self.links.base_url, req):
            raise ClickedElsewhere
        form = form_in(req)
        agreed = form.get("agreed")
        browser = self._browser_of(req) or self.ids.secret()
        if agreed:
            # The cookie is set first, because the click is stored even if the PSP is unavailable.
            self._cookies.set(resp, _BROWSER_COOKIE, browser)
        self._open(
            req,
            resp,
            by_click=True,
            agreed=agreed,
            keeps=form.get("keep") == "yes",
            card=form.get("card"),
            browser=browser,
        )

    def _open(
        self,
        req: falcon.Request,
        resp: falcon.Response,
        *,
        by_click: bool = False,
        agreed: str | None = None,
        keeps: bool = False,
        card: str | None = None,
        browser: str | None,
    ) -> None:
        # The cookie is set first, because cardonfile's page may be shown before the PSP's page.
        self._remember_link(req, resp)
        link = _link_in(req)
        address = self.open_hosted_page(
            key=link["key"],
            token_id=link["token_id"],
            by_click=by_click,
            agreed=agreed,
            keeps=keeps,
            card=card,
            browser=browser,
            address=req.remote_addr,
            user_agent=_name_in(req.user_agent),
            accepted=accepted_by(req),
        )
        self.wake_reconciler()
        redirect(resp, address)

    def _remember_link(self, req: falcon.Request, resp: falcon.Response) -> None:
        key = find_link_key(_link_in(req)["key"])
        if key is not None:
            # A PSP may send the browser back by a form, without Lax cookies. Browsers accept None
            # only over https.
            same_site = "None" if self._cookies.is_secure else "Lax"
            self._cookies.set(resp, _LINK_COOKIE, key, same_site=same_site)

    @property
    def _cookies(self) -> Cookies:
        return Cookies(links=self.links)

    def _browser_of(self, req: falcon.Request) -> str | None:
        """Return the secret in the browser's cookie, or None if the browser has no such cookie.

        A malformed cookie is ignored, because this service did not set it.
        """
        secret = self._cookies.get(req, _BROWSER_COOKIE) or ""
        return secret if _SECRET.fullmatch(secret) else None

    @Operation(
        method="get",
        path="/h/{key}",
        name="openShortLink",
        tag=Tag.SERVICE,
        summary="The short form of the link, for text messages and QR codes",
        description="Redirects without looking up the key.",
        parameters=(
            parameter(
                "key",
                "path",
                "The `key` of the link.",
                type="string",
                examples=["mzxw6ytboi2hk4tfonuw45dpmu"],
            ),
        ),
        pages={303: "Redirects to the long link, even if it is unknown.", 500: _LINK_PROBLEMS[500]},
    )
    def open_short(self, resp: falcon.Response, key: str) -> None:
        """Redirect from the short form of a link to the link itself.

        The page with the button is not shown at the short address. Otherwise, the browser would
        send the form with the button to the short address, which does not accept forms.
        """
        redirect(resp, self.links.uri_of_key(key))

    @_RETURN
    def come_back(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Settle the session if the PSP responds in time, and redirect to the stored redirect_uri."""
        self._come_back(req, resp, form={})

    @replace(
        _RETURN,
        method="post",
        name="returnFromHostedPageByPost",
        summary="The way back for PSPs that send the browser back with a form",
        description="The fields of the form count as query parameters.",
        pages={**_REDIRECTS_TO_SHOP, 413: "The form is longer than 16 KiB."},
    )
    def come_back_by_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Do the same as `come_back` for a PSP that sends the browser back with a form.

        The fields of the form are used like parameters of the query. The origin of the form is not
        checked, because any site could also send the same values in a query.
        """
        self._come_back(req, resp, form=form_in(req))

    def _come_back(
        self, req: falcon.Request, resp: falcon.Response, *, form: Mapping[str, str]
    ) -> None:
        query = Query(req)
        address = self.return_from_hosted_page(
            token_id=query.only("token_id"),
            parameters={**query.except_for("token_id"), **form},
            key=self._cookies.get(req, _LINK_COOKIE),
        )
        self.wake_reconciler()
        redirect(resp, address)

    @replace(
        _CANCEL,
        method="post",
        name="cancelHostedPageByPost",
        summary="The way back without a card, for PSPs that send the browser back with a form",
        description="The form is ignored.",
    )
    def go_back_by_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Do the same as `go_back` for a PSP that sends the browser back with a form."""
        self._go_back(req, resp)

    @_CANCEL
    def go_back(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Record that the guest left the page, and redirect to the stored redirect_uri.

        The link still works until the session ends.
        """
        self._go_back(req, resp)

    def _go_back(self, req: falcon.Request, resp: falcon.Response) -> None:
        token_id = Query(req).only("token_id")
        redirect(resp, self.cancel_hosted_page(token_id=token_id))
        log.info("guest_went_back", session=token_id[:TOKEN_PREFIX_LENGTH])

    def _showing(self, problem: Problem) -> _ErrorHandler:
        def show(req: falcon.Request, resp: falcon.Response, _: Exception, __: object) -> None:
            show_problem(req, resp, problem, self._page_content(req))

        return show

    def _show_under_way(
        self, req: falcon.Request, resp: falcon.Response, _: PageUnderWay, __: object
    ) -> None:
        problem = _UNDER_WAY
        if req.method == "POST":
            # A page that reloads itself sends a GET, which lacks the click that an old link needs.
            problem = replace(problem, key="problem.under_way_after_click", reloads=False)
        show_problem(req, resp, problem, self._page_content(req))

    def _show_pause(
        self, req: falcon.Request, resp: falcon.Response, paused: LinkPaused, _: object
    ) -> None:
        log_card_limit(paused.reached, caller=None)
        seconds = paused.reached.retry_after_seconds
        is_soon = seconds <= 90 * 60
        problem = Problem(
            status=429,
            key="problem.paused_minutes" if is_soon else "problem.paused_hours",
            values={"count": max(2, ceil(seconds / (60 if is_soon else 3600)))},
            retry_after_seconds=seconds,
        )
        show_problem(req, resp, problem, self._page_content(req))

    def _show_button(
        self, req: falcon.Request, resp: falcon.Response, _: ClickNeeded, __: object
    ) -> None:
        show_continue_page(req, resp, self._page_content(req))

    def _show_form(
        self, req: falcon.Request, resp: falcon.Response, needed: FormNeeded, _: object
    ) -> None:
        self.wake_reconciler()
        show_continue_page(req, resp, self._page_content(req), needed.page)

    def _page_content(self, req: falcon.Request) -> PageContent | None:
        with suppress(ServiceUnavailable):
            return self.find_page_content(
                **_link_in(req),
                browser=self._browser_of(req),
                another_card=Query(req).only("another_card") == "yes",
                accepted=accepted_by(req),
            )
        return None


def _link_in(req: falcon.Request) -> dict[str, str]:
    query = Query(req)
    return {"key": query.only("key"), "token_id": query.only("token_id")}


def _name_in(user_agent: str | None) -> str:
    """Return at most MAX_USER_AGENT_LENGTH characters of a browser's User-Agent.

    Characters that are not printable are left out, because a client may send any characters.
    """
    printable = filter(str.isprintable, user_agent or "")
    return "".join(printable)[:MAX_USER_AGENT_LENGTH]


def form_in(req: falcon.Request) -> Mapping[str, str]:
    """Return the first value of each field of the request's form. Raises HTTPBadRequest."""
    body = read_bytes(req, MAX_BODY_BYTES).decode(errors="replace")
    try:
        form = parse_qs(body, keep_blank_values=True, max_num_fields=MAX_QUERY_PARAMETERS)
    except ValueError as error:
        raise falcon.HTTPBadRequest from error
    return {name: values[0] for name, values in form.items()}


def redirect(resp: falcon.Response, address: str) -> None:
    """Redirect to `address` with 303. The address must already be encoded."""
    # Falcon's own redirect would encode the address once more.
    resp.status = falcon.HTTP_303
    resp.set_header("Location", address)
    protect_page(resp)
