"""A small shop that keeps its guests' cards on file. Copy from it what you need.

`CardApi` calls the HTTP API, `Shop` shows the pages. The access token stays on the server: the
browser only gets pages, and the link to the hosted page.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import quote, urlsplit

import falcon
from jinja2 import Environment, FileSystemLoader

COOKIE: Final = "card_session"
LOOK_AGAIN_SECONDS: Final = 3
MAX_LOOKS: Final = 5
"""How often the page looks whether the card has arrived, without the guest doing anything."""

_HERE: Final = Path(__file__).parent
_TEMPLATES: Final = Environment(loader=FileSystemLoader(_HERE / "templates"), autoescape=True)
_IN_PLAIN_WORDS: Final = {
    "Payment method already exists": "It is on file already, or this center keeps one card for "
    "each guest. To add another one, remove the card on file first.",
    "Transaction failed due to an incorrect billing address. Please update the postal code and "
    "try again.": "Your bank does not know this billing address. Check the postal code.",
    "Payment configuration not done": "This center does not take cards just now.",
    "Payment account not found": "It has been removed already.",
}
"""What a guest reads for a message of the API (docs/http-api.md, section 7)."""

Json: TypeAlias = dict[str, Any]  # JSON from the API; docs/http-api.md describes the fields


class ApiProblem(Exception):
    """The API refused a request, or cannot be reached: an HTTP status and its message."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        self.message = message
        super().__init__(message)


class CardApi:
    """Calls the API. Every method raises ApiProblem."""

    def __init__(self, address: str, token: str) -> None:
        """Take the API's host and port, and an access token."""
        self._address = address
        self._token = token

    def cards(self, guest_id: str) -> list[Json]:
        """List a guest's cards: the first 100, which is more than a guest has."""
        cards: list[Json] = self._call("GET", f"/{guest_id}/accounts?size=100")["accounts"]
        return cards

    def add_card(self, guest_id: str, request: Json) -> Json:
        """Start a session in which a guest adds a card. Return its link and its token."""
        return self._call("POST", f"/{guest_id}/accounts", request)

    def session(self, guest_id: str, token_id: str) -> Json:
        """Read a session: its status and, once it has failed, why."""
        return self._call("GET", f"/{guest_id}/accounts/sessions/{quote(token_id, safe='')}")

    def remove_card(self, guest_id: str, account_id: str) -> None:
        """Remove a card."""
        self._call("DELETE", f"/{guest_id}/accounts/{quote(account_id, safe='')}")

    def _call(self, method: str, path: str, request: Json | None = None) -> Json:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        body = None if request is None else json.dumps(request)
        connection = HTTPConnection(self._address, timeout=10)
        try:
            connection.request(method, f"/api/v1/guests{path}", body, headers)
            response = connection.getresponse()
            answer: Json = json.load(response)
        except (OSError, HTTPException, ValueError) as error:
            raise ApiProblem(503, "The card service cannot be reached just now.") from error
        finally:
            connection.close()
        if response.status != 200:
            raise ApiProblem(response.status, (answer.get("error") or answer)["message"])
        return answer


@dataclass(frozen=True, kw_only=True)
class ShopGuest:
    """A guest in the shop's own records; `billing_info` is as the API takes it."""

    id: str
    name: str
    billing_info: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class ShopCenter:
    """A center that guests may add cards for."""

    id: str
    name: str
    about: str


class Shop:
    """The pages."""

    def __init__(
        self,
        api: CardApi,
        *,
        origin: str,
        payments_origin: str,
        guests: Sequence[ShopGuest],
        centers: Sequence[ShopCenter],
    ) -> None:
        """Take the shop's own address as `origin`, and the one of the API's links."""
        self._api = api
        self._origin = origin
        self._payments_origin = payments_origin
        self._guests = {guest.id: guest for guest in guests}
        self._centers = {center.id: center for center in centers}

    def app(self) -> falcon.App[falcon.Request, falcon.Response]:
        """Return the WSGI application."""
        app: falcon.App[falcon.Request, falcon.Response] = falcon.App(middleware=[self])
        app.add_route("/", self)
        app.add_route("/guests/{guest_id}", self, suffix="guest")
        app.add_route("/guests/{guest_id}/back", self, suffix="back")
        app.add_route("/guests/{guest_id}/centers/{center_id}", self, suffix="center")
        app.add_route("/guests/{guest_id}/cards/{account_id}", self, suffix="card")
        app.add_static_route("/static", _HERE / "static")
        app.add_error_handler(ApiProblem, self.on_api_problem)
        app.set_error_serializer(self.on_http_error)
        return app

    def process_request(self, req: falcon.Request, _: falcon.Response) -> None:
        """Refuse a form from another site; redirect from another host name, such as localhost."""
        if req.netloc != urlsplit(self._origin).netloc:
            raise falcon.HTTPSeeOther(self._origin)
        if req.method == "POST" and req.get_header("Origin") != self._origin:
            raise falcon.HTTPForbidden(title="This form was not sent from here")

    def process_response(self, _: object, resp: falcon.Response, *__: object) -> None:
        """Set the security headers."""
        # Browsers apply `form-action` also to where the response to a form redirects.
        resp.set_header(
            "Content-Security-Policy",
            "default-src 'none'; style-src 'self'; img-src 'self'; frame-ancestors 'none'; "
            f"base-uri 'none'; form-action 'self' {self._payments_origin}",
        )
        resp.set_header("X-Content-Type-Options", "nosniff")
        resp.set_header("Cache-Control", "no-store")
        # Without a referrer, browsers send a form with the origin "null".
        resp.set_header("Referrer-Policy", "same-origin")

    def on_get(self, _: falcon.Request, resp: falcon.Response) -> None:
        """List the guests."""
        self._show(resp, "guests.html", guests=self._guests.values())

    def on_get_guest(self, req: falcon.Request, resp: falcon.Response, guest_id: str) -> None:
        """List a guest's cards, each with a button to remove it, and a button for each center."""
        removed = ("status", "Card removed", "It can no longer be charged.")
        self._show_guest(resp, guest_id, removed if "removed" in req.params else None)

    def on_post_center(
        self, _: falcon.Request, resp: falcon.Response, guest_id: str, center_id: str
    ) -> None:
        """Start to add a card, and redirect the browser to the hosted page."""
        guest = self._guest(guest_id)
        request = {
            "center_id": center_id,
            "redirect_uri": f"{self._origin}/guests/{guest.id}/back",
            # Fills in the hosted page, where the center verifies the billing address.
            "billing_info": guest.billing_info,
        }
        session = self._api.add_card(guest.id, request)
        resp.set_cookie(
            COOKIE,
            session["token_id"],
            path=f"/guests/{guest.id}",
            secure=self._origin.startswith("https:"),
            same_site="Lax",
        )
        raise falcon.HTTPSeeOther(session["hosted_payment_uri"])

    def on_get_back(self, req: falcon.Request, resp: falcon.Response, guest_id: str) -> None:
        """Show the result when the browser comes back. Only the session tells what it is."""
        guest = self._guest(guest_id)
        token_id = req.cookies.get(COOKIE)
        if token_id is None:
            raise falcon.HTTPSeeOther(f"/guests/{guest.id}")
        session = self._api.session(guest.id, token_id)
        look = req.get_param_as_int("look", default=1)
        if session["status"] == "open" and look < MAX_LOOKS:
            again = f"{LOOK_AGAIN_SECONDS}; url=/guests/{guest.id}/back?look={look + 1}"
            resp.set_header("Refresh", again)
        self._show_guest(resp, guest.id, _notice(session))

    def on_post_card(
        self, _: falcon.Request, __: falcon.Response, guest_id: str, account_id: str
    ) -> None:
        """Remove a card."""
        guest = self._guest(guest_id)
        self._api.remove_card(guest.id, account_id)
        raise falcon.HTTPSeeOther(f"/guests/{guest.id}?removed=1")

    def on_api_problem(
        self, _: falcon.Request, resp: falcon.Response, problem: ApiProblem, __: object
    ) -> None:
        """Show why the API did not do it."""
        resp.status = problem.status
        text = _in_plain_words(problem.message)
        self._show(resp, "problem.html", title="This could not be done", text=text)

    def on_http_error(
        self, _: falcon.Request, resp: falcon.Response, error: falcon.HTTPError
    ) -> None:
        """Show a page for an error of the shop itself, such as 404."""
        self._show(resp, "problem.html", title=error.title, text="Nothing was changed.")

    def _guest(self, guest_id: str) -> ShopGuest:
        if guest_id not in self._guests:
            raise falcon.HTTPNotFound
        return self._guests[guest_id]

    def _show_guest(
        self, resp: falcon.Response, guest_id: str, notice: tuple[str, str, str] | None
    ) -> None:
        guest = self._guest(guest_id)
        cards = self._api.cards(guest.id)
        self._show(
            resp, "guest.html", guest=guest, centers=self._centers, cards=cards, notice=notice
        )

    def _show(self, resp: falcon.Response, template: str, **values: object) -> None:
        resp.content_type = falcon.MEDIA_HTML
        resp.text = _TEMPLATES.get_template(template).render(values)


def _notice(session: Json) -> tuple[str, str, str]:
    """Return the ARIA role, the title and the text of the notice about a session."""
    match session["status"]:
        case "completed":
            return ("status", "Card added", "It is kept on file for your next visit.")
        case "open":
            return (
                "status",
                "No card has arrived yet",
                "If you entered one, it is on its way: look again in a moment.",
            )
        case "failed":
            reason = _in_plain_words(session["failure"]["message"])
        case _:
            reason = "The page for it has expired. Please add it again."
    return ("alert", "The card could not be saved", reason)


def _in_plain_words(message: str) -> str:
    return _IN_PLAIN_WORDS.get(message, message)
