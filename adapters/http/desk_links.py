"""The front desk: make links to its page, draw the QR code of a session's link, and show the page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Annotated, ClassVar, Final
from urllib.parse import quote

import falcon
import segno
from markupsafe import Markup

from adapters.catalogs import Catalog, catalog
from adapters.http.authentication import sent_token
from adapters.http.guests import GUEST_WITH_CARD
from adapters.http.hosted_payments import redirect
from adapters.http.operations import Operation, Tag, parameter
from adapters.http.page_forms import form_token, require_form_of_page
from adapters.http.problem_page import protect_page, show_page
from adapters.http.rate_limits import RateLimits
from adapters.http.requests import Query, RequestBody, text
from adapters.http.responses import Done, Uri, example
from adapters.http.sessions import SESSION
from adapters.thread_safe_types import prepare
from domain import errors
from domain.desk_links.cancel_at_desk import CancelAtDesk
from domain.desk_links.desk_link import MAX_LABEL_LENGTH
from domain.desk_links.make_desk_link import MakeDeskLink
from domain.desk_links.queries import Desk, ReadDesk, ReadLinkToSend
from domain.errors import ServiceUnavailable, TooManyRequests
from domain.fields import invalid_line
from domain.hosted_payments.link import HostedLinks
from domain.permissions import Caller

_OPEN_SESSION: Final = parameter(
    "token_id", "path", "The token of a session whose link works, from the response to add-card."
)
_SVG: Final = "image/svg+xml"
_WHITE: Final = "#fff"
"""The background of a QR code, even on a dark page."""
_PIXELS_A_MODULE: Final = 8
_SECONDS_UNTIL_RELOAD: Final = 60
"""After how many seconds a browser reloads a page about a temporary problem."""


class DeskLinkBody(RequestBody, frozen=True, kw_only=True):
    """The body of makeDeskLink. Unknown fields are ignored and never stored."""

    required: ClassVar[tuple[str, ...]] = ("label",)

    label: Annotated[object, text(MAX_LABEL_LENGTH, "Chair 3")] = None


class DeskLinkMade(Done, frozen=True, kw_only=True):
    """The response to makeDeskLink."""

    desk_uri: Annotated[
        Uri,
        example(
            "https://cards.example/hosted-payments/desk/Zk3VtT0mO2cW9yJ7b5h1QxA8sR4uE6nLpKfGdHjXvCw",
            "The address of the front desk's page. It is shown only here. Whoever has it can send "
            "the guest's link, cancel the session, and read the guest's name if you may.",
        ),
    ]


prepare(DeskLinkBody)

_PAGE: Final = Operation(
    method="get",
    path="/hosted-payments/desk/{key}",
    name="openDesk",
    tag=Tag.SERVICE,
    summary="The front desk's page of a session",
    description="`makeDeskLink` returns this address. The page acts as the caller that made the desk "
    "link, while that caller's token is valid.",
    parameters=(
        parameter(
            "key", "path", "The secret of the desk link.", type="string", examples=["Zk3VtT0mO2"]
        ),
        parameter("code", "query", "`shown` shows the QR code.", type="string", enum=["shown"]),
    ),
    pages={
        200: "The page.",
        403: "The token of the desk link is revoked or expired. Or another page sent the form.",
        404: "The desk link is unknown.",
        429: "More than 60 loads, or 60 cancellations, in a minute from one address for one desk link.",
        503: "Try again in a moment.",
        500: "A fault of the service.",
    },
)


@dataclass(frozen=True, kw_only=True)
class DeskResource:
    """Make desk links, draw the QR code of a session's link, and show the front desk's page."""

    make_desk_link: MakeDeskLink
    read_link_to_send: ReadLinkToSend
    read_desk: ReadDesk
    cancel_at_desk: CancelAtDesk
    limits: RateLimits
    links: HostedLinks
    wake_reconciler: Callable[[], None]

    @Operation(
        method="post",
        path=SESSION + "/desk-links",
        name="makeDeskLink",
        tag=Tag.SESSIONS,
        summary="Make a link to the front desk's page of a session",
        description="Open the link on a screen of your staff. From then on, the guest's link does "
        "not offer a card on file. A session can have 20 desk links. The caller must "
        "have started the session, or may read the guest.",
        parameters=(GUEST_WITH_CARD, _OPEN_SESSION),
        calls=MakeDeskLink,
        refusals=(
            invalid_line("label", max_length=MAX_LABEL_LENGTH),
            errors.SessionNotFound(),
            errors.SessionEnded(),
            errors.TooManyDeskLinks(),
        ),
    )
    def make(
        self, req: falcon.Request, caller: Caller, guest_id: str, token_id: str, body: DeskLinkBody
    ) -> DeskLinkMade:
        """Make a desk link.

        The link acts on behalf of the caller, as long as the caller's token is valid.
        """
        secret = self.make_desk_link(
            caller,
            access_token=sent_token(req) or "",
            guest_id=guest_id,
            token_id=token_id,
            label=body.label,
        )
        return DeskLinkMade(desk_uri=self.links.desk_uri(secret))

    @Operation(
        method="get",
        path=SESSION + "/qr.svg",
        name="readCode",
        tag=Tag.SESSIONS,
        summary="Read the QR code of a session's link",
        description="The caller must have started the session, or may read the guest.",
        parameters=(GUEST_WITH_CARD, _OPEN_SESSION),
        media_type=_SVG,
        calls=ReadLinkToSend,
        refusals=(errors.SessionNotFound(), errors.SessionEnded()),
    )
    def code(self, resp: falcon.Response, caller: Caller, guest_id: str, token_id: str) -> None:
        """Respond with the QR code of the session's link as an SVG image."""
        link = self.read_link_to_send(caller, guest_id=guest_id, token_id=token_id)
        image = BytesIO()
        _code_of(link).save(image, kind="svg", scale=_PIXELS_A_MODULE, light=_WHITE)
        resp.content_type = _SVG
        resp.data = image.getvalue()

    @_PAGE
    def show(self, req: falcon.Request, resp: falcon.Response, key: str) -> None:
        """Show the front desk's page. Does not call a PSP."""
        try:
            desk = self.read_desk(key)
            # The request is counted after the key was found, because a stranger may try any number
            # of keys.
            self.limits.count_page_load("desk", key, req.remote_addr)
        except (TooManyRequests, ServiceUnavailable):
            resp.set_header("Refresh", str(_SECONDS_UNTIL_RELOAD))
            raise
        link = desk.link
        show_page(
            req,
            resp,
            "desk.html",
            None,
            desk=desk,
            shows=desk,
            form_token=form_token(key),
            code=_drawn(link) if link and Query(req).only("code") == "shown" else None,
            **(_messages(desk, link, catalog(desk.language)) if link else {}),
        )
        protect_page(resp, has_form=True, has_script=True)
        # The address contains the secret, which must not get into the log of a proxy.
        resp.set_header("Referrer-Policy", "strict-origin")

    @replace(
        _PAGE,
        method="post",
        name="cancelAtDesk",
        summary="The button with which staff cancel the session",
        description="The session is cancelled as by `cancelSession`. A form that is sent twice "
        "changes nothing.",
        pages={
            **_PAGE.pages,
            303: "Redirects to the page.",
            400: "Malformed request.",
            413: "The form is longer than 16 KiB.",
        },
    )
    def cancel(self, req: falcon.Request, resp: falcon.Response, key: str) -> None:
        """Cancel the session, and redirect to the front desk's page."""
        self.read_desk(key)
        # Loads of the page have a separate limit, so that they do not use up this limit.
        self.limits.count_page_load("desk cancellation", key, req.remote_addr)
        require_form_of_page(req, self.links.base_url, key)
        self.cancel_at_desk(key)
        self.wake_reconciler()
        redirect(resp, self.links.desk_uri(key))


def _messages(desk: Desk, link: str, t: Catalog) -> dict[str, str]:
    """Return the `sms:` and `mailto:` links with which the desk's device starts a message.

    The message contains the session's link and a text in the guest's language.
    """
    body = quote(t.text("desk.message", center=desk.center_name, link=link))
    subject = quote(t.text("form.title", center=desk.center_name))
    to = quote((desk.guest and desk.guest.email) or "", safe="@")
    # Without `?`, Android ignores the text; without `&`, older iPhones do.
    return {"sms": f"sms:?&body={body}", "mailto": f"mailto:{to}?subject={subject}&body={body}"}


def _code_of(link: str) -> segno.QRCode:
    return segno.make_qr(link, error="m")


def _drawn(link: str) -> Markup:
    """Return the QR code of a link as SVG to embed in a page. The page sets the size."""
    svg = _code_of(link).svg_inline(light=_WHITE, omitsize=True)
    return Markup(svg)  # noqa: S704 - safe, because segno draws numbers only
