"""The pages of the demo shop."""

from __future__ import annotations

import hmac
import re
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final, Literal
from urllib.parse import parse_qsl, urlsplit
from uuid import UUID

import falcon
import structlog
from jinja2 import Environment, PackageLoader, StrictUndefined

from entrypoints.demo_shop.card_api import ApiProblem, CardApi, Session

MAX_FORM_BYTES: Final = 16 * 1024
MAX_VISITS: Final = 10_000
LOOK_AGAIN_SECONDS: Final = 3
MAX_LOOKS: Final = 5
"""How often a page looks by itself whether the card has arrived."""

COOKIE: Final = "demo_shop"
ADDRESS_FIELDS: Final = ("address", "zipcode", "country_code")
SAMPLE_ADDRESS: Final = {"address": "1 Main Street", "zipcode": "98101", "country_code": "US"}
COUNTRIES: Final = {
    "CA": "Canada",
    "DE": "Germany",
    "ES": "Spain",
    "FR": "France",
    "GB": "United Kingdom",
    "JP": "Japan",
    "US": "United States",
}

_FAULTS: Final[Mapping[int, tuple[str, str]]] = {
    HTTPStatus.FORBIDDEN: (
        "This form was not sent from here",
        "Nothing was changed. Open the page again and send the form from there.",
    ),
    HTTPStatus.NOT_FOUND: ("There is no such page", "Check the address, or start again."),
}
_OTHER_FAULT: Final = ("This cannot be done", "Nothing was changed. Go back, and start again.")

_NOT_SAVED: Final = "The card could not be saved"
_WRONG_ADDRESS: Final = (
    "Transaction failed due to an incorrect billing address. "
    "Please update the postal code and try again."
)
_IN_PLAIN_WORDS: Final[Mapping[str, str]] = {
    "Payment method already exists": (
        "It is on file already, or this center keeps one card for each guest. To add another one, "
        "remove the card on file first."
    ),
    _WRONG_ADDRESS: (
        "The billing address could not be confirmed. Check the postal code and the country, then "
        "add the card again."
    ),
    "Payment configuration not done": "This center does not take cards just now.",
    "Payment account not found": "It has been removed already.",
}
"""What a guest reads for a message of the API (its sections 7.1 and 7.4)."""
_BILLING_FIELD: Final = re.compile(r"billing_info\.(\w+) is (?:required|invalid)")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShopGuest:
    """A guest, as the shop knows them."""

    id: str
    name: str
    email: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShopCenter:
    """A center that the shop sells for; some need the guest's billing address."""

    id: str
    name: str
    about: str
    needs_address: bool


def create_shop(
    *,
    api: CardApi,
    origin: str,
    payments_origin: str,
    guests: Sequence[ShopGuest],
    centers: Sequence[ShopCenter],
) -> falcon.App[falcon.Request, falcon.Response]:
    """Give the shop's WSGI application.

    `origin` is the shop's own address, `payments_origin` where guests type their cards.
    """
    app: falcon.App[falcon.Request, falcon.Response] = falcon.App(
        middleware=[_Guard(origin, payments_origin)]
    )
    forms = _Forms(origin)
    pages = _Pages(forms, centers)
    app.add_error_handler(Exception, pages.on_fault)
    app.add_error_handler(falcon.HTTPError, pages.on_http_error)
    app.add_error_handler(ApiProblem, pages.on_api_problem)
    app.add_route("/", _GuestList(pages, guests))
    guest = _GuestPage(api, pages, forms, guests, centers, origin)
    app.add_route("/guests/{guest_id}", guest)
    app.add_route("/guests/{guest_id}/cards/{account_id:uuid}", guest, suffix="card")
    app.add_route("/centers/{center_id}/products", _ProductList(api, pages, centers))
    app.add_static_route("/static", Path(__file__).parent / "static")
    return app


class _Guard:
    """Keeps visitors on the shop's own address, and puts the headers on every answer."""

    def __init__(self, origin: str, payments_origin: str) -> None:
        self._origin = origin
        self._address = urlsplit(origin).netloc
        # form-action also rules where a form's answer redirects to: the hosted page.
        self._policy = (
            "default-src 'none'; style-src 'self'; img-src 'self'; "
            f"form-action 'self' {payments_origin}; frame-ancestors 'none'; base-uri 'none'"
        )

    def process_request(self, req: falcon.Request, _: falcon.Response) -> None:
        """Send a visitor who came by another name, such as localhost, to the one in use."""
        if req.netloc != self._address:
            raise falcon.HTTPSeeOther(self._origin + "/")

    def process_response(
        self, _: falcon.Request, resp: falcon.Response, __: object, ___: bool
    ) -> None:
        """Say to the browser what the page may load, and that it is not kept."""
        resp.set_header("Content-Security-Policy", self._policy)
        resp.set_header("X-Content-Type-Options", "nosniff")
        resp.set_header("Cache-Control", "no-store")
        resp.set_header("Referrer-Policy", "same-origin")


class _Forms:
    """Takes only forms that this shop has shown to the same browser."""

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._key = secrets.token_bytes(32)

    def token(self, req: falcon.Request, resp: falcon.Response) -> str:
        """Give the token that the forms of a page carry; the browser gets the cookie to it."""
        visitor = req.cookies.get(COOKIE)
        if not visitor:
            visitor = secrets.token_urlsafe(16)
            resp.set_cookie(COOKIE, visitor, secure=False, same_site="Lax", path="/")
        return self._token_of(visitor)

    def read(self, req: falcon.Request) -> Mapping[str, str]:
        """Read a form. Raises HTTPForbidden or HTTPContentTooLarge."""
        if (req.content_length or 0) > MAX_FORM_BYTES:
            raise falcon.HTTPContentTooLarge
        body = req.bounded_stream.read(MAX_FORM_BYTES).decode(errors="replace")
        typed = dict(parse_qsl(body, keep_blank_values=True))
        visitor = req.cookies.get(COOKIE, "")
        sent = typed.get("form_token", "").encode()
        if (
            not visitor
            or req.get_header("Origin") not in (None, self._origin)
            or not hmac.compare_digest(sent, self._token_of(visitor).encode())
        ):
            raise falcon.HTTPForbidden
        return typed

    def _token_of(self, visitor: str) -> str:
        return hmac.digest(self._key, visitor.encode(), "sha256").hex()


class _Pages:
    """Fills the templates in."""

    def __init__(self, forms: _Forms, centers: Sequence[ShopCenter]) -> None:
        self._forms = forms
        self._centers = centers
        self._templates = Environment(
            loader=PackageLoader("entrypoints.demo_shop"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )

    def show(
        self, req: falcon.Request, resp: falcon.Response, template: str, **values: object
    ) -> None:
        """Answer with a page."""
        resp.content_type = falcon.MEDIA_HTML
        resp.text = self._templates.get_template(template).render(
            centers=self._centers, form_token=self._forms.token(req, resp), **values
        )

    def on_api_problem(
        self, req: falcon.Request, resp: falcon.Response, problem: ApiProblem, _: object
    ) -> None:
        """Show what the API said."""
        resp.status = problem.status
        self._show_problem(req, resp, "The card service could not do this", problem.message)

    def on_http_error(
        self, req: falcon.Request, resp: falcon.Response, error: falcon.HTTPError, _: object
    ) -> None:
        """Show why there is no such page, or why a form was not taken."""
        resp.status = error.status_code
        title, text = _FAULTS.get(error.status_code, _OTHER_FAULT)
        self._show_problem(req, resp, title, text)

    def on_fault(
        self, req: falcon.Request, resp: falcon.Response, fault: Exception, _: object
    ) -> None:
        """Show that the fault is the shop's, and log where it came from."""
        log.error("demo_shop_fault", exc_info=fault)
        resp.status = HTTPStatus.INTERNAL_SERVER_ERROR
        self._show_problem(req, resp, "Something went wrong", "The fault is ours. Try again.")

    def _show_problem(
        self, req: falcon.Request, resp: falcon.Response, title: str, text: str
    ) -> None:
        self.show(req, resp, "problem.html", title=title, text=text)


@dataclass(frozen=True, slots=True)
class _GuestList:
    pages: _Pages
    guests: Sequence[ShopGuest]

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Show who can be chosen."""
        self.pages.show(req, resp, "guests.html", guests=self.guests)


@dataclass(frozen=True, slots=True)
class _ProductList:
    api: CardApi
    pages: _Pages
    centers: Sequence[ShopCenter]

    def on_get(self, req: falcon.Request, resp: falcon.Response, center_id: str) -> None:
        """Show a page of what a center sells."""
        center = next((each for each in self.centers if each.id == center_id), None)
        if center is None:
            raise falcon.HTTPNotFound
        products = self.api.products(center.id, page=req.get_param("page") or "1")
        self.pages.show(req, resp, "products.html", center=center, products=products)


@dataclass(frozen=True, slots=True)
class _Notice:
    """What a guest is told at the top of the page."""

    kind: Literal["good", "waiting", "bad"]
    title: str
    text: str


class _GuestPage:
    """A guest's cards, and the forms that add and remove one."""

    def __init__(
        self,
        api: CardApi,
        pages: _Pages,
        forms: _Forms,
        guests: Sequence[ShopGuest],
        centers: Sequence[ShopCenter],
        origin: str,
    ) -> None:
        self._api = api
        self._pages = pages
        self._forms = forms
        self._guests = {guest.id: guest for guest in guests}
        self._centers = {center.id: center for center in centers}
        self._origin = origin
        self._visits = _Visits()

    def on_get(self, req: falcon.Request, resp: falcon.Response, guest_id: str) -> None:
        """Show the guest's cards, and what has become of the one that was being added."""
        guest = self._guest(guest_id)
        visit = req.get_param("visit") or ""
        look = req.get_param_as_int("look", default=1)
        token_id = self._visits.token_id(visit)
        notice = None
        if token_id is not None:
            session = self._api.session(guest.id, token_id)
            notice = _notice_of(session)
            if session.status == "open" and look < MAX_LOOKS:
                again = f"/guests/{guest.id}?visit={visit}&look={look + 1}"
                resp.set_header("Refresh", f"{LOOK_AGAIN_SECONDS}; url={again}")
        elif req.get_param("removed"):
            notice = _Notice("good", "Card removed", "It can no longer be charged.")
        self._show(req, resp, guest, notice, visit=visit)

    def on_post(self, req: falcon.Request, resp: falcon.Response, guest_id: str) -> None:
        """Start adding a card, and send the browser to the page that takes it."""
        guest = self._guest(guest_id)
        form = self._forms.read(req)
        address = {name: form[name] for name in ADDRESS_FIELDS if name in form}
        visit = secrets.token_urlsafe(16)
        try:
            started = self._api.add_card(
                guest.id,
                {
                    "center_id": form.get("center_id"),
                    "redirect_uri": f"{self._origin}/guests/{guest.id}?visit={visit}",
                    "source": 5 if form.get("source") == "5" else 1,
                    "billing_info": address or None,
                },
            )
        except ApiProblem as problem:
            resp.status = problem.status
            notice = _Notice("bad", _NOT_SAVED, _reason(problem.message))
            self._show(
                req,
                resp,
                guest,
                notice,
                address=address,
                wrong_field=(form.get("center_id", ""), _wrong_field(problem.message)),
            )
            return
        self._visits.remember(visit, started.token_id)
        raise falcon.HTTPSeeOther(started.hosted_payment_uri)

    def on_post_card(
        self, req: falcon.Request, resp: falcon.Response, guest_id: str, account_id: UUID
    ) -> None:
        """Remove a card."""
        guest = self._guest(guest_id)
        self._forms.read(req)
        try:
            self._api.remove_card(guest.id, str(account_id))
        except ApiProblem as problem:
            resp.status = problem.status
            notice = _Notice("bad", "The card could not be removed", _reason(problem.message))
            self._show(req, resp, guest, notice)
            return
        raise falcon.HTTPSeeOther(f"/guests/{guest.id}?removed=1")

    def _guest(self, guest_id: str) -> ShopGuest:
        guest = self._guests.get(guest_id)
        if guest is None:
            raise falcon.HTTPNotFound
        return guest

    def _show(
        self,
        req: falcon.Request,
        resp: falcon.Response,
        guest: ShopGuest,
        notice: _Notice | None,
        *,
        visit: str = "",
        address: Mapping[str, str] = SAMPLE_ADDRESS,
        wrong_field: tuple[str, str] = ("", ""),
    ) -> None:
        """Show the page. `wrong_field` names a center and the field of its form to correct."""
        self._pages.show(
            req,
            resp,
            "guest.html",
            guest=guest,
            cards=self._api.cards(guest.id, page=req.get_param("page") or "1"),
            center_names={center.id: center.name for center in self._centers.values()},
            notice=notice,
            visit=visit,
            address={**SAMPLE_ADDRESS, **address},
            wrong_field=wrong_field,
            countries=COUNTRIES,
        )


def _reason(message: str) -> str:
    """Say in plain words why the API refused something."""
    if _BILLING_FIELD.fullmatch(message):
        return "A part of the billing address is missing or cannot be right. Please correct it."
    return _IN_PLAIN_WORDS.get(message, "This cannot be done just now. Please try again later.")


def _wrong_field(message: str) -> str:
    """Give the field of the address form that a refusal is about, or nothing."""
    about_field = _BILLING_FIELD.fullmatch(message)
    if about_field:
        return about_field[1]
    return "zipcode" if message == _WRONG_ADDRESS else ""


def _notice_of(session: Session) -> _Notice:
    match session.status:
        case "completed":
            return _Notice("good", "Card added", "It is kept on file for your next visit.")
        case "failed":
            text = _reason(session.failure.message if session.failure else "")
            return _Notice("bad", _NOT_SAVED, text)
        case "expired":
            return _Notice("bad", _NOT_SAVED, "The page for it has expired. Please add it again.")
        case "open":
            return _Notice(
                "waiting",
                "No card has arrived yet",
                "If you entered one, it is still on its way: look again in a moment. If you went "
                "back without one, nothing was added.",
            )


class _Visits:
    """Which session a return address of ours stands for. The oldest are forgotten."""

    def __init__(self) -> None:
        self._token_ids: dict[str, str] = {}
        self._lock = threading.Lock()

    def remember(self, visit: str, token_id: str) -> None:
        """Have `visit` stand for a session."""
        with self._lock:
            self._token_ids[visit] = token_id
            while len(self._token_ids) > MAX_VISITS:
                del self._token_ids[next(iter(self._token_ids))]

    def token_id(self, visit: str) -> str | None:
        """Give the session that `visit` stands for, or None."""
        return self._token_ids.get(visit)
