"""A small shop that keeps its guests' cards on file. Copy from it what you need.

`CardApi` calls the HTTP API, `Shop` shows the page and receives events. The access token and the
secret stay on the server: the browser only gets pages, and the link to the hosted page.
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
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import quote, urlsplit
from uuid import uuid4

import falcon
from jinja2 import Environment, FileSystemLoader

from domain.events.event import ENDPOINT_TYPES
from domain.sessions.session_log import Step
from entrypoints.demo.sample import BILLING_INFO, SPA
from entrypoints.demo.service import COLLECTED, Fault

EVENTS: Final = "/events"
BACK: Final = "/back"

_HERE: Final = Path(__file__).parent
_TEMPLATES: Final = Environment(loader=FileSystemLoader(_HERE), autoescape=True)
_OF_LOG: Final = (Step.CREATED, Step.OPENED, Step.PAGE_MADE, Step.STORED, COLLECTED, "serving")
_SHOWN: Final = {*_OF_LOG, *Fault, *ENDPOINT_TYPES}
_GUEST: Final = {"first_name": "Eve", "last_name": "Example", "email": "eve@example.com"}
_CARD: Final = {"center_id": SPA.center.id, "billing_info": BILLING_INFO, "locale": "auto"}

Json: TypeAlias = dict[str, Any]  # JSON from the API; docs/http-api.md describes the fields


@dataclass(frozen=True)
class CardApi:
    """Calls the API at a host and port, with an access token."""

    address: str
    token: str

    def __call__(self, method: str, *path: str, body: Json | None = None, key: str = "") -> Json:
        """Send a request below `/api/v1/guests/`, with an Idempotency-Key if it is not empty.

        May be repeated: add-card under the same key returns the same session. Raises HTTPError.
        """
        where = "/".join(("/api/v1/guests", *(quote(part, safe="") for part in path)))
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        if key:
            headers["Idempotency-Key"] = key
        connection = HTTPConnection(self.address, timeout=10)
        try:
            connection.request(method, where, json.dumps(body) if body else None, headers)
            response = connection.getresponse()
            answer: Json = json.load(response)
        except (OSError, HTTPException, ValueError) as error:
            raise falcon.HTTPServiceUnavailable(title="The card service is away") from error
        finally:
            connection.close()
        if response.status != 200:
            # Tell your guests in words of your own, by the header Error-Type.
            raise falcon.HTTPError(
                response.status, title=(answer.get("error") or answer)["message"]
            )
        return answer


def verified_event(secret: str, headers: Mapping[str, str], body: bytes) -> Any:  # JSON
    """Return the event in a request, or raise ValueError unless its signature is right.

    `headers` have names in lower case, `body` is as it arrived. A shop of your own can call
    `Webhook(secret).verify(body, headers)` of the package `standardwebhooks` instead.
    """
    sent_at = headers.get("webhook-timestamp", "")
    # Five minutes, in whole seconds: a huge number is no float.
    if abs(int(time.time()) - int(sent_at or 0)) > 300:
        raise ValueError("not sent just now")
    message = f"{headers.get('webhook-id')}.{sent_at}.".encode() + body
    digest = hmac.digest(b64decode(secret.removeprefix("whsec_")), message, "sha256")
    right = b"v1," + b64encode(digest)
    given = headers.get("webhook-signature", "").encode().split()
    if not any(hmac.compare_digest(right, signature) for signature in given):
        raise ValueError("no signature is right")
    return json.loads(body)


@dataclass
class Timeline:
    """The lines of the log about the newest session, and its events, each with its `seconds`.

    `session` is what the log shows of its token. `page.html` says what the lines mean.
    """

    session: str = ""
    guest_id: str = ""
    lines: list[Json] = field(default_factory=list)
    _began_at: float = 0.0

    def read(self, line: Json) -> None:
        """Note a line, if it is to be shown. A new session begins a new time line."""
        event = line.get("event")
        if event == Step.CREATED:
            self.session, self.guest_id = line["session"], line["guest_id"]
            self.lines, self._began_at = [], time.monotonic()
        is_webhook = line.get("route") == "/webhooks/{provider}" and line["status"] == 200
        is_of_session = bool(self.session) and line.get("session", self.session) == self.session
        if (is_webhook or event in _SHOWN) and is_of_session:
            self.lines.append({**line, "seconds": time.monotonic() - self._began_at})


@dataclass
class Shop:
    """The page of the demo, and the address for events. A real shop keeps events in a database.

    `secret` signs events. `origin` is the shop's own, `payments_origin` that of the API's links,
    `docs` the address of the API's page. `switch` takes the names of the switches that are on.
    """

    api: CardApi
    timeline: Timeline
    secret: str
    origin: str
    payments_origin: str
    docs: str
    switch: Callable[[Collection[str]], None]
    _events: dict[str, Json] = field(default_factory=dict)

    def app(self) -> falcon.App[falcon.Request, falcon.Response]:
        """Return the WSGI application."""
        app: falcon.App[falcon.Request, falcon.Response] = falcon.App(middleware=[self])
        app.add_route("/", self)
        app.add_route(BACK, self)
        app.add_route(EVENTS, self, suffix="event")
        app.add_static_route("/static", _HERE / "static")
        return app

    def process_request(self, req: falcon.Request, _: falcon.Response) -> None:
        """Refuse a form from another site; redirect from another host name, such as localhost."""
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
        """Show the page, or the one for a guest who is back. A script asks for what is new."""
        timeline, cards = self.timeline, []
        with suppress(falcon.HTTPError):
            if any("verified" in line for line in timeline.lines):
                cards = self.api("GET", timeline.guest_id, "accounts")["accounts"]
        resp.content_type = falcon.MEDIA_HTML
        resp.text = _TEMPLATES.get_template("page.html").render(
            shop=self, is_back=req.path == BACK, lines=timeline.lines, cards=cards, visit=uuid4()
        )

    def on_post(self, req: falcon.Request, _: falcon.Response) -> None:
        """Start to add a card, and redirect the guest's browser to the hosted page."""
        form = req.get_media()
        self.switch(form)
        # Made with the form: one that is sent twice adds one guest, and starts one session.
        guest_id = key = str(form.get("visit"))
        self.api("PUT", guest_id, body=_GUEST)
        request = {**_CARD, "redirect_uri": self.origin + BACK}
        session = self.api("POST", guest_id, "accounts", body=request, key=key)
        raise falcon.HTTPSeeOther(session["hosted_payment_uri"])

    def on_post_event(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Verify an event and keep it, each once: a repeated one has the same id."""
        try:
            event = verified_event(self.secret, req.headers_lower, req.bounded_stream.read())
        except ValueError:
            raise falcon.HTTPBadRequest(title="This event is not signed as it should") from None
        if self._events.setdefault(req.headers_lower["webhook-id"], event) is event:
            session = event["data"]["token_id"][: len(self.timeline.session)]
            self.timeline.read({"event": event["type"], "session": session, "verified": True})
        resp.status = falcon.HTTP_204
