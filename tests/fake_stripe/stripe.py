"""Records of the fake Stripe: merchants with customers, pages, payment methods and events."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from typing import Any, Final, NamedTuple, TypeAlias

from domain.outside import Clock
from tests.fake_stripe.described import require_event
from tests.fake_stripe.parameters import (
    NOTHING,
    Form,
    Refused,
    Value,
    check,
    country,
    currency,
    email,
    hex_color,
    integer,
    list_of,
    metadata,
    object_or_nothing,
    one_of,
    text,
    url,
)

# Any: objects of the API are whatever JSON they are.
Object: TypeAlias = dict[str, Any]
Given: TypeAlias = Mapping[str, Value]
"""The parameters of a call."""

KEYS_KEPT: Final = timedelta(hours=24)
SHORTEST_LIFE: Final = timedelta(minutes=30)
LONGEST_LIFE: Final = timedelta(hours=24)

TEST_KEY: Final = "sk_test_main"
TEST_SECRET: Final = "whsec_main"


class BankCard(NamedTuple):
    """A test card of "Testing", with the reactions of its bank to the card and to the address."""

    brand: str
    funding: str = "credit"
    is_declined: bool = False
    is_challenged: bool = False
    line1: str = "pass"
    postal_code: str = "pass"


TEST_CARDS: Final[Mapping[str, BankCard]] = {
    "4242424242424242": BankCard("visa"),
    "5555555555554444": BankCard("mastercard"),
    "5105105105105100": BankCard("mastercard", "prepaid"),
    "4000000000000002": BankCard("visa", is_declined=True),
    "4000002500003155": BankCard("visa", is_challenged=True),
    "4000000000000010": BankCard("visa", line1="fail", postal_code="fail"),
    "4000000000000036": BankCard("visa", postal_code="fail"),
    "4000000000000028": BankCard("visa", line1="fail"),
    "4000000000000044": BankCard("visa", line1="unavailable", postal_code="unavailable"),
}


FORCED: Final = ("any", "challenge")
"""The values of `request_three_d_secure` that request 3-D Secure regardless of Stripe's rules."""

METHOD_TYPES: Final = ("card", "link", "sepa_debit", "us_bank_account")
"""Some of the API's types of payment methods."""


_LOCALES = (
    "bg cs da de el en en-GB es es-419 et fi fil fr fr-CA hi-IN hr hu id it ja ko lt lv ms mt nb "
    "nl pl pt pt-BR ro ru sk sl sv th tr vi zh zh-HK zh-TW"
)
LOCALES: Final = _LOCALES.split()
"""The languages of Checkout ("Create a Session", `locale`)."""


_ADDRESS: Final[Mapping[str, Form]] = {
    "line1": text(),
    "city": text(),
    "state": text(),
    "postal_code": text(),
    "country": country,
}
_CUSTOMER: Final[Mapping[str, Form]] = {
    "name": text(256),
    "email": email,
    "phone": text(20),
    "address": object_or_nothing(_ADDRESS),
    "metadata": metadata,
}
_CHECKOUT: Final[Mapping[str, Form]] = {
    "mode": one_of("setup"),
    "allowed_payment_method_types": list_of(one_of(*METHOD_TYPES)),
    "wallet_options": {"link": {"display": one_of("auto", "never")}},
    "currency": currency,
    "locale": one_of("auto", *LOCALES),
    "customer": text(),
    "client_reference_id": text(200),
    "metadata": metadata,
    "setup_intent_data": {"metadata": metadata},
    "success_url": url,
    "cancel_url": url,
    "expires_at": integer,
    "consent_collection": {
        "payment_method_reuse_agreement": {"position": one_of("auto", "hidden")}
    },
    "custom_text": {
        "submit": {"message": text(1200)},
        "after_submit": {"message": text(1200)},
    },
    "payment_method_options": {
        "card": {
            "request_three_d_secure": one_of("any", "automatic", "challenge"),
            "restrictions": {
                "funding_types_blocked": list_of(one_of("credit", "debit", "prepaid"))
            },
        }
    },
    "branding_settings": {
        "display_name": text(),
        "button_color": hex_color,
        "logo": {"type": one_of("url"), "url": url},
    },
    "billing_address_collection": one_of("auto", "required"),
}
_SESSION_LIST: Final[Mapping[str, Form]] = {
    "customer": text(),
    "status": one_of("open", "complete", "expired"),
    "limit": integer,
}
_METHOD_LIST: Final[Mapping[str, Form]] = {
    "type": one_of("card"),
    "limit": integer,
    "starting_after": text(),
    "expand": list_of(lambda _, value: value),
}
_REQUIRED: Final = ("mode", "success_url")
_BRANDING: Final[Object] = {
    "background_color": "#ffffff",
    "border_style": "rounded",
    "button_color": "#0074d4",
    "display_name": "The chain of spas",
    "font_family": "default",
}
"""The branding of a page without `branding_settings`."""


class Saved(NamedTuple):
    """A response that was saved under an idempotency key, with its call."""

    call: tuple[str, str]
    status: int
    body: Object
    at: datetime


@dataclass
class Merchant:
    """An account at Stripe in one of its modes.

    `offered` contains the types of payment methods that are switched on in the dashboard.
    """

    key: str
    webhook_secret: str
    offered: tuple[str, ...] = ("card", "us_bank_account")
    webhook_url: str | None = None
    webhook_endpoints: list[Object] = field(default_factory=list)
    customers: dict[str, Object] = field(default_factory=dict)
    sessions: dict[str, Object] = field(default_factory=dict)
    intents: dict[str, Object] = field(default_factory=dict)
    methods: dict[str, Object] = field(default_factory=dict)
    attempts: dict[str, Object] = field(default_factory=dict)
    events: list[Object] = field(default_factory=list)
    saved: dict[str, Saved] = field(default_factory=dict)

    @property
    def account_id(self) -> str:
        """The id of the account, which is the same for all its keys and in both modes."""
        return f"acct_{self.key.split('_')[2]}"

    @property
    def is_live(self) -> bool:
        """Whether the merchant is in live mode."""
        return "_live_" in self.key


class FakeStripe:
    """The fake Stripe without its sockets. `url` is the base address of its pages."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.url = ""
        self.lock = threading.RLock()
        self.merchants: dict[str, Merchant] = {}
        self.code_without_customer: str | None = None
        """The error code for a detachment from a deleted customer, which Stripe does not document."""
        self.refused_options: set[str] = set()
        """Whether pages with card options are refused."""
        self.broken: list[AssertionError] = []
        self._numbers = count(1)
        self.main = self.add_merchant(TEST_KEY, TEST_SECRET)

    def add_merchant(self, key: str, webhook_secret: str) -> Merchant:
        """Add a merchant account."""
        merchant = Merchant(key=key, webhook_secret=webhook_secret)
        self.merchants[key] = merchant
        return merchant

    def require(self, check: Callable[..., None], *sent: object) -> None:
        """Check what was sent. Closing the server raises the first fault."""
        try:
            check(*sent)
        except AssertionError as fault:
            self.broken.append(fault)

    def now(self) -> int:
        """Return the time in Unix seconds."""
        return int(self.clock.now().timestamp())

    # The API

    def retrieve_account(self, merchant: Merchant, given: Given) -> Object:
        """Retrieve the account of a key. The response does not contain the mode."""
        check(given, NOTHING)
        return {"id": merchant.account_id, "object": "account", "type": "standard"}

    def list_webhook_endpoints(self, merchant: Merchant, given: Given) -> Object:
        """List the webhook endpoints."""
        check(given, {"limit": integer})
        frame = {"id": "we_1", "object": "webhook_endpoint", "created": self.now(), "metadata": {}}
        found = [frame | endpoint for endpoint in merchant.webhook_endpoints]
        return _list("webhook_endpoints", found, has_more=False)

    def create_customer(self, merchant: Merchant, given: Given) -> Object:
        """Create a customer."""
        customer = self._object(merchant, "cus", "customer")
        customer |= {"name": None, "email": None, "phone": None, "address": None, "metadata": {}}
        customer |= check(given, _CUSTOMER)
        merchant.customers[customer["id"]] = customer
        return customer

    def update_customer(self, merchant: Merchant, given: Given, reference: str) -> Object:
        """Update a customer. Refused if the customer was deleted."""
        checked = check(given, _CUSTOMER)
        customer = _find(merchant.customers, "customer", reference)
        if customer.get("deleted"):
            raise _missing("customer", reference)
        customer |= checked
        return customer

    def retrieve_customer(self, merchant: Merchant, given: Given, reference: str) -> Object:
        """Retrieve a customer, even if the customer was deleted."""
        check(given, NOTHING)
        return _find(merchant.customers, "customer", reference)

    def remove_customer(self, merchant: Merchant, given: Given, reference: str) -> Object:
        """Delete a customer. Refused if the customer was deleted before."""
        check(given, NOTHING)
        if _find(merchant.customers, "customer", reference).get("deleted"):
            raise _missing("customer", reference)
        self.delete_customer(merchant, reference)
        return merchant.customers[reference]

    def delete_customer(self, merchant: Merchant, reference: str) -> None:
        """Delete a customer, as in the dashboard. Its payment methods keep its id.

        Stripe does not document what happens to them.
        """
        with self.lock:
            merchant.customers[reference] = {"id": reference, "object": "customer", "deleted": True}

    def create_session(self, merchant: Merchant, given: Given) -> Object:
        """Create a Checkout Session in setup mode, with its SetupIntent."""
        checked = check(given, _CHECKOUT)
        for name in _REQUIRED:
            if name not in checked:
                raise Refused(
                    f"Missing required param: {name}.", code="parameter_missing", param=name
                )
        customer = str(checked.get("customer"))
        if merchant.customers.get(customer, {"deleted": True}).get("deleted"):
            raise _missing("customer", customer, status=400, param="customer")
        expires_at = checked.get("expires_at", self.now() + LONGEST_LIFE.total_seconds())
        self._check_end(expires_at)
        self._fetch_logo(given)
        self._take_options(given)
        intent = self._new_intent(
            merchant,
            customer,
            metadata=checked.pop("setup_intent_data", {}).get("metadata", {}),  # type: ignore[union-attr]  # checked above
        )
        mode = "live" if merchant.is_live else "test"
        session = self._object(merchant, f"cs_{mode}", "checkout.session")
        session |= {"client_reference_id": None, "metadata": {}, "custom_text": {}, **checked}
        session |= {
            "automatic_tax": {"enabled": False},
            "branding_settings": _BRANDING | session.get("branding_settings", {}),
            "custom_fields": [],
            "shipping_options": [],
            "expires_at": expires_at,
            # The allowed types are a selection of the types that are switched on.
            "payment_method_types": [
                each for each in merchant.offered if each in self._allowed(checked)
            ],
            "payment_status": "no_payment_required",
            "setup_intent": intent["id"],
            "status": "open",
            "url": f"{self.url}/c/pay/{session['id']}",
        }
        for options in session.get("payment_method_options", {}).values():
            options.setdefault("request_three_d_secure", "automatic")
        merchant.sessions[session["id"]] = session
        return session

    def _fetch_logo(self, given: Any) -> None:
        logo = given.get("branding_settings", {}).get("logo", {}).get("url", "")
        if "/missing/" in logo:
            raise Refused("No logo", param="branding_settings[logo][url]", is_saved=True)

    def _take_options(self, given: Any) -> None:
        for option in given.get("payment_method_options", {}).get("card", {}):
            if option in self.refused_options:
                param = f"payment_method_options[card][{option}]"
                raise Refused("Not in this mode", param=param, is_saved=True)

    def _new_intent(self, merchant: Merchant, customer: str, *, metadata: Any) -> Object:
        intent = self._object(merchant, "seti", "setup_intent")
        intent |= {
            "customer": customer,
            "status": "requires_payment_method",
            "payment_method": None,
            "payment_method_types": ["card"],
            "latest_attempt": None,
            "last_setup_error": None,
            "usage": "off_session",
            "metadata": metadata,
        }
        merchant.intents[intent["id"]] = intent
        return intent

    @staticmethod
    def _allowed(checked: Mapping[str, Any]) -> Sequence[str]:
        """Return the allowed payment method types. A call without types must have a currency."""
        if "allowed_payment_method_types" in checked:
            allowed: Sequence[str] = checked["allowed_payment_method_types"]
            return allowed
        if "currency" not in checked:
            raise Refused(
                "Missing required param: currency.", code="parameter_missing", param="currency"
            )
        return METHOD_TYPES

    def _check_end(self, expires_at: Any) -> None:
        left = timedelta(seconds=expires_at - self.now())
        if left < SHORTEST_LIFE:
            raise Refused("`expires_at` must be at least 30 minutes from now.", param="expires_at")
        if left > LONGEST_LIFE:
            raise Refused("`expires_at` must be less than 24 hours from now.", param="expires_at")

    def retrieve_session(self, merchant: Merchant, given: Given, reference: str) -> Object:
        """Retrieve a Checkout Session, expanded if requested."""
        wanted = check(given, {"expand": list_of(lambda _, value: value)}).get("expand", [])
        session = dict(self._session(merchant, reference))
        if wanted:
            assert wanted == [
                "setup_intent.payment_method",
                "setup_intent.latest_attempt",
                "customer",
            ], "nothing else is expanded"
            session["customer"] = merchant.customers[session["customer"]]
            intent = dict(merchant.intents[session["setup_intent"]])
            method, attempt = intent["payment_method"], intent["latest_attempt"]
            session["setup_intent"] = intent | {
                "payment_method": merchant.methods[method] if method else None,
                "latest_attempt": merchant.attempts[attempt] if attempt else None,
            }
        return session

    def list_sessions(self, merchant: Merchant, given: Given) -> Object:
        """List a customer's Checkout Sessions with a status, newest first."""
        asked = check(given, _SESSION_LIST)
        sessions = [self._session(merchant, reference) for reference in merchant.sessions]
        found = [
            each
            for each in reversed(sessions)
            if (asked["customer"], asked["status"]) == (each["customer"], each["status"])
        ]
        at_most = int(str(asked.get("limit", 10)))
        if not 1 <= at_most <= 100:
            raise Refused("Invalid limit", code="parameter_invalid_integer", param="limit")
        return _list("checkout/sessions", found[:at_most], has_more=len(found) > at_most)

    def expire_session(self, merchant: Merchant, given: Given, reference: str) -> Object:
        """Expire a Checkout Session that is open."""
        check(given, NOTHING)
        session = self._session(merchant, reference)
        if session["status"] != "open":
            raise Refused('Only Checkout Sessions with a status in ["open"] can be expired.')
        return self._expired(merchant, session)

    def retrieve_method(self, merchant: Merchant, given: Given, reference: str) -> Object:
        """Retrieve a PaymentMethod, even if detached. Contains the customer if it was expanded."""
        wanted = check(given, {"expand": list_of(lambda _, value: value)}).get("expand", [])
        method = _find(merchant.methods, "PaymentMethod", reference)
        if not wanted or method["customer"] is None:
            return method
        assert wanted == ["customer"], "nothing else is expanded"
        return method | {"customer": merchant.customers[method["customer"]]}

    def list_methods(self, merchant: Merchant, given: Given) -> Object:
        """List PaymentMethods of a type with their customers, newest first, even if detached."""
        asked = check(given, _METHOD_LIST)
        assert asked["expand"] == ["data.customer"], "nothing else is expanded"
        after = asked.get("starting_after")
        if after is not None:
            _find(merchant.methods, "PaymentMethod", str(after))
        newest = list(reversed(merchant.methods.values()))
        begin = 0 if after is None else [each["id"] for each in newest].index(after) + 1
        found = [each for each in newest[begin:] if each["type"] == asked["type"]]
        at_most = int(str(asked.get("limit", 10)))
        shown = [
            each | {"customer": merchant.customers.get(each["customer"])}
            for each in found[:at_most]
        ]
        return _list("payment_methods", shown, has_more=len(found) > at_most)

    def detach_method(self, merchant: Merchant, given: Given, reference: str) -> Object:
        """Detach a PaymentMethod. Refused if it is detached or if its customer was deleted."""
        check(given, NOTHING)
        method = _find(merchant.methods, "PaymentMethod", reference)
        if method["customer"] is None:
            raise Refused(
                "The payment method you provided is not attached to a customer so detachment is "
                "impossible."
            )
        if merchant.customers.get(method["customer"], {"deleted": True}).get("deleted"):
            raise Refused(
                f"No such customer: '{method['customer']}'", code=self.code_without_customer
            )
        method["customer"] = None
        return method

    # The page

    def open_session(self, reference: str) -> tuple[Merchant, Object]:
        """Return the merchant and the session of a page. Raises Refused."""
        with self.lock:
            for merchant in self.merchants.values():
                if reference in merchant.sessions:
                    return merchant, self._session(merchant, reference)
        raise _missing("checkout.session", reference)

    def submit_card(
        self,
        reference: str,
        number: str,
        *,
        expiry: tuple[int, int] = (9, 2031),
        address: Mapping[str, str] | None = None,
    ) -> str:
        """Submit a card on an open page. Returns the status of the SetupIntent. Raises Refused."""
        with self.lock:
            merchant, session = self.open_session(reference)
            if session["status"] != "open":
                raise Refused("This Checkout Session is over.")
            intent = merchant.intents[session["setup_intent"]]
            options = session.get("payment_method_options", {}).get("card", {})
            blocked = options.get("restrictions", {}).get("funding_types_blocked", [])
            if number in TEST_CARDS and TEST_CARDS[number].funding in blocked:
                # The page shows this error, and confirms nothing.
                return str(intent["status"])
            is_checked = session.get("billing_address_collection") == "required"
            status = self._confirm(
                merchant,
                intent,
                number,
                expiry=expiry,
                address=(address or {}) if is_checked else None,
            )
            if status == "succeeded" and options.get("request_three_d_secure") in FORCED:
                intent["status"] = status = "requires_action"
            return self._succeeded(merchant, session, intent) if status == "succeeded" else status

    def _confirm(
        self,
        merchant: Merchant,
        intent: Object,
        number: str,
        *,
        expiry: tuple[int, int] = (9, 2031),
        address: Mapping[str, str] | None = None,
    ) -> str:
        """Confirm a SetupIntent with a card. Returns the status of the SetupIntent."""
        card = TEST_CARDS.get(number)
        if card is None or card.is_declined:
            return self._failed(merchant, intent, "card_declined", "generic_decline")
        method = self.add_method(
            merchant,
            "card",
            {
                **card_details(merchant, number, expiry),
                "checks": {
                    "address_line1_check": None if address is None else card.line1,
                    "address_postal_code_check": None if address is None else card.postal_code,
                    "cvc_check": "pass",
                },
            },
            address=address,
        )
        intent |= {"payment_method": method["id"], "last_setup_error": None}
        intent["status"] = "requires_action" if card.is_challenged else "succeeded"
        return str(intent["status"])

    def submit_link(self, reference: str) -> str:
        """Use a Link account on an open page. Returns the status of the SetupIntent.

        Raises Refused if the page hides Link.
        """
        with self.lock:
            merchant, session = self.open_session(reference)
            if session.get("wallet_options", {}).get("link", {}).get("display") == "never":
                raise Refused("This page does not show Link.")
            link = {
                "brand": "link",
                "last4": "0000",
                "exp_month": 12,
                "exp_year": 2050,
                "fingerprint": None,
                "funding": "unknown",
                "checks": {
                    "address_line1_check": None,
                    "address_postal_code_check": None,
                    "cvc_check": None,
                },
            }
            return self._submit_other(merchant, session, "card", link)

    def submit_bank_account(self, reference: str) -> str:
        """Use a bank account on an open page that offers bank accounts, like `submit_link`."""
        with self.lock:
            merchant, session = self.open_session(reference)
            if "us_bank_account" not in session["payment_method_types"]:
                raise Refused("This page does not take bank accounts.")
            bank = {"bank_name": "STRIPE TEST BANK", "last4": "6789", "fingerprint": "x"}
            return self._submit_other(merchant, session, "us_bank_account", bank)

    def _submit_other(self, merchant: Merchant, session: Object, kind: str, details: Object) -> str:
        intent = merchant.intents[session["setup_intent"]]
        method = self.add_method(merchant, kind, details)
        intent |= {"payment_method": method["id"], "last_setup_error": None}
        return self._succeeded(merchant, session, intent)

    def add_method(
        self,
        merchant: Merchant,
        kind: str,
        details: Object,
        *,
        address: Mapping[str, str] | None = None,
    ) -> Object:
        """Add a detached PaymentMethod."""
        method = self._object(merchant, "pm", "payment_method")
        method |= {
            "type": kind,
            "customer": None,
            "billing_details": {"address": dict(address or {})},
            kind: details,
        }
        merchant.methods[method["id"]] = method
        return method

    def update_card(
        self, merchant: Merchant, reference: str, number: str, *, expiry: tuple[int, int]
    ) -> None:
        """Update a card that its bank has replaced."""
        with self.lock:
            method = merchant.methods[reference]
            method["card"] |= card_details(merchant, number, expiry)
            self.tell(merchant, "payment_method.automatically_updated", method)

    def answer_challenge(self, reference: str, *, confirmed: bool) -> str:
        """Pass or fail the challenge. Returns the status of the SetupIntent. Raises Refused."""
        with self.lock:
            merchant, session = self.open_session(reference)
            intent = merchant.intents[session["setup_intent"]]
            if session["status"] != "open" or intent["status"] != "requires_action":
                raise Refused("There is no challenge.")
            if confirmed:
                secure = {"result": "authenticated", "version": "2.2.0"}
                return self._succeeded(merchant, session, intent, three_d_secure=secure)
            return self._failed(merchant, intent, "setup_intent_authentication_failure")

    def _failed(
        self, merchant: Merchant, intent: Object, code: str, decline_code: str | None = None
    ) -> str:
        error = {"type": "card_error", "code": code, "message": "Refused."}
        intent |= {
            "status": "requires_payment_method",
            "payment_method": None,
            # Stripe leaves the field out if the card was not declined.
            "last_setup_error": error | ({"decline_code": decline_code} if decline_code else {}),
        }
        self.tell(merchant, "setup_intent.setup_failed", intent)
        return "requires_payment_method"

    def _succeeded(
        self,
        merchant: Merchant,
        session: Object,
        intent: Object,
        *,
        three_d_secure: Object | None = None,
    ) -> str:
        method = merchant.methods[intent["payment_method"]]
        method["customer"] = session["customer"]
        attempt = self._object(merchant, "setatt", "setup_attempt")
        details = {"three_d_secure": three_d_secure} if method["type"] == "card" else {}
        attempt |= {
            "setup_intent": intent["id"],
            "payment_method": method["id"],
            "payment_method_details": {"type": method["type"], method["type"]: details},
            "status": "succeeded",
            "usage": "off_session",
        }
        merchant.attempts[attempt["id"]] = attempt
        intent |= {"status": "succeeded", "latest_attempt": attempt["id"]}
        session |= {"status": "complete", "url": None}
        self.tell(merchant, "setup_intent.succeeded", intent)
        self.tell(merchant, "checkout.session.completed", session)
        return "succeeded"

    def _session(self, merchant: Merchant, reference: str) -> Object:
        session = _find(merchant.sessions, "checkout.session", reference)
        if session["status"] == "open" and self.now() >= session["expires_at"]:
            self._expired(merchant, session)
        return session

    def _expired(self, merchant: Merchant, session: Object) -> Object:
        session |= {"status": "expired", "url": None}
        merchant.intents[session["setup_intent"]]["status"] = "canceled"
        self.tell(merchant, "checkout.session.expired", session)
        return session

    # Events

    def tell(self, merchant: Merchant, kind: str, subject: Object) -> Object:
        """Record an event."""
        event = self._object(merchant, "evt", "event")
        event |= {
            "api_version": "2026-10-28.endive",
            "type": kind,
            "data": {"object": json.loads(json.dumps(subject))},
            "pending_webhooks": 1,
            "request": {"id": None, "idempotency_key": None},
        }
        self.require(require_event, event)
        merchant.events.append(event)
        return event

    def _object(self, merchant: Merchant, prefix: str, kind: str) -> Object:
        return {
            "id": f"{prefix}_{next(self._numbers):014}",
            "object": kind,
            "created": self.now(),
            "livemode": merchant.is_live,
        }

    # Idempotent requests

    def once(
        self,
        merchant: Merchant,
        key: str | None,
        call: tuple[str, str],
        act: Callable[[], tuple[int, Object]],
    ) -> tuple[int, Object, bool]:
        """Handle a call once per idempotency key.

        Returns the status, the body, and whether this response had been saved before.
        The response to a call with invalid parameters is not saved. Raises Refused.
        """
        with self.lock:
            saved = merchant.saved.get(key) if key else None
            if saved is not None and self.clock.now() - saved.at < KEYS_KEPT:
                if saved.call != call:
                    raise Refused(
                        "Keys for idempotent requests can only be used with the same parameters "
                        "they were first used with.",
                        type_="idempotency_error",
                    )
                return saved.status, json.loads(json.dumps(saved.body)), True
            try:
                status, body = act()
            except Refused as refused:
                if not refused.is_saved:
                    raise
                status, body = refused.status, {"error": refused.error}
            if key:
                kept = json.loads(json.dumps(body))
                merchant.saved[key] = Saved(call, status, kept, self.clock.now())
            return status, body, False


def card_details(merchant: Merchant, number: str, expiry: tuple[int, int] = (9, 2031)) -> Object:
    """Return `card` of a PaymentMethod, without its checks."""
    return {
        "brand": TEST_CARDS[number].brand,
        "last4": number[-4:],
        "exp_month": expiry[0],
        "exp_year": expiry[1],
        "funding": TEST_CARDS[number].funding,
        "country": "US",
        "wallet": None,
        "fingerprint": hashlib.sha256(f"{merchant.key} {number}".encode()).hexdigest()[:16],
    }


def signature(body: bytes, *, secret: str, at: datetime) -> str:
    """Return the value of the header Stripe-Signature."""
    timestamp = int(at.timestamp())
    mac = hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={timestamp},v1={mac}"


def _list(path: str, found: Sequence[Object], *, has_more: bool) -> Object:
    return {"object": "list", "url": f"/v1/{path}", "has_more": has_more, "data": found}


def _find(among: Mapping[str, Object], kind: str, reference: str) -> Object:
    try:
        return among[reference]
    except KeyError:
        raise _missing(kind, reference) from None


def _missing(kind: str, reference: str, *, status: int = 404, param: str = "id") -> Refused:
    return Refused(
        f"No such {kind}: '{reference}'", status=status, code="resource_missing", param=param
    )
