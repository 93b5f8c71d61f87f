"""Stripe's API and hosted page over HTTP, and the trouble that it can be told to make."""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto
from http import HTTPStatus
from itertools import count
from socketserver import ThreadingMixIn
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIEnvironment

from typing_extensions import override

from domain.ports import Clock
from tests.fake_stripe.answers import Answer
from tests.fake_stripe.pages import show
from tests.fake_stripe.parameters import Refused, decode
from tests.fake_stripe.stripe import FakeStripe, Merchant, Object, signature

GIVE_UP_SECONDS: Final = 20
"""How long a call that gets no answer is held, should nobody end it before."""

Act: TypeAlias = Callable[..., Object]


class Trouble(Enum):
    """What a call may run into."""

    LOST = auto()
    """It never arrives: there is no answer, and nothing is done."""
    ANSWER_LOST = auto()
    """It is done, and the answer never comes."""
    DROPPED = auto()
    """It never arrives: the connection breaks, and nothing is done."""
    ANSWER_DROPPED = auto()
    """It is done, and the connection breaks before the answer."""
    DRIPS = auto()
    """It is done, and the answer comes byte by byte, for longer than anybody waits."""
    HEADERS_DRIP = auto()
    """It is done, and the answer's headers come byte by byte, for longer than anybody waits."""
    TOO_MANY = auto()
    """429, with the advice to wait for 7 seconds."""
    FAULT = auto()
    """500, saved under the idempotency key; nothing is done."""
    FAULT_AFTER_IT_ACTED = auto()
    """500, saved under the idempotency key; yet it is done."""
    AWAY = auto()
    """503 from before the API; nothing is saved."""
    AWAY_FOR_LONG = auto()
    """503, with the advice not to try again."""
    CONFLICT = auto()
    """409: another call has the key in use."""
    LOCKED = auto()
    """429: another call has the object in use; with the advice to try again."""
    UNAUTHORIZED = auto()
    """401: the key was revoked."""
    FORBIDDEN = auto()
    """403: the restricted key may not."""
    REFUSED = auto()
    """400: Stripe refuses the call itself."""
    NOT_THE_API = auto()
    """404 with an HTML page, from a proxy or a wrong address; nothing is done."""
    NONSENSE = auto()
    """200 with what is no JSON."""
    HUGE = auto()
    """200 with megabytes around the answer."""
    UNKNOWN_STATUS = auto()
    """200 with a status that nobody has heard of."""
    REDIRECT = auto()
    """302 to somewhere else."""


_REFUSALS: Final[Mapping[Trouble, tuple[int, str, str | None]]] = {
    Trouble.TOO_MANY: (429, "invalid_request_error", "rate_limit"),
    Trouble.AWAY: (503, "api_error", None),
    Trouble.AWAY_FOR_LONG: (503, "api_error", None),
    Trouble.LOCKED: (429, "invalid_request_error", "lock_timeout"),
    Trouble.CONFLICT: (409, "idempotency_error", "idempotency_key_in_use"),
    Trouble.UNAUTHORIZED: (401, "invalid_request_error", None),
    Trouble.FORBIDDEN: (403, "invalid_request_error", None),
    Trouble.REFUSED: (400, "invalid_request_error", "parameter_invalid"),
}
_ADVICE: Final = {Trouble.AWAY_FOR_LONG: "false", Trouble.LOCKED: "true"}
_FAULT: Final = {"error": {"type": "api_error", "message": "An unknown error occurred"}}


@dataclass
class _TroubleWith:
    trouble: Trouble
    calls: re.Pattern[str]
    from_call: int
    times: int | None
    seen: int = 0

    def meets(self, call: str) -> bool:
        if not self.calls.search(call):
            return False
        self.seen += 1
        return self.seen >= self.from_call and (
            self.times is None or self.seen < self.from_call + self.times
        )


class FakeStripeServer:
    """A fake Stripe that listens on this machine.

    `calls` names the calls in the order in which they came. Each call takes `call_seconds`, and an
    answer that drips `drip_seconds`.
    """

    def __init__(self, clock: Clock) -> None:
        self.stripe = FakeStripe(clock)
        self.calls: list[str] = []
        self.call_seconds: float = 0
        self.drip_seconds: float = GIVE_UP_SECONDS
        self._trouble: list[_TroubleWith] = []
        self._released = threading.Event()
        self._requests = count(1)
        self._server = make_server(
            "127.0.0.1", 0, self, server_class=_Server, handler_class=_Handler
        )
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.stripe.url = self.url
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.005,))
        self._thread.start()

    def close(self) -> None:
        """Stop, and let go of the calls that were held."""
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def have(
        self, trouble: Trouble, on: str = "", *, from_call: int = 1, times: int | None = None
    ) -> None:
        """Have trouble with calls such as `POST /v1/customers`, a regular expression."""
        self._trouble.append(_TroubleWith(trouble, re.compile(on), from_call, times))

    def recover(self) -> None:
        """Have no more trouble, and let go of the calls that are held."""
        self._trouble.clear()
        self._released.set()
        self._released = threading.Event()

    def send_webhooks(self) -> None:
        """Send the events that were not sent yet to merchants that want them, once."""
        for merchant in self.stripe.merchants.values():
            with self.stripe.lock:
                events, merchant.events = merchant.events, []
            for event in events if merchant.webhook_url else ():
                self._post(merchant, json.dumps(event, indent=2).encode())

    def _post(self, merchant: Merchant, body: bytes) -> None:
        target = urlsplit(merchant.webhook_url or "")
        signed = signature(body, secret=merchant.webhook_secret, at=self.stripe.clock.now())
        connection = http.client.HTTPConnection(str(target.hostname), target.port, timeout=10)
        headers = {"Content-Type": "application/json", "Stripe-Signature": signed}
        connection.request("POST", target.path, body, headers)
        connection.getresponse().read()
        connection.close()

    def __call__(self, environ: WSGIEnvironment, respond: StartResponse) -> Iterable[bytes]:
        """Answer a request."""
        path = environ["PATH_INFO"]
        if path.startswith("/v1/"):
            call = f"{environ['REQUEST_METHOD']} {path}"
            self.calls.append(call)
            time.sleep(self.call_seconds)
            met = [each.trouble for each in self._trouble if each.meets(call)]
            return self._api(environ, respond, met[0] if met else None)
        answer = show(self.stripe, environ)
        self.send_webhooks()
        return _send(respond, answer)

    def _api(
        self, environ: WSGIEnvironment, respond: StartResponse, trouble: Trouble | None
    ) -> Iterable[bytes]:
        if trouble is Trouble.DROPPED:
            raise ConnectionAbortedError
        if trouble is Trouble.LOST:
            return self._hold(respond)
        answer = self._answer(environ, trouble)
        if trouble is Trouble.ANSWER_DROPPED:
            raise ConnectionAbortedError
        if trouble is Trouble.ANSWER_LOST:
            return self._hold(respond)
        if trouble is Trouble.DRIPS:
            return self._drip(respond, answer)
        if trouble is Trouble.HEADERS_DRIP:
            return self._drip_headers(environ, answer)
        return _send(respond, answer, ("Request-Id", f"req_{next(self._requests):014}"))

    def _answer(self, environ: WSGIEnvironment, trouble: Trouble | None) -> Answer:
        if trouble is not None and trouble in _REFUSALS:
            status, type_, code = _REFUSALS[trouble]
            error = {"type": type_, "code": code, "message": SECRETIVE, "param": "expires_at"}
            advice = _ADVICE.get(trouble)
            headers = (("Stripe-Should-Retry", advice),) if advice else ()
            if trouble is Trouble.TOO_MANY:
                headers = (*headers, ("Retry-After", "7"))
            return Answer(status, _json(status, {"error": error}).body, headers)
        if trouble is Trouble.NOT_THE_API:
            return Answer(404, b"<html>Not found</html>", (("Content-Type", "text/html"),))
        if trouble is Trouble.REDIRECT:
            return Answer(302, b"<html>moved</html>", (("Location", f"{self.url}/elsewhere"),))
        answer = self._done(environ, trouble)
        if trouble is Trouble.NONSENSE:
            return Answer(200, b'{"id": "cs_test_1", "customer": {"email": "zoe@guests.exa')
        if trouble is Trouble.HUGE:
            return Answer(200, answer.body + b" " * 2**21)
        if trouble is Trouble.UNKNOWN_STATUS:
            return Answer(200, re.sub(rb'"status": "\w+"', b'"status": "resting"', answer.body))
        return answer

    def _done(self, environ: WSGIEnvironment, trouble: Trouble | None) -> Answer:
        """Do what the call asks; gives the answer."""
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)).decode()
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        encoded = body if method == "POST" else environ["QUERY_STRING"]
        try:
            merchant = self._authenticated(environ)
            act, arguments = self._route(method, path)
            given = decode(encoded)

            def do() -> tuple[int, Object]:
                if trouble is Trouble.FAULT:
                    return 500, _FAULT
                done = act(merchant, given, *arguments)
                return (500, _FAULT) if trouble is Trouble.FAULT_AFTER_IT_ACTED else (200, done)

            key = environ.get("HTTP_IDEMPOTENCY_KEY") if method == "POST" else None
            status, answer, replayed = self.stripe.once(
                merchant, key, (f"{method} {path}", encoded), do
            )
        except Refused as refused:
            return _json(refused.status, {"error": refused.error})
        headers = (("Idempotent-Replayed", "true"),) if replayed else ()
        return Answer(status, _json(status, answer).body, headers)

    def _authenticated(self, environ: WSGIEnvironment) -> Merchant:
        scheme, _, key = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
        merchant = self.stripe.merchants.get(key)
        if scheme != "Bearer" or merchant is None:
            raise Refused(f"Invalid API Key provided: {key}", status=401)
        if environ.get("HTTP_STRIPE_VERSION") != "2026-10-28.endive":
            raise Refused("Invalid Stripe API version")
        return merchant

    def _route(self, method: str, path: str) -> tuple[Act, tuple[str, ...]]:
        stripe = self.stripe
        routes: tuple[tuple[str, str, Act], ...] = (
            ("GET", "/v1/account", stripe.retrieve_account),
            ("POST", "/v1/customers", stripe.create_customer),
            ("POST", "/v1/customers/([^/]+)", stripe.update_customer),
            ("GET", "/v1/customers/([^/]+)", stripe.retrieve_customer),
            ("DELETE", "/v1/customers/([^/]+)", stripe.remove_customer),
            ("POST", "/v1/checkout/sessions", stripe.create_session),
            ("GET", "/v1/checkout/sessions", stripe.list_sessions),
            ("GET", "/v1/checkout/sessions/([^/]+)", stripe.retrieve_session),
            ("POST", "/v1/checkout/sessions/([^/]+)/expire", stripe.expire_session),
            ("POST", "/v1/setup_intents", stripe.create_setup_intent),
            ("GET", "/v1/payment_methods/([^/]+)", stripe.retrieve_method),
            ("POST", "/v1/payment_methods/([^/]+)/detach", stripe.detach_method),
        )
        for known, pattern, act in routes:
            match = re.fullmatch(pattern, path)
            if known == method and match:
                return act, match.groups()
        raise Refused(f"Unrecognized request URL ({method}: {path}).", status=404)

    def _hold(self, respond: StartResponse) -> Iterable[bytes]:
        self._released.wait(GIVE_UP_SECONDS)
        return _send(respond, _json(500, _FAULT))

    def _drip(self, respond: StartResponse, answer: Answer) -> Iterator[bytes]:
        """Answer well, after so many spaces that whoever has a deadline has given up."""
        respond("200 OK", [("Content-Type", "application/json")])
        for _ in self._drops():
            yield b" "
        yield answer.body

    def _drip_headers(self, environ: WSGIEnvironment, answer: Answer) -> Iterable[bytes]:
        raw = environ["tests.raw"]
        with suppress(OSError):
            raw.write(b"HTTP/1.0 200 OK\r\nX-Padding: ")
            for _ in self._drops():
                raw.write(b"x")
            raw.write(b"\r\n\r\n" + answer.body)
        raise ConnectionAbortedError

    def _drops(self) -> Iterator[None]:
        done_at = time.monotonic() + self.drip_seconds
        while not self._released.wait(0.01) and time.monotonic() < done_at:
            yield


SECRETIVE: Final = "Zoe <zoe@guests.example> may not use sk_test_main"
"""What no message, log or answer of ours may repeat."""


def _json(status: int, body: Mapping[str, Any]) -> Answer:
    return Answer(status, json.dumps(body, indent=2).encode())


def _send(respond: StartResponse, answer: Answer, *headers: tuple[str, str]) -> Iterable[bytes]:
    kind = (
        ()
        if any(name == "Content-Type" for name, _ in answer.headers)
        else (("Content-Type", "application/json"),)
    )
    respond(
        f"{answer.status} {HTTPStatus(answer.status).phrase}",
        [*kind, *answer.headers, *headers, ("Content-Length", str(len(answer.body)))],
    )
    return [answer.body]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    @override
    def handle_error(self, request: object, client_address: object) -> None:
        """Callers may hang up."""


class _Handler(WSGIRequestHandler):
    @override
    def get_environ(self) -> WSGIEnvironment:
        return {**super().get_environ(), "tests.raw": self.wfile}

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def running(clock: Clock) -> Iterator[FakeStripeServer]:
    """Run a fake Stripe until the block's end."""
    server = FakeStripeServer(clock)
    try:
        yield server
    finally:
        server.close()
