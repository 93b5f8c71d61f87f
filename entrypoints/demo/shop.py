"""A small shop that keeps its guests' cards on file. Copy the parts that you need.

`CardApi` calls the HTTP API. `Shop` shows the page and receives events. The access token and the
secret stay on the server, and the browser gets only pages and the link to the hosted page.
docs/integrating.md explains each step.
"""

from __future__ import annotations

import hmac
import json
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import quote, urlsplit
from uuid import uuid4

import falcon
from jinja2 import Environment, FileSystemLoader

from domain.identifiers import TOKEN_PREFIX_LENGTH
from domain.sessions.session_log import Step
from entrypoints.demo.sample import EVE, EVES_CARD, SPA, a_booking

EVENTS: Final = "/events"
BACK: Final = "/back"
DESK: Final = "/desk"
OWN_PAGE: Final = "/own-page"

_HERE: Final = Path(__file__).parent
_PAGES: Final = Environment(loader=FileSystemLoader(_HERE), autoescape=True)

Json: TypeAlias = dict[str, Any]  # JSON from the API; docs/http-api.md describes the fields


@dataclass(frozen=True)
class CardApi:
    """Calls the HTTP API at a host and port with an access token."""

    address: str
    token: str

    def __call__(self, method: str, *path: str, body: Json | None = None, key: str = "") -> Json:
        """Send a request below `/api/v1/guests/`, and return the response.

        `key` is sent as the Idempotency-Key if it is not empty. A request may be repeated, because
        add-card with the same key returns the same session. Raises HTTPError.
        """
        where = "/".join(("/api/v1/guests", *(quote(part, safe="") for part in path)))
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        if key:
            headers["Idempotency-Key"] = key
        connection = HTTPConnection(self.address, timeout=60)
        try:
            connection.request(method, where, json.dumps(body) if body else None, headers)
            response = connection.getresponse()
            answer: Json = json.load(response)
        except (OSError, HTTPException, ValueError) as error:
            raise falcon.HTTPServiceUnavailable(title="The card service is unavailable") from error
        finally:
            connection.close()
        if response.status != 200:
            # Tell your guests in your own words. The header Error-Type contains the type of the
            # refusal.
            told = answer.get("error") or answer
            raise falcon.HTTPError(response.status, title=told["message"])
        return answer


def verified_event(secret: str, headers: Mapping[str, str], body: bytes) -> Any:  # JSON
    """Return the event in a request. Raises ValueError if its signature or its time is wrong.

    The names in `headers` must be in lower case, and `body` must contain the bytes as received.
    Your own shop can call `Webhook(secret).verify(body, headers)` of the package `standardwebhooks`
    instead.
    """
    sent_at = headers.get("webhook-timestamp", "")
    # Five minutes, in whole seconds: a huge number does not fit into a float.
    if abs(int(time.time()) - int(sent_at or 0)) > 300:
        raise ValueError("the event is too old, or its time is in the future")
    message = f"{headers.get('webhook-id')}.{sent_at}.".encode() + body
    digest = hmac.digest(b64decode(secret.removeprefix("whsec_")), message, "sha256")
    right = b"v1," + b64encode(digest)
    given = headers.get("webhook-signature", "").encode().split()
    if not any(hmac.compare_digest(right, signature) for signature in given):
        raise ValueError("no signature matches")
    return json.loads(body)


@dataclass
class Timeline:
    """The log lines and the events of each session, which `page.html` explains to the visitor."""

    _newest: str = ""
    _lines: dict[str, list[Json]] = field(default_factory=dict)

    def read(self, line: Json) -> None:
        """Add a log line to its session.

        A line about a start of the service is added to the newest session.
        """
        now, event = time.monotonic(), line.get("event")
        session = self._newest if event == "serving" else line.get("session", "")
        if event == Step.CREATED:
            self._newest, self._lines[session] = session, []
        if session in self._lines:
            lines = self._lines[session]
            lines.append({**line, "at": now, "seconds": now - (lines[0]["at"] if lines else now)})

    def of(self, guest_id: str | None) -> list[Json]:
        """Return the lines about a guest's newest session.

        If `guest_id` is None, return the lines about the newest session of all guests.
        """
        found = [it for it in self._lines.values() if it and guest_id in (None, it[0]["guest_id"])]
        return found[-1] if found else []


@dataclass
class Shop:
    """The demo's page, and the address that receives events. A real shop stores events in a database.

    `secret` is the secret with which events are signed. `origin` is the origin of the shop, and
    `payments_origin` is the origin of the links that the API returns. `docs` is the address of the
    API's documentation. `switch` is called with a session and the faults that the visitor has
    switched on.
    """

    api: CardApi
    timeline: Timeline
    secret: str
    origin: str
    payments_origin: str
    docs: str
    switch: Callable[[str, Collection[str]], None]
    on: Collection[str] = ()
    _events: dict[str, Json] = field(default_factory=dict)
    _newest: tuple[str, str] = ("", "")

    def app(self) -> falcon.App[falcon.Request, falcon.Response]:
        """Return the WSGI application."""
        app: falcon.App[falcon.Request, falcon.Response] = falcon.App(middleware=[self])
        app.add_route("/", self)
        app.add_route(BACK, self)
        app.add_route(DESK, self, suffix="desk")
        app.add_route(OWN_PAGE, self, suffix="own_page")
        app.add_route(EVENTS, self, suffix="event")
        app.add_static_route("/static", _HERE / "static")
        return app

    def process_request(self, req: falcon.Request, _: falcon.Response) -> None:
        """Redirect requests that use another host name, such as localhost, to `origin`.

        Refuse forms that come from other sites.
        """
        if req.netloc != urlsplit(self.origin).netloc:
            raise falcon.HTTPSeeOther(self.origin)
        is_form = req.method == "POST" and req.path != EVENTS
        if is_form and req.get_header("Origin") != self.origin:
            raise falcon.HTTPForbidden(title="This form was not sent from here")

    def process_response(self, _: object, resp: falcon.Response, *__: object) -> None:
        """Set the security headers."""
        # Browsers apply `form-action` to each redirect after a form: to the link, and to the PSP.
        policy = (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src "
            "'self'; frame-ancestors 'none'; base-uri 'none'; "
            f"form-action 'self' {self.payments_origin} https:"
        )
        # Without a referrer, browsers send a form with the origin "null".
        referrers = ("Referrer-Policy", "same-origin")
        safe = (("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-store"))
        resp.set_headers([("Content-Security-Policy", policy), referrers, *safe])

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Show the demo's page, or the page for a guest who returns from the hosted page.

        A script reloads the page continually to show new steps.
        """
        is_back = req.path == BACK
        # A guest who has returned sees only the steps of that visit.
        visit = req.get_param("visit") or ("" if is_back else None)
        lines, cards = self.timeline.of(visit), None
        with suppress(falcon.HTTPError):
            if any("verified" in line for line in lines):
                cards = self.api("GET", lines[0]["guest_id"], "accounts")["accounts"]
        # A session that began on the guest's own page has no desk.
        at_desk = bool(lines) and self._newest[1].startswith(lines[0]["session"])
        shown = {
            "back_at": SPA.center.name if is_back else "",
            "cards": cards,
            "at_desk": at_desk and cards is None,
        }
        page = _PAGES.get_template("page.html")
        resp.content_type = falcon.MEDIA_HTML
        resp.text = page.render(shown, shop=self, lines=lines, visit=uuid4())

    def on_post(self, req: falcon.Request, _: falcon.Response) -> None:
        """Start a session, and redirect the guest's browser to its link.

        The button for a booking sends the field `book`. Its value is `new` for a new guest, or else
        the id of the guest who makes another booking.
        """
        form = self.on = req.get_media()
        # The form has a fixed id, so that sending it twice adds one guest and starts one session.
        guest_id = key = str(form.get("visit"))
        booking, book = None, form.get("book")
        if book:
            booking = a_booking(reference=key, now=datetime.now(UTC))
            guest_id = key if book == "new" else str(book)
        self.api("PUT", guest_id, body=EVE)
        request = {**EVES_CARD, "redirect_uri": self._back(guest_id), "agreement": booking}
        session = self.api("POST", guest_id, "accounts", body=request, key=key)
        self._newest = guest_id, session["token_id"]
        self.switch(session["token_id"][:TOKEN_PREFIX_LENGTH], form)
        raise falcon.HTTPSeeOther(session["hosted_payment_uri"])

    def on_post_desk(self, _: falcon.Request, __: falcon.Response) -> None:
        """Redirect the shop's staff to the front desk's page of the newest session."""
        guest_id, token_id = self._newest
        path = (guest_id, "accounts", "sessions", token_id, "desk-links")
        made = self.api("POST", *path, body={"label": "Chair 3"})
        raise falcon.HTTPSeeOther(made["desk_uri"])

    def on_post_own_page(self, req: falcon.Request, _: falcon.Response) -> None:
        """Redirect a guest to the guest's own page. A real shop checks that the guest is logged in.

        The button sends the guest's id in the field `guest`.
        """
        guest_id = str(req.get_media().get("guest"))
        body = {"center_id": SPA.center.id, "return_uri": self._back(guest_id), "locale": "auto"}
        made = self.api("POST", guest_id, "portal-sessions", body=body)
        raise falcon.HTTPSeeOther(made["portal_uri"])

    def on_post_event(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Verify and store an event.

        An event that arrives again has the same id, and is not stored again.
        """
        try:
            event = verified_event(self.secret, req.headers_lower, req.bounded_stream.read())
        except ValueError:
            raise falcon.HTTPBadRequest(title="The signature of this event is wrong") from None
        if self._events.setdefault(req.headers_lower["webhook-id"], event) is event:
            session, reason = (
                event["data"]["token_id"][:TOKEN_PREFIX_LENGTH],
                event["data"]["reason"],
            )
            line = {"event": event["type"], "session": session, "reason": reason}
            self.timeline.read({**line, "verified": True})
        resp.status = falcon.HTTP_204

    def _back(self, guest_id: str) -> str:
        """Return the address to which a guest comes back."""
        return f"{self.origin}{BACK}?visit={guest_id}"
