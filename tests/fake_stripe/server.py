"""Serves the fake Stripe's API and hosted page over HTTP. Tests can cause faults."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from email.utils import format_datetime
from enum import Enum, auto
from itertools import count
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from adapters.psp_suite import stand_in
from adapters.psp_suite.stand_in import (
    Request,
    Response,
    StandInServer,
    html_response,
    json_response,
)
from domain.outside import Clock
from tests.fake_stripe.described import require_response
from tests.fake_stripe.pages import show
from tests.fake_stripe.parameters import Refused, decode
from tests.fake_stripe.stripe import FakeStripe, Merchant, Object, signature
from tests.waiting import LIMIT_SECONDS

_API: Final = "/v1/"

Act: TypeAlias = Callable[..., Object]


class Trouble(Enum):
    """A fault of a call."""

    LOST = auto()
    """The call is not received and gets no response."""
    DROPPED = auto()
    """The call is not received, because the connection breaks."""
    TOO_MANY = auto()
    """429 with Retry-After of 17 seconds."""
    FAULT = auto()
    """500, saved under the idempotency key. The call has no effect."""
    FAULT_AFTER_IT_ACTED = auto()
    """500, saved under the idempotency key, although the call takes effect."""
    AWAY = auto()
    """503 from a proxy in front of the API. Nothing is saved."""
    AWAY_FOR_LONG = auto()
    """503 to a call that must not be repeated."""
    CONFLICT = auto()
    """409: another call uses the idempotency key."""
    LOCKED = auto()
    """429 to a call that may be repeated, because another call uses the object."""
    UNAUTHORIZED = auto()
    """401: the key was revoked."""
    FORBIDDEN = auto()
    """403: the restricted key lacks a permission."""
    REFUSED = auto()
    """400: Stripe refuses the call."""
    NOT_FOUND = auto()
    """404: Stripe does not know the object, or not yet."""
    NO_SUCH_ROUTE = auto()
    """404 with Stripe's error but without a code, because the API has no such route."""
    NOT_THE_API = auto()
    """404 with an HTML page, from a proxy or a wrong address. The call has no effect."""
    NONSENSE = auto()
    """200 with broken JSON."""
    UNKNOWN_STATUS = auto()
    """200 with an unknown status."""
    REDIRECT = auto()
    """302 to another address."""


_REFUSALS: Final[Mapping[Trouble, tuple[int, str, str | None]]] = {
    Trouble.TOO_MANY: (429, "invalid_request_error", "rate_limit"),
    Trouble.AWAY: (503, "api_error", None),
    Trouble.AWAY_FOR_LONG: (503, "api_error", None),
    Trouble.LOCKED: (429, "invalid_request_error", "lock_timeout"),
    Trouble.CONFLICT: (409, "idempotency_error", "idempotency_key_in_use"),
    Trouble.UNAUTHORIZED: (401, "invalid_request_error", None),
    Trouble.FORBIDDEN: (403, "invalid_request_error", None),
    Trouble.REFUSED: (400, "invalid_request_error", "parameter_invalid"),
    Trouble.NOT_FOUND: (404, "invalid_request_error", "resource_missing"),
    Trouble.NO_SUCH_ROUTE: (404, "invalid_request_error", None),
}
_ADVICE: Final[Mapping[Trouble, Mapping[str, str]]] = {
    Trouble.AWAY_FOR_LONG: {"Stripe-Should-Retry": "false"},
    Trouble.LOCKED: {"Stripe-Should-Retry": "true"},
    Trouble.TOO_MANY: {"Retry-After": "17"},
}
_FAULT: Final = {"error": {"type": "api_error", "message": "An unknown error occurred"}}


class FakeStripeServer:
    """A fake Stripe that listens on a loopback address.

    `calls` lists the calls in order.
    """

    def __init__(self, clock: Clock) -> None:
        self.stripe = FakeStripe(clock)
        self._requests = count(1)
        self.server = StandInServer(self._respond, api=_API)
        self.url = self.stripe.url = self.server.url
        self.calls = self.server.calls

    def close(self) -> None:
        """Stop, and end the calls that are held.

        Raises the first fault: a response or an event that is not as described.
        """
        self.server.close()
        if self.stripe.broken:
            raise self.stripe.broken[0]

    def have(
        self, trouble: Trouble, on: str = "", *, from_call: int = 1, times: int | None = None
    ) -> None:
        """Cause a fault of each call that matches `on`, such as `POST /v1/customers`."""
        self.server.have(self._trouble(trouble), on, from_call=from_call, times=times)

    def recover(self) -> None:
        """End all faults, and end the calls that are held."""
        self.server.recover()

    def send_webhooks(self) -> None:
        """Send each new event once to every merchant that has a `webhook_url`."""
        for merchant in self.stripe.merchants.values():
            with self.stripe.lock:
                events, merchant.events = merchant.events, []
            for event in events if merchant.webhook_url else ():
                self._post(merchant, json.dumps(event, indent=2).encode())

    def _post(self, merchant: Merchant, body: bytes) -> None:
        target = urlsplit(merchant.webhook_url or "")
        signed = signature(body, secret=merchant.webhook_secret, at=self.stripe.clock.now())
        connection = http.client.HTTPConnection(
            str(target.hostname), target.port, timeout=LIMIT_SECONDS
        )
        headers = {"Content-Type": "application/json", "Stripe-Signature": signed}
        connection.request("POST", target.path, body, headers)
        connection.getresponse().read()
        connection.close()

    def _respond(self, request: Request) -> Response:
        if request.path.startswith(_API):
            return self._done(request)
        response = show(self.stripe, request)
        self.send_webhooks()
        return response

    def _trouble(self, trouble: Trouble) -> stand_in.Trouble:
        """Return the trouble of the stand-in server that corresponds to a fault."""
        if trouble in _ANYWHERE:
            return _ANYWHERE[trouble]
        if trouble in _REFUSALS:
            return lambda _, __: self.refusal(trouble)
        return lambda request, _: self._done(request, trouble)

    def refusal(self, trouble: Trouble) -> Response:
        """Return Stripe's error response."""
        status, type_, code = _REFUSALS[trouble]
        refused = Refused(SECRETIVE, status=status, type_=type_, code=code, param="expires_at")
        return self._json({"error": refused.error}, status, _ADVICE.get(trouble, {}))

    def _json(self, body: Object, status: int, headers: Mapping[str, str]) -> Response:
        self.stripe.require(require_response, status, body)
        return json_response(body, status, {**self._request_id(), **headers})

    def _request_id(self) -> dict[str, str]:
        now = format_datetime(self.stripe.clock.now(), usegmt=True)
        return {"Request-Id": f"req_{next(self._requests):014}", "Date": now}

    def _done(self, request: Request, fault: Trouble | None = None) -> Response:
        """Handle a call of the API."""
        is_post = request.method == "POST"
        encoded = request.body.decode() if is_post else request.query
        try:
            merchant = self._authenticated(request)
            act, arguments = self._route(request.method, request.path)
            given = decode(encoded)

            def do() -> tuple[int, Object]:
                if fault is Trouble.FAULT:
                    return 500, _FAULT
                done = act(merchant, given, *arguments)
                return (500, _FAULT) if fault is Trouble.FAULT_AFTER_IT_ACTED else (200, done)

            key = request.headers.get("idempotency-key") if is_post else None
            status, body, replayed = self.stripe.once(merchant, key, (request.call, encoded), do)
        except Refused as refused:
            return self._json({"error": refused.error}, refused.status, {})
        return self._json(body, status, {"Idempotent-Replayed": "true"} if replayed else {})

    def _authenticated(self, request: Request) -> Merchant:
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        merchant = self.stripe.merchants.get(key)
        if scheme != "Bearer" or merchant is None:
            raise Refused(f"Invalid API Key provided: {key}", status=401)
        if request.headers.get("stripe-version") != "2026-10-28.endive":
            raise Refused("Invalid Stripe API version")
        return merchant

    def _route(self, method: str, path: str) -> tuple[Act, tuple[str, ...]]:
        stripe = self.stripe
        routes: tuple[tuple[str, str, Act], ...] = (
            ("GET", "/v1/account", stripe.retrieve_account),
            ("GET", "/v1/webhook_endpoints", stripe.list_webhook_endpoints),
            ("POST", "/v1/customers", stripe.create_customer),
            ("POST", "/v1/customers/([^/]+)", stripe.update_customer),
            ("GET", "/v1/customers/([^/]+)", stripe.retrieve_customer),
            ("DELETE", "/v1/customers/([^/]+)", stripe.remove_customer),
            ("POST", "/v1/checkout/sessions", stripe.create_session),
            ("GET", "/v1/checkout/sessions", stripe.list_sessions),
            ("GET", "/v1/checkout/sessions/([^/]+)", stripe.retrieve_session),
            ("POST", "/v1/checkout/sessions/([^/]+)/expire", stripe.expire_session),
            ("GET", "/v1/payment_methods", stripe.list_methods),
            ("GET", "/v1/payment_methods/([^/]+)", stripe.retrieve_method),
            ("POST", "/v1/payment_methods/([^/]+)/detach", stripe.detach_method),
        )
        for known, pattern, act in routes:
            match = re.fullmatch(pattern, path)
            if known == method and match:
                return act, match.groups()
        raise Refused(f"Unrecognized request URL ({method}: {path}).", status=404)


SECRETIVE: Final = "Zoe <zoe@guests.example> may not use sk_test_main"
"""Text that the adapter must not repeat in a message or log."""


def unknown_status(sound: Response) -> Response:
    """Return the response with an unknown status."""
    return Response(200, re.sub(rb'"status": "\w+"', b'"status": "resting"', sound.body))


_ANYWHERE: Final[Mapping[Trouble, stand_in.Trouble]] = {
    Trouble.LOST: stand_in.lose_call,
    Trouble.DROPPED: stand_in.drop_call,
    Trouble.REDIRECT: stand_in.redirect,
    Trouble.NOT_THE_API: stand_in.respond_with(html_response("<html>Not found</html>", 404)),
    Trouble.NONSENSE: stand_in.change(
        lambda _: Response(200, b'{"id": "cs_test_1", "customer": {"email": "zoe@guests.exa')
    ),
    Trouble.UNKNOWN_STATUS: stand_in.change(unknown_status),
}


@contextmanager
def running(clock: Clock) -> Iterator[FakeStripeServer]:
    """Run a fake Stripe until the end of the block."""
    with closing(FakeStripeServer(clock)) as server:
        yield server
