"""The fake Mollie: its merchants, customers, payments and mandates, and the hosted page.

Source: Mollie's API reference, v2, and the guides "API idempotency" and "Handling errors".
"""

from __future__ import annotations

import hashlib
import html
import http.client
import json
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from email.utils import format_datetime
from http import HTTPStatus
from itertools import count
from threading import RLock
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

from adapters.psp.settings import is_loopback
from adapters.psp_suite.stand_in import Request, Response, StandInServer, html_response
from domain.outside import Clock
from tests.fake_mollie.described import require_request, require_response
from tests.waiting import LIMIT_SECONDS

Json: TypeAlias = Any  # as it goes over the wire

API: Final = "/v2/"
TEST_KEY: Final = "test_main"
KEYS_KEPT: Final = timedelta(hours=1)
PAGE_LIFETIME: Final = timedelta(minutes=30)
HAL: Final = "application/hal+json"
FIELDS: Final = frozenset(
    [
        *("amount", "description", "method", "sequenceType", "customerId", "locale"),
        *("metadata", "redirectUrl", "cancelUrl"),
    ]
)
"""What a payment is asked for with, and perhaps `webhookUrl` ("Create payment")."""
UNSHOWN: Final = ("number", "expiry", "challenged")
SECRETIVE: Final = "Zoe <zoe@guests.example> may not use test_main"
"""Text that no message or log of the adapter may repeat."""


class Printed(NamedTuple):
    """A test card. `challenged` asks for 3-D Secure. A card with a `failure` is refused."""

    label: str
    funding: str = "credit"
    failure: str | None = None
    challenged: bool = False


# The numbers of Mollie's guide "Testing"; Mollie refuses by amounts, and not by numbers.
GOOD: Final = "4543474002249996"
ANOTHER_GOOD: Final = "378282246310005"
REFUSED: Final = "4543474002249004"
CHALLENGED: Final = "2223000010479399"
CARDS: Final = {
    GOOD: Printed("Visa"),
    ANOTHER_GOOD: Printed("American Express"),
    REFUSED: Printed("Visa", failure="insufficient_funds"),
    CHALLENGED: Printed("Mastercard", challenged=True),
}


class Refused(Exception):
    """An error response."""

    def __init__(self, status: int, *, about: str | None = None) -> None:
        super().__init__()
        self.status = status
        self.about = about


class Saved(NamedTuple):
    """The first response under an idempotency key."""

    call: tuple[str, bytes]
    status: int
    body: Json
    at: datetime


@dataclass
class Merchant:
    """The merchant of one API key. `methods` are the payment methods that are switched on.

    With `webhook_url`, webhooks go there: a tunnel to loopback, which Mollie itself cannot call.
    """

    key: str
    methods: list[str] = field(default_factory=lambda: ["ideal", "creditcard"])
    cancelable: bool = False
    webhook_url: str | None = None
    saved: dict[str, Saved] = field(default_factory=dict)
    customers: dict[str, Json] = field(default_factory=dict)
    payments: dict[str, Json] = field(default_factory=dict)
    mandates: dict[str, Json] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)

    @property
    def mode(self) -> str:
        """`test` or `live`."""
        return self.key.partition("_")[0]

    @property
    def profile(self) -> str:
        """The id of the website."""
        return f"pfl_{hashlib.sha256(self.key.encode()).hexdigest()[:10]}"


class FakeMollie:
    """Mollie with a merchant for each key, on a separate server.

    `limit` is the largest number of objects in a part of a list.
    """

    def __init__(self, clock: Clock) -> None:
        self.merchants = {TEST_KEY: Merchant(TEST_KEY)}
        self.limit = 100
        self.broken: list[Exception] = []
        self.clock = clock
        self._numbers = count(1)
        self._lock = RLock()
        self.server = StandInServer(self._respond, api=API)
        self.url = self.server.url

    @property
    def main(self) -> Merchant:
        """The merchant of TEST_KEY."""
        return self.merchants[TEST_KEY]

    def close(self) -> None:
        """Stop the server. Raises the first fault, such as a request that is not as described."""
        self.server.close()
        if self.broken:
            raise self.broken[0]

    def _respond(self, request: Request) -> Response:
        try:
            if not request.path.startswith(API):
                return self._page(request)
            return self._called(request)
        except Exception as error:
            self.broken.append(error)
            raise

    # The API

    def _called(self, request: Request) -> Response:
        assert "" not in request.path.split("/")[1:], "a part of the path is empty"
        require_request(request.method, request.path, request.query, request.body)
        try:
            with self._lock:
                status, body = self._once(self._merchant(request), request)
        except Refused as refused:
            status, body = refused.status, an_error(refused.status, about=refused.about)
        sent = b"" if body is None else json.dumps(body, indent=1).encode()
        require_response(request.method, request.path, status, sent)
        date = format_datetime(self.clock.now(), usegmt=True)
        return Response(status, sent, {"Content-Type": HAL, "Date": date})

    def _merchant(self, request: Request) -> Merchant:
        key = request.headers.get("authorization", "").removeprefix("Bearer ")
        if key not in self.merchants:
            raise Refused(401)
        return self.merchants[key]

    def _once(self, merchant: Merchant, request: Request) -> tuple[int, Json]:
        key = request.headers.get("idempotency-key") if request.method == "POST" else None
        if key is None:
            return self._handled(merchant, request)
        assert UUID(key).version == 4
        saved, call = merchant.saved.get(key), (request.call, request.body)
        if saved is not None and self.clock.now() - saved.at < KEYS_KEPT:
            if saved.call != call:
                raise Refused(400)
            return saved.status, json.loads(saved.body)
        status, body = self._handled(merchant, request)
        merchant.saved[key] = Saved(call, status, json.dumps(body), self.clock.now())
        return status, body

    def _handled(self, merchant: Merchant, request: Request) -> tuple[int, Json]:
        asked = json.loads(request.body or b"{}")
        call = request.method, *request.path.removeprefix(API).split("/")
        match call:
            case "GET", "profiles", "me":
                return 200, self._profile(merchant)
            case "GET", "methods":
                return 200, self._methods(merchant)
            case "POST", "payments":
                return 201, self._shown(merchant, self._create_payment(merchant, asked))
            case "GET", "payments", payment:
                return 200, self._shown(merchant, self._current(merchant, payment))
            case "DELETE", "payments", payment:
                return 200, self._shown(merchant, self._cancel(merchant, payment))
            case "GET", ("customers" | "payments") as kind:
                return 200, self._listed(merchant, kind, request)
            case _:
                return self._about_customer(merchant, call, asked)

    def _about_customer(
        self, merchant: Merchant, call: tuple[str, ...], asked: Json
    ) -> tuple[int, Json]:
        match call:
            case "POST", "customers":
                return 201, self._create_customer(merchant, asked)
            case "PATCH", "customers", customer:
                found = _find(merchant, merchant.customers, customer)
                self._require_email(asked)
                found.update(asked)
                return 200, found
            case "DELETE", "customers", customer:
                self.delete_customer(merchant, customer)
                return 204, None
            case "GET", "customers", customer, "mandates", mandate:
                return 200, self._mandate(merchant, customer, mandate)
            case "DELETE", "customers", customer, "mandates", mandate:
                self._mandate(merchant, customer, mandate)
                merchant.gone.add(mandate)
                return 204, None
            case _:
                raise Refused(404)

    def _create_customer(self, merchant: Merchant, asked: Json) -> Json:
        self._require_email(asked)
        customer = {
            "resource": "customer",
            "id": self._id("cst"),
            "mode": merchant.mode,
            "name": asked.get("name"),
            "email": asked.get("email"),
            "locale": None,
            "metadata": asked["metadata"],
            "createdAt": self._now(),
        }
        customer["_links"] = self._links(f"customers/{customer['id']}")
        merchant.customers[customer["id"]] = customer
        return customer

    def _require_email(self, asked: Json) -> None:
        if not (asked.get("email") or "").isascii():
            raise Refused(422, about="email")

    def _create_payment(self, merchant: Merchant, asked: Json) -> Json:
        assert asked["customerId"].startswith("cst_")
        if asked["customerId"] in merchant.gone or asked["customerId"] not in merchant.customers:
            raise Refused(422, about="customerId")
        if asked["method"] not in merchant.methods:
            raise Refused(422, about="method")
        if is_loopback(asked.get("webhookUrl") or ""):
            raise Refused(422, about="webhookUrl")
        # Mollie ignores fields that it does not know.
        assert asked.keys() - {"webhookUrl"} == FIELDS
        assert (asked["amount"]["value"], asked["sequenceType"]) == ("0.00", "first")
        assert re.fullmatch("[a-z]{2}_[A-Z]{2}", asked["locale"])
        payment = {
            "resource": "payment",
            "id": self._id("tr"),
            "mode": merchant.mode,
            "status": "open",
            "createdAt": self._now(),
            "expiresAt": self._now(PAGE_LIFETIME),
            "isCancelable": merchant.cancelable,
            "profileId": merchant.profile,
            **asked,
        }
        merchant.payments[payment["id"]] = payment
        return payment

    def _cancel(self, merchant: Merchant, reference: str) -> Json:
        payment = self._current(merchant, reference)
        if not payment.get("isCancelable"):
            raise Refused(422)
        return self._ended(payment, "canceled")

    def _shown(self, merchant: Merchant, payment: Json) -> Json:
        links = self._links(f"payments/{payment['id']}")
        if payment["status"] == "open":
            links["checkout"] = {
                "href": f"{self.url}/checkout/{payment['id']}",
                "type": "text/html",
            }
        shown = {name: value for name, value in payment.items() if name not in UNSHOWN}
        return {**shown, "_links": links}

    def _mandate(self, merchant: Merchant, customer: str, reference: str) -> Json:
        if reference in merchant.mandates:
            _find(merchant, merchant.customers, merchant.mandates[reference]["customerId"])
        mandate = _find(merchant, merchant.mandates, reference)
        if mandate["customerId"] != customer:
            raise Refused(404)
        return mandate

    def delete_customer(self, merchant: Merchant, reference: str) -> None:
        """Delete a customer with the mandates, as the API or the dashboard does."""
        _find(merchant, merchant.customers, reference)
        merchant.gone.add(reference)
        merchant.gone |= {
            mandate["id"]
            for mandate in merchant.mandates.values()
            if mandate["customerId"] == reference
        }

    def _profile(self, merchant: Merchant) -> Json:
        return {
            "resource": "profile",
            "id": merchant.profile,
            "mode": merchant.mode,
            "name": "Harbor Spa",
            "website": "https://spa.example",
            "email": "office@spa.example",
            "phone": "+31208202070",
            "businessCategory": "OTHER_MERCHANDISE",
            "status": "verified",
            "createdAt": self._now(),
            "_links": self._links(f"profiles/{merchant.profile}"),
        }

    def _methods(self, merchant: Merchant) -> Json:
        shown = [
            {
                "resource": "method",
                "id": each,
                "description": each,
                "minimumAmount": {"currency": "EUR", "value": "0.01"},
                "maximumAmount": None,
                "image": dict.fromkeys(("size1x", "size2x", "svg"), f"{self.url}/{each}.svg"),
                "status": "activated",
                "_links": self._links(f"methods/{each}"),
            }
            for each in merchant.methods
        ]
        return {
            "count": len(shown),
            "_embedded": {"methods": shown},
            "_links": self._links("methods"),
        }

    def _listed(self, merchant: Merchant, kind: str, request: Request) -> Json:
        every = merchant.customers if kind == "customers" else merchant.payments
        query = parse_qs(request.query)
        newest = [each for each in reversed(every.values()) if each["id"] not in merchant.gone]
        if "from" in query:
            ids = [each["id"] for each in newest]
            newest = newest[ids.index(query["from"][0]) :]
        part, rest = newest[: self.limit], newest[self.limit :]
        following = f"{self.url}{API}{kind}?limit=100&from={rest[0]['id']}" if rest else None
        links = self._links(kind)
        return {
            "count": len(part),
            "_embedded": {
                kind: [self._shown(merchant, each) if kind == "payments" else each for each in part]
            },
            "_links": {
                "self": links["self"],
                "documentation": links["documentation"],
                "previous": None,
                "next": following and {"href": following, "type": HAL},
            },
        }

    def _links(self, path: str) -> Json:
        links = {
            name: {"href": f"{self.url}{API}{path}", "type": HAL}
            for name in ("self", "dashboard", "documentation")
        }
        if "/" not in path:
            del links["dashboard"]
        return links

    # The guest

    def open_payment(self, reference: str) -> tuple[Merchant, Json]:
        """Return a payment of any merchant as it is now, and its merchant."""
        with self._lock:
            merchant = next(each for each in self.merchants.values() if reference in each.payments)
            return merchant, self._current(merchant, reference)

    def type_card(self, reference: str, number: str, expiry: tuple[int, int] = (9, 2031)) -> None:
        """Type a card as the guest. This has no effect if the page is over."""
        with self._lock:
            merchant, payment = self.open_payment(reference)
            if payment["status"] != "open":
                return
            details = self._details(merchant, number)
            payment["number"], payment["expiry"] = number, expiry
            if (failure := CARDS[number].failure) is not None:
                self._fail(payment, {**details, "failureReason": failure})
            elif CARDS[number].challenged:
                payment["challenged"] = True
            else:
                self._pay(merchant, payment, "normal")

    def answer_challenge(self, reference: str, *, confirmed: bool) -> None:
        """Pass or fail the challenge as the guest. This has no effect without a challenge."""
        with self._lock:
            merchant, payment = self.open_payment(reference)
            if payment["status"] != "open" or not payment.pop("challenged", False):
                return
            if confirmed:
                self._pay(merchant, payment, "3dsecure")
            else:
                self._fail(payment, {"failureReason": "authentication_failed"})

    def update_card(self, merchant: Merchant, mandate: str, number: str, expiry: Any) -> None:
        """Give a stored card another number and expiry date."""
        with self._lock:
            merchant.mandates[mandate]["details"] = self._of_mandate(merchant, number, expiry)

    def _pay(self, merchant: Merchant, payment: Json, security: str) -> None:
        number, expiry = payment.pop("number"), payment.pop("expiry")
        mandate = {
            "resource": "mandate",
            "id": self._id("mdt"),
            "mode": merchant.mode,
            "status": "valid",
            "method": "creditcard",
            "customerId": payment["customerId"],
            "mandateReference": None,
            "signatureDate": self._now()[:10],
            "scopes": ["customer-present", "customer-not-present"],
            "createdAt": self._now(),
            "details": self._of_mandate(merchant, number, expiry),
        }
        links = self._links(f"customers/{payment['customerId']}/mandates/{mandate['id']}")
        links["customer"] = links.pop("dashboard")
        mandate["_links"] = links
        merchant.mandates[mandate["id"]] = mandate
        payment["mandateId"] = mandate["id"]
        self._ended(payment, "paid")
        payment["details"] = {
            **self._details(merchant, number),
            "cardExpiryDate": f"{expiry[0]:02}/{expiry[1] % 100:02}",
            "cardSecurity": security,
            "cardFunding": CARDS[number].funding,
            "cardCountryCode": "NL",
            "wallet": None,
        }

    def _fail(self, payment: Json, details: Json) -> None:
        del payment["number"], payment["expiry"]
        self._ended(payment, "failed")
        payment["details"] = {**details, "failureMessage": SECRETIVE}

    def _details(self, merchant: Merchant, number: str) -> Json:
        return {
            "cardNumber": number[-4:],
            "cardHolder": "Zoë Null",
            "cardLabel": CARDS[number].label,
            "cardFingerprint": hashlib.sha256(f"{merchant.key}{number}".encode()).hexdigest()[:16],
        }

    def _of_mandate(self, merchant: Merchant, number: str, expiry: tuple[int, int]) -> Json:
        return {
            **self._details(merchant, number),
            "cardExpiryDate": f"{expiry[1]}-{expiry[0]:02}-01",
        }

    def _ended(self, payment: Json, status: str) -> Json:
        for name in ("isCancelable", "expiresAt"):
            payment.pop(name, None)
        payment |= {"status": status, f"{status}At": self._now()}
        return payment

    def _current(self, merchant: Merchant, reference: str) -> Json:
        payment = _find(merchant, merchant.payments, reference)
        ends_at = payment.get("expiresAt")
        if ends_at is not None and self.clock.now() >= datetime.fromisoformat(ends_at):
            self._ended(payment, "expired")
        return payment

    def _id(self, prefix: str) -> str:
        return f"{prefix}_{next(self._numbers):06}"

    def _now(self, later: timedelta = timedelta(0)) -> str:
        return (self.clock.now() + later).isoformat(timespec="seconds")

    # The page

    def _page(self, request: Request) -> Response:
        match = _PATH.fullmatch(request.path)
        if match is None:
            return _html("<h1>Not found</h1>", 404)
        reference, answer = match[1], match[2]
        merchant, payment = self.open_payment(reference)
        if request.method == "POST" and payment["status"] == "open":
            typed = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
            self._submitted(merchant, payment, answer, typed)
            self.tell(merchant, payment)
        if payment["status"] == "canceled":
            return _redirect(payment["cancelUrl"])
        if payment["status"] != "open":
            return _redirect(payment["redirectUrl"])
        page = _CHALLENGE if payment.get("challenged") else _FORM
        return _html(page.format(id=reference, name=html.escape(payment["description"])))

    def _submitted(
        self, merchant: Merchant, payment: Json, answer: str, typed: dict[str, str]
    ) -> None:
        reference = payment["id"]
        if answer == "/cancel":
            self._ended(payment, "canceled")
        elif answer == "/challenge":
            self.answer_challenge(reference, confirmed=typed["answer"] == "Authenticate")
        else:
            month, year = typed["expiry"].split("/")
            number = typed["number"].replace(" ", "")
            self.type_card(reference, number, (int(month), 2000 + int(year)))

    def tell(self, merchant: Merchant, payment: Json) -> None:
        """Send a webhook about a payment that is over ("Webhooks")."""
        if merchant.webhook_url is None or payment["status"] == "open":
            return
        target = urlsplit(merchant.webhook_url)
        with closing(
            http.client.HTTPConnection(str(target.hostname), target.port, timeout=LIMIT_SECONDS)
        ) as connection:
            form = {"Content-Type": "application/x-www-form-urlencoded"}
            connection.request("POST", target.path, f"id={payment['id']}", form)
            connection.getresponse().read()


_PATH: Final = re.compile(r"/checkout/(tr_\w+)(/challenge|/cancel|)")
_FORM: Final = """<h1>Card</h1><p>{name}</p><form method="post">
<p><label>Card number <input name="number" required></label></p>
<p><label>Expiry date <input name="expiry" required></label></p>
<p><label>CVC <input name="cvc" required></label></p>
<button>Continue</button></form>
<form method="post" action="/checkout/{id}/cancel"><button>Back to the shop</button></form>"""
_CHALLENGE: Final = """<h1>3-D Secure</h1><form method="post" action="/checkout/{id}/challenge">
<button name="answer" value="Authenticate">Authenticate</button>
<button name="answer" value="Fail">Fail</button></form>"""


def an_error(status: int, *, about: str | None = None) -> Json:
    """Return the body of an error."""
    error = {
        "status": status,
        "title": HTTPStatus(status).phrase,
        "detail": SECRETIVE,
        "_links": {
            "documentation": {
                "href": "https://docs.mollie.com/overview/handling-errors",
                "type": "text/html",
            }
        },
    }
    return error if about is None else {**error, "field": about}


def _find(merchant: Merchant, among: dict[str, Json], reference: str) -> Json:
    if reference not in among:
        raise Refused(404)
    if reference in merchant.gone:
        raise Refused(410)
    return among[reference]


def _html(body: str, status: int = 200) -> Response:
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Checkout</title>'
        f'<link rel="icon" href="data:,"></head><body><main>{body}</main></body></html>'
    )
    return html_response(page, status)


def _redirect(address: str) -> Response:
    return Response(303, headers={"Content-Type": "text/html", "Location": address})


@contextmanager
def running(clock: Clock) -> Iterator[FakeMollie]:
    """Run a fake Mollie until the block's end."""
    with closing(FakeMollie(clock)) as mollie:
        yield mollie
