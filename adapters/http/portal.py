"""The guest's own page: make links to it, show it, and change the guest's cards there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import Annotated, ClassVar, Final

import falcon

from adapters.guest_pages import MaskedGuest
from adapters.http.authentication import sent_token
from adapters.http.cookies import Cookies
from adapters.http.errors import NotFound
from adapters.http.examples import SPA_ID, Example, sample
from adapters.http.guests import GUEST, GUEST_REFUSALS, GUEST_WITH_CARD
from adapters.http.hosted_payments import ClickedElsewhere, redirect
from adapters.http.operations import Operation, Tag, parameter
from adapters.http.page_forms import form_token, require_form_of_page
from adapters.http.problem_page import accepted_by, protect_page, show_page
from adapters.http.rate_limits import RateLimits
from adapters.http.requests import RequestBody, field
from adapters.http.responses import Done, Uri, example, time_example
from adapters.thread_safe_types import prepare
from domain import errors
from domain.agreements.locale_formats import LocaleFormats
from domain.cards.account import Account
from domain.hosted_payments.link import HostedLinks
from domain.languages import EXPECTED_LOCALE, MAX_TAG_LENGTH
from domain.outside import Clock
from domain.permissions import Caller
from domain.portal.change_card import CardChange, ChangeCard
from domain.portal.enter_portal import EnterPortal
from domain.portal.open_portal import EXPECTED_RETURN_URI, OpenPortal
from domain.portal.portal_session import VISIT_LIFETIME
from domain.portal.queries import Portal, ReadPortal, ReadPortalLink, Replacing
from domain.portal.replace_card import ReplaceCard
from domain.redirects import MAX_REDIRECT_URI_LENGTH

_COOKIE: Final = "cardonfile-portal"
_DONE_COOKIE: Final = "cardonfile-done"
_DONE_SECONDS: Final = 60
_REPLACE: Final = "replace"
_RECEIPT: Final = "receipt"
_ASKED: Final = (CardChange.REMOVE, CardChange.WITHDRAW)
"""The changes that the guest must confirm on a separate page, which explains them."""
_DONE: Final = ("removed", "withdrawn", "default")
"""The results of changes. The page that is shown after a change states its result once."""
_RELOAD_SECONDS: Final = 5

_KEY: Final = parameter(
    "key", "path", "The secret of the link.", type="string", examples=["Zk3VtT0mO2"]
)
_ACCOUNT_ID: Final = parameter("account_id", "path", "The card.")
_VISIT: Final = parameter(
    f"__Host-{_COOKIE}",
    "cookie",
    "Set by `enterPortal`. On a loopback address, the name has no prefix.",
    required=True,
    type="string",
)

_PROBLEMS: Final = {
    429: "More than 60 requests in a minute, from one address for one link or visit.",
    503: "Try again in a moment.",
    500: "A fault of the service.",
}
_FORM_PROBLEMS: Final = {
    303: "Redirects to the page.",
    400: "Malformed request.",
    403: "Another page sent the form.",
    413: "The form is longer than 16 KiB.",
}


class PortalSessionBody(RequestBody, frozen=True, kw_only=True):
    """The body of openPortal. Unknown fields are ignored and never stored."""

    required: ClassVar[tuple[str, ...]] = ("center_id", "return_uri")

    center_id: Annotated[
        object,
        field(
            "The id of the center with the cards.",
            type="string",
            format="uuid",
            examples=["5d0c6e2e-7b1f-4a66-8a43-2f1b0c9d7e10"],
        ),
    ] = None
    return_uri: Annotated[
        object,
        field(
            "The address to which the page leads back.",
            type="string",
            format="uri",
            maxLength=MAX_REDIRECT_URI_LENGTH,
            examples=["https://shop.example/account"],
        ),
    ] = None
    locale: Annotated[
        object,
        field(
            "The language of the page (BCP 47), or `auto` for the language of the browser.",
            type=["string", "null"],
            maxLength=MAX_TAG_LENGTH,
            examples=["de-AT"],
        ),
    ] = None


class PortalSessionMade(Done, frozen=True, kw_only=True):
    """The response to openPortal."""

    portal_uri: Annotated[
        Uri,
        example(
            "https://cards.example/hosted-payments/portal/Zk3VtT0mO2cW9yJ7b5h1QxA8sR4uE6nLpKfGdHjXvCw",
            "The link to the guest's own page. It is shown only here. Whoever has it can see and "
            "remove the guest's cards: send it only to contact data that you have verified.",
        ),
    ]
    expires_at: Annotated[datetime, time_example("When the link stops working.")]


prepare(PortalSessionBody, PortalSessionMade)


def _examples(base_url: str) -> Mapping[str, Example]:
    body = {"center_id": SPA_ID, "return_uri": f"{base_url}/docs", "locale": "en"}
    return {"a guest of the spa": sample("A guest of the spa", body)}


_ENTRY: Final = Operation(
    method="get",
    path="/hosted-payments/portal/{key}",
    name="showPortalLink",
    tag=Tag.SERVICE,
    summary="The link to a guest's own page",
    description="Shows a page with a button, because programs that make previews open links too.",
    parameters=(_KEY,),
    pages={
        200: "A page with a button that leads to the cards.",
        404: "The link is unknown, or its guest was erased.",
        410: "The link has expired.",
        **_PROBLEMS,
    },
)

_CARD: Final = Operation(
    method="get",
    path="/hosted-payments/portal/cards/{account_id}/{act}",
    name="showCardInPortal",
    tag=Tag.SERVICE,
    summary="What a change means, or the receipt of a card",
    description="Changes nothing.",
    parameters=(
        _VISIT,
        _ACCOUNT_ID,
        parameter(
            "act",
            "path",
            "`receipt`, or the change to ask about.",
            type="string",
            enum=[*_ASKED, _RECEIPT],
        ),
    ),
    pages={
        200: "The page.",
        303: "Redirects to the page with all cards, because the guest has no such card.",
        404: "There is no such page.",
        410: "The visit has ended.",
        **_PROBLEMS,
    },
)


@dataclass(frozen=True, kw_only=True)
class PortalResource:
    """Make links to guests' own pages, show these pages, and change cards there."""

    open_portal: OpenPortal
    read_portal_link: ReadPortalLink
    enter_portal: EnterPortal
    read_portal: ReadPortal
    change_card: ChangeCard
    replace_card: ReplaceCard
    limits: RateLimits
    links: HostedLinks
    formats: LocaleFormats
    clock: Clock
    wake_reconciler: Callable[[], None]

    @Operation(
        method="post",
        path=GUEST + "/portal-sessions",
        name="openPortal",
        tag=Tag.GUESTS,
        summary="Make a link to the guest's own page at a center",
        description="The guest sees, removes and replaces the cards there. At most 20 links can be "
        "made for a guest and a center in 24 hours.",
        parameters=(GUEST_WITH_CARD,),
        body_examples=_examples,
        calls=OpenPortal,
        logged=("guest_id",),
        refusals=(
            errors.InvalidCenterId(),
            errors.InvalidField("return_uri", EXPECTED_RETURN_URI),
            errors.InvalidField("locale", EXPECTED_LOCALE),
            *GUEST_REFUSALS,
            errors.PortalLimitReached(3600),
        ),
    )
    def open(
        self, req: falcon.Request, caller: Caller, guest_id: str, body: PortalSessionBody
    ) -> PortalSessionMade:
        """Make a link. It stops working if the access token in this request is revoked."""
        opened = self.open_portal(
            caller,
            access_token=sent_token(req) or "",
            guest_id=guest_id,
            center_id=body.center_id,
            return_uri=body.return_uri,
            locale=body.locale,
        )
        return PortalSessionMade(
            portal_uri=self.links.portal_uri(opened.secret), expires_at=opened.expires_at
        )

    @_ENTRY
    def show_entry(self, req: falcon.Request, resp: falcon.Response, key: str) -> None:
        """Show the page with the button that leads to the cards. Changes nothing."""
        portal = self.read_portal_link(key, accepted_by(req))
        # The request is counted after the key was found, because a stranger may try any number of
        # keys.
        self.limits.count_page_load("portal", key, req.remote_addr)
        self._show(req, resp, "portal_entry.html", portal, key)
        # The address contains the secret, which must not get into the log of a proxy.
        resp.set_header("Referrer-Policy", "strict-origin")

    @replace(
        _ENTRY,
        method="post",
        name="enterPortal",
        summary="The button with which a guest's browser enters the guest's own page",
        description="A cookie then identifies the browser for an hour. It does not give access to the API.",
        pages={**_ENTRY.pages, **_FORM_PROBLEMS},
    )
    def enter(self, req: falcon.Request, resp: falcon.Response, key: str) -> None:
        """Begin a visit, set its cookie, and redirect to the cards.

        The button works until the link expires. Each click on it begins another visit.
        """
        self.read_portal_link(key, ())
        self.limits.count_page_load("portal", key, req.remote_addr)
        self._require_form_of_page(req, key)
        cookie, seconds = self.enter_portal(key), int(VISIT_LIFETIME.total_seconds())
        self._cookies.set(resp, _COOKIE, cookie, seconds=seconds)
        redirect(resp, self.links.portal_page_uri)

    @Operation(
        method="get",
        path="/hosted-payments/portal",
        name="showPortal",
        tag=Tag.SERVICE,
        summary="The guest's own page",
        description="Shows the guest's cards at the center.",
        parameters=(
            _VISIT,
            parameter(
                f"__Host-{_DONE_COOKIE}",
                "cookie",
                "Set by `changeCardInPortal`, so that the page shows the result of a change once.",
                type="string",
            ),
        ),
        pages={200: "The page.", 410: "The visit has ended.", **_PROBLEMS},
    )
    def show(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Show the guest's cards. Does not call a PSP."""
        cookie, portal = self._visit(req)
        mark = self._cookies.get(req, _DONE_COOKIE)
        done = next((each for each in _DONE if _mark(each, cookie) == mark), None)
        outcome = done or portal.replacing
        said = outcome and f"portal.done.{outcome}"
        self._show(req, resp, "portal.html", portal, cookie, said=said)
        if mark is not None:
            self._cookies.set(resp, _DONE_COOKIE, "", seconds=-1)
        if portal.replacing is Replacing.PENDING:
            resp.set_header("Refresh", str(_RELOAD_SECONDS))

    @_CARD
    def show_card(
        self, req: falcon.Request, resp: falcon.Response, account_id: str, act: str
    ) -> None:
        """Show the receipt of a card, or a page that explains the change `act` before it is made.

        If the guest does not have the card, redirect to the page with all cards. Raises NotFound
        if there is no page for `act`.
        """
        if act not in (*_ASKED, _RECEIPT):
            raise NotFound
        cookie, portal = self._visit(req)
        card = next((each for each in portal.cards if each.account.account_id == account_id), None)
        if card is None:
            redirect(resp, self.links.portal_page_uri)
            return
        template = "portal_receipt.html" if act == _RECEIPT else "portal_change.html"
        self._show(req, resp, template, portal, cookie, card=card, act=act)

    @replace(
        _CARD,
        method="post",
        name="changeCardInPortal",
        summary="The buttons with which a guest changes a card",
        description="The shop receives an event. Sending a form twice has no further effect. "
        "`replace` starts a session and redirects to its link.",
        parameters=(
            _VISIT,
            _ACCOUNT_ID,
            parameter(
                "act",
                "path",
                "The change.",
                type="string",
                enum=[*CardChange, _REPLACE],
            ),
        ),
        pages={
            **_FORM_PROBLEMS,
            404: "There is no such change, or no such card.",
            410: "The visit has ended.",
            **_PROBLEMS,
        },
    )
    def change(self, req: falcon.Request, resp: falcon.Response, account_id: str, act: str) -> None:
        """Make the change `act` to a card, and redirect to the page with all cards.

        If the guest wants to replace the card, redirect to the link of a new session instead.
        """
        if act not in (*CardChange, _REPLACE):
            raise NotFound
        cookie, _ = self._visit(req)
        self._require_form_of_page(req, cookie)
        if act == _REPLACE:
            redirect(resp, self.replace_card(cookie, account_id))
            return
        changed = self.change_card(cookie, account_id, CardChange(act))
        self.wake_reconciler()
        if changed is not None:
            mark = _mark(_outcome(CardChange(act), changed), cookie)
            self._cookies.set(resp, _DONE_COOKIE, mark, seconds=_DONE_SECONDS)
        redirect(resp, self.links.portal_page_uri)

    @property
    def _cookies(self) -> Cookies:
        return Cookies(links=self.links)

    def _visit(self, req: falcon.Request) -> tuple[str, Portal]:
        cookie = self._cookies.get(req, _COOKIE) or ""
        portal = self.read_portal(cookie, accepted_by(req))
        self.limits.count_page_load("portal", cookie, req.remote_addr)
        return cookie, portal

    def _require_form_of_page(self, req: falcon.Request, secret: str) -> None:
        # Anybody with a link can compute the token of its form. A page of another site must not
        # make a guest's browser enter another guest's page, so the browser must state the origin.
        origin, site = req.get_header("Origin"), req.get_header("Sec-Fetch-Site")
        if origin != self.links.base_url and site != "same-origin":
            raise ClickedElsewhere
        require_form_of_page(req, self.links.base_url, secret)

    def _show(
        self,
        req: falcon.Request,
        resp: falcon.Response,
        template: str,
        portal: Portal,
        secret: str,
        **values: object,
    ) -> None:
        language, zone = portal.language, portal.settings.time_zone or "UTC"
        shared: Mapping[str, object] = {
            "portal": portal,
            "form_token": form_token(secret),
            "guest": portal.guest and MaskedGuest(portal.guest.full_name, portal.guest.email),
            "own_page": self.links.portal_page_uri,
            "now": self.clock.now(),
            "time": lambda at: self.formats.time(at, language, zone),
        }
        show_page(req, resp, template, None, shows=portal, language=language, **shared, **values)
        protect_page(resp, has_form=True)


def _mark(outcome: str, cookie: str) -> str:
    """Return the value of the cookie with the result of a change.

    `outcome` is the result, and `cookie` is the cookie of the visit. The value is a hash of both,
    so that it is only valid during the same visit.
    """
    return sha256(f"{outcome} {cookie}".encode(errors="surrogatepass")).hexdigest()


def _outcome(change: CardChange, changed: Account) -> str:
    if change is CardChange.DEFAULT:
        return "default"
    return "withdrawn" if changed.removed_at is None else "removed"
