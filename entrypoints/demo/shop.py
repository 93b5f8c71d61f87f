"""A small shop that keeps its guests' cards on file. Copy from it what you need.

`CardApi` calls the HTTP API, `Shop` shows the pages and receives events. The access token and the
secret stay on the server: the browser only gets pages, and the link to the hosted page.
docs/integrating.md explains each step.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import quote, urlsplit
from uuid import uuid4

import falcon
from jinja2 import Environment, FileSystemLoader

from entrypoints.demo.events import verified_event

COOKIE: Final = "card_session"
REMOVED: Final = "card_removed"
"""A cookie, because anybody can make a link that ends in `?removed=1`."""
EVENTS: Final = "/events"
LOOK_AGAIN_SECONDS: Final = 3
MAX_LOOKS: Final = 20
"""How often the page looks by itself: for a minute, as docs/integrating.md says."""

_HERE: Final = Path(__file__).parent
_TEMPLATES: Final = Environment(loader=FileSystemLoader(_HERE / "templates"), autoescape=True)
_IN_PLAIN_WORDS: Final = {
    "payment_method_already_exists": "It is on file already, or this center keeps one card for "
    "each guest. To add another one, remove the card on file first.",
    "incorrect_billing_address": "Your bank does not know this billing address. Check the postal "
    "code.",
    "payment_configuration_not_done": "This center does not take cards just now.",
    "payment_account_not_found": "It has been removed already.",
    "card_limit_reached": "Too many cards were tried. Please try again later.",
    "invalid_field": "Check the name and the email address.",
}
"""What a guest reads for a type of error (docs/integrating.md)."""

Json: TypeAlias = dict[str, Any]  # JSON from the API; docs/http-api.md describes the fields


class ApiProblem(Exception):
    """The API refused a request, or cannot be reached: the HTTP status; message and type."""

    def __init__(self, status: int, error: Json) -> None:
        self.status = status
        self.error = error
        super().__init__(error["message"])


class CardApi:
    """Calls the API. Every method raises ApiProblem."""

    def __init__(self, address: str, token: str) -> None:
        """Take the API's host and port, and an access token."""
        self._address = address
        self._token = token

    def centers(self) -> dict[str, Json]:
        """Return the first 100 centers by their ids."""
        centers = self._call("GET", "/v1/centers?size=100")["centers"]
        return {center["id"]: center for center in centers}

    def guest(self, guest_id: str) -> Json:
        """Read a guest."""
        return self._call("GET", _path(guest_id))

    def put_guest(self, guest_id: str, guest: Json) -> None:
        """Create a guest, or change one: the first and last name, and the email."""
        self._call("PUT", _path(guest_id), guest)

    def cards(self, guest_id: str) -> list[Json]:
        """List a guest's cards: the first 100, which is more than a guest has."""
        cards: list[Json] = self._call("GET", _path(guest_id, "/accounts?size=100"))["accounts"]
        return cards

    def add_card(self, guest_id: str, request: Json, key: str) -> Json:
        """Start a session in which a guest adds a card. Return its link and its token.

        May be repeated: the same request under the same key returns the same session.
        """
        return self._call("POST", _path(guest_id, "/accounts"), request, key)

    def session(self, guest_id: str, token_id: str) -> Json:
        """Read a session: its status, what the guest did last and, once it has failed, why."""
        return self._call("GET", _path(guest_id, "/accounts/sessions/", token_id))

    def remove_card(self, guest_id: str, account_id: str) -> None:
        """Remove a card."""
        self._call("DELETE", _path(guest_id, "/accounts/", account_id))

    def _call(self, method: str, path: str, request: Json | None = None, key: str = "") -> Json:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        if key:
            headers["Idempotency-Key"] = key
        body = None if request is None else json.dumps(request)
        connection = HTTPConnection(self._address, timeout=10)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            answer: Json = json.load(response)
        except (OSError, HTTPException, ValueError) as error:
            message = "The card service cannot be reached just now."
            raise ApiProblem(503, {"type": "unreachable", "message": message}) from error
        finally:
            connection.close()
        if response.status != 200:
            kind = {"type": response.getheader("Error-Type")}
            raise ApiProblem(response.status, {**(answer.get("error") or answer), **kind})
        return answer


class Shop:
    """The pages, and the address that events are sent to.

    A real shop knows its guest from a login, and keeps sessions and events in a database. This one
    believes the address, and keeps events until it stops.
    """

    def __init__(
        self,
        api: CardApi,
        *,
        secret: str,
        origin: str,
        payments_origin: str,
        guests: Mapping[str, str],
        address: Mapping[str, str],
    ) -> None:
        """Take the secret that signs events, the shop's own address and that of the API's links.

        `guests` has the names of the first guests by their ids. All live at `address`.
        """
        self._api = api
        self._secret = secret
        self._origin = origin
        self._payments_origin = payments_origin
        self._guests = dict(guests)
        self._address = address
        self._events: dict[str, Json] = {}

    def app(self) -> falcon.App[falcon.Request, falcon.Response]:
        """Return the WSGI application."""
        app: falcon.App[falcon.Request, falcon.Response] = falcon.App(middleware=[self])
        app.add_route("/", self)
        app.add_route(EVENTS, self, suffix="event")
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
        is_form = req.method == "POST" and req.path != EVENTS
        if is_form and req.get_header("Origin") != self._origin:
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
        """List the guests, with a form for a new one."""
        self._show(resp, "guests.html", guests=self._guests)

    def on_post(self, req: falcon.Request, _: falcon.Response) -> None:
        """Create a guest, under an id of the shop's own."""
        form, guest_id = req.get_media(), str(uuid4())
        names = {field: form.get(field) for field in ("first_name", "last_name", "email")}
        self._api.put_guest(guest_id, names)
        self._guests[guest_id] = f"{names['first_name']} {names['last_name']}"
        raise falcon.HTTPSeeOther(f"/guests/{guest_id}")

    def on_post_event(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Verify an event and keep it, each once: a repeated one has the same id."""
        try:
            event = verified_event(self._secret, req.headers_lower, req.bounded_stream.read())
        except ValueError:
            raise falcon.HTTPBadRequest(title="This event is not signed as it should") from None
        self._events[req.headers_lower["webhook-id"]] = event
        resp.status = falcon.HTTP_204

    def on_get_guest(self, req: falcon.Request, resp: falcon.Response, guest_id: str) -> None:
        """List a guest's cards, each with a button to remove it, and a button for each center."""
        notice = None
        if REMOVED in req.cookies:
            notice = ("status", "Card removed", "It can no longer be charged.")
            resp.unset_cookie(REMOVED, path=f"/guests/{guest_id}")
        self._show_guest(resp, guest_id, notice)

    def on_post_center(
        self, req: falcon.Request, resp: falcon.Response, guest_id: str, center_id: str
    ) -> None:
        """Start to add a card, and redirect the browser to the hosted page."""
        request = {
            "center_id": center_id,
            "redirect_uri": f"{self._origin}/guests/{guest_id}/back",
            # Fills in the hosted page, where the center verifies the billing address.
            "billing_info": self._address,
        }
        # The key was made with the form, so a form that is sent twice starts one session.
        session = self._api.add_card(guest_id, request, str(req.get_media().get("key", "")))
        self._set_cookie(resp, COOKIE, session["token_id"], guest_id)
        raise falcon.HTTPSeeOther(session["hosted_payment_uri"])

    def on_get_back(self, req: falcon.Request, resp: falcon.Response, guest_id: str) -> None:
        """Show the result when the browser comes back. That it came back proves nothing."""
        token_id = req.cookies.get(COOKIE)
        if token_id is None:
            raise falcon.HTTPSeeOther(f"/guests/{guest_id}")
        session = self._api.session(guest_id, token_id)
        look = req.get_param_as_int("look", default=1)
        if session["status"] == "open":
            is_to_come = session["progress"] == "returned"
        else:
            is_to_come = all(e["data"]["token_id"] != token_id for e in [*self._events.values()])
        if is_to_come and look < MAX_LOOKS:
            again = f"{LOOK_AGAIN_SECONDS}; url=/guests/{guest_id}/back?look={look + 1}"
            resp.set_header("Refresh", again)
        self._show_guest(resp, guest_id, _notice(session))

    def on_post_card(
        self, _: falcon.Request, resp: falcon.Response, guest_id: str, account_id: str
    ) -> None:
        """Remove a card."""
        self._api.remove_card(guest_id, account_id)
        self._set_cookie(resp, REMOVED, "1", guest_id)
        # It may hold the session of this card, which is not on file any more.
        resp.unset_cookie(COOKIE, path=f"/guests/{guest_id}")
        raise falcon.HTTPSeeOther(f"/guests/{guest_id}")

    def on_api_problem(
        self, _: falcon.Request, resp: falcon.Response, problem: ApiProblem, __: object
    ) -> None:
        """Show why the API did not do it."""
        resp.status = problem.status
        text = _in_plain_words(problem.error)
        self._show(resp, "problem.html", title="This could not be done", text=text)

    def on_http_error(
        self, _: falcon.Request, resp: falcon.Response, error: falcon.HTTPError
    ) -> None:
        """Show a page for an error of the shop itself, such as 404."""
        self._show(resp, "problem.html", title=error.title, text="Nothing was changed.")

    def _set_cookie(self, resp: falcon.Response, name: str, value: str, guest_id: str) -> None:
        is_https = self._origin.startswith("https:")
        resp.set_cookie(name, value, path=f"/guests/{guest_id}", secure=is_https, same_site="Lax")

    def _show_guest(
        self, resp: falcon.Response, guest_id: str, notice: tuple[str, str, str] | None
    ) -> None:
        events = [e for e in [*self._events.values()] if e["data"]["guest_id"] == guest_id]
        self._show(
            resp,
            "guest.html",
            guest=self._api.guest(guest_id),
            cards=self._api.cards(guest_id),
            centers=self._api.centers(),
            events=events[::-1],
            key=uuid4(),
            notice=notice,
        )

    def _show(self, resp: falcon.Response, template: str, **values: object) -> None:
        resp.content_type = falcon.MEDIA_HTML
        resp.text = _TEMPLATES.get_template(template).render(values)


def _path(guest_id: str, below: str = "", last: str = "") -> str:
    return f"/api/v1/guests/{quote(guest_id, safe='')}{below}{quote(last, safe='')}"


def _notice(session: Json) -> tuple[str, str, str]:
    """Return the ARIA role, the title and the text of the notice about a session."""
    match session["status"], session["progress"]:
        case "completed", _:
            return ("status", "Card added", "It is kept on file for your next visit.")
        case "open", "cancelled":
            return ("status", "No card was added", "You can add one at any time.")
        case "open", "returned":
            text = "If you entered one, it is listed below once it is confirmed. Look again later."
            return ("status", "No card has arrived yet", text)
        case "open", _:
            return ("status", "No card has arrived yet", "Its page is still open.")
        case "failed", _:
            reason = _in_plain_words(session["failure"])
        case _:
            reason = "The page for it has expired. Please add it again."
    return ("alert", "The card could not be saved", reason)


def _in_plain_words(error: Json) -> str:
    return _IN_PLAIN_WORDS.get(error["type"], str(error["message"]))
