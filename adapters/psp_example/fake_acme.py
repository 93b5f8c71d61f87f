"""A fake Acme for tests: merchants, guests, pages and cards."""

from __future__ import annotations

import hashlib
import html
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import RLock
from typing import Any, TypeAlias
from urllib.parse import parse_qs

from adapters.psp_suite.stand_in import Request, Response, html_response, json_response

Json: TypeAlias = dict[str, Any]  # JSON, as in requests and responses

GOOD, ANOTHER_GOOD = "4242424242424242", "5555555555554444"
REFUSED, CHALLENGED, WRONG_ADDRESS = "4000000000000002", "4000000000003220", "4000000000000010"
UNCHECKED_ADDRESS = "4000000000000044"
LIST_LAG = timedelta(seconds=5)


@dataclass
class Merchant:
    """The records that belong to one API key."""

    id: str
    guests: dict[str, Json] = field(default_factory=dict)
    pages: dict[str, Json] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    """The guest of each stored token."""
    deleted: dict[str, str] = field(default_factory=dict)
    """The guest of each deleted token."""


class FakeAcme:
    """Handles requests, and lets tests play the guest. `url` is the base address of the pages."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self.url = ""
        self.merchants: dict[str, Merchant] = {}
        self._now = now
        self._lock = RLock()
        self._count = 0

    def respond(self, request: Request) -> Response:
        """Return the response to an API call, or a page."""
        with self._lock:
            if request.path.startswith("/guest-pages/"):
                page = self.page(request.path.removeprefix("/guest-pages/"))
                return html_response(f"<p>{html.escape(page['asked']['consent'])}</p>")
            key = request.headers.get("authorization", "").removeprefix("Bearer ")
            merchant = self.merchants.get(key)
            if merchant is None:
                return json_response({"error": "unknown key"}, 401)
            return self._handled(merchant, request)

    def _handled(self, merchant: Merchant, request: Request) -> Response:
        match request.method, request.path.removeprefix("/v1/").split("/"):
            case "POST", ["pages"]:
                return json_response(self._make_page(merchant, request))
            case "GET", ["pages"]:
                return json_response(self._listed(merchant, parse_qs(request.query)))
            case "GET", ["pages", known] if known in merchant.pages:
                return json_response(self._shown(merchant.pages[known]))
            case "POST", ["pages", known, "close"] if known in merchant.pages:
                page = self._current(merchant.pages[known])
                if page["status"] != "done":
                    page["status"] = "closed"
                return json_response(self._shown(page))
            case "GET", ["guests", guest, "cards", token]:
                if {**merchant.deleted, **merchant.tokens}.get(token) == guest:
                    card = self.page_with(token)["card"] if token in merchant.tokens else None
                    return json_response({"as_of": self._now().isoformat(), "card": card})
            case "DELETE", ["guests", guest, "cards", token]:
                if {**merchant.deleted, **merchant.tokens}.get(token) == guest:
                    was_stored = merchant.tokens.pop(token, None)
                    merchant.deleted[token] = guest
                    return Response(204) if was_stored else json_response({"error": "gone"}, 410)
            case _:
                pass
        return json_response({"error": "not found"}, 404)

    def _make_page(self, merchant: Merchant, request: Request) -> Json:
        key, asked = request.headers.get("idempotency-key"), json.loads(request.body)
        if key is None or key not in merchant.keys:
            guest = asked["guest"]
            if guest not in merchant.guests:
                guest = self._id("guest")
                merchant.guests[guest] = {"name": asked["guest_name"]}
            id_ = self._id("page")
            if key is not None:
                merchant.keys[key] = id_
            merchant.pages[id_] = {
                "id": id_,
                "reference": asked["reference"],
                "url": f"{self.url}/guest-pages/{id_}",
                "guest": guest,
                "ends_at": asked["live_until"],
                "status": "open",
                "asked": asked,
                "merchant": merchant,
                "listed_from": self._now() + LIST_LAG,
            }
        else:
            id_ = merchant.keys[key]
        return self._shown(merchant.pages[id_])

    def _listed(self, merchant: Merchant, query: dict[str, list[str]]) -> list[Json]:
        return [
            self._shown(page)
            for page in merchant.pages.values()
            if [page["reference"]] == query["reference"] and self._now() >= page["listed_from"]
        ]

    def page(self, id_: str) -> Json:
        """Return the page with this id, whichever merchant it belongs to."""
        return next(
            merchant.pages[id_] for merchant in self.merchants.values() if id_ in merchant.pages
        )

    def shown(self, id_: str) -> Json:
        """Return the page with this id in the form in which Acme's API reports it."""
        with self._lock:
            return self._shown(self.page(id_))

    def page_with(self, token: str) -> Json:
        """Return the page on which the card with this token was typed in."""
        pages = [page for merchant in self.merchants.values() for page in merchant.pages.values()]
        return next(page for page in pages if page.get("card", {}).get("token") == token)

    def update_card(self, token: str, number: str, expiry: tuple[int, int]) -> None:
        """Change the number and the expiry date of a stored card, as its bank does."""
        with self._lock:
            self.page_with(token)["card"] |= self._details(number, expiry)

    def type_card(self, id_: str, number: str, expiry: tuple[int, int]) -> None:
        """Play the guest who types in a card on a page."""
        with self._lock:
            page = self._current(self.page(id_))
            if page["status"] in ("done", "closed"):
                return
            page["number"], page["expiry"] = number, expiry
            if number == REFUSED:
                page["status"], page["refusal"] = "refused", "do_not_honor"
            elif number == CHALLENGED:
                page["status"] = "challenged"
            else:
                self._complete(page)

    def answer_challenge(self, id_: str, *, confirmed: bool) -> None:
        """Play the guest who passes or fails the challenge of a page."""
        with self._lock:
            page = self._current(self.page(id_))
            if page["status"] == "challenged" and confirmed:
                self._complete(page)
            elif page["status"] == "challenged":
                page["status"], page["refusal"] = "refused", "authentication_failed"

    def _complete(self, page: Json) -> None:
        number, expiry = page.pop("number"), page.pop("expiry")
        token = self._id("card")
        page["merchant"].tokens[token] = page["guest"]
        page["status"], page["typed_at"] = "done", self._now().isoformat()
        if page["asked"]["verify_address"] and number != UNCHECKED_ADDRESS:
            page["avs"] = "mismatch" if number == WRONG_ADDRESS else "match"
        page["card"] = {"token": token, **self._details(number, expiry)}

    @staticmethod
    def _details(number: str, expiry: tuple[int, int]) -> Json:
        return {
            "fingerprint": hashlib.sha256(number.encode()).hexdigest()[:16],
            "brand": "mastercard" if number == ANOTHER_GOOD else "visa",
            "last4": number[-4:],
            "month": expiry[0],
            "year": expiry[1],
        }

    def _shown(self, page: Json) -> Json:
        page = self._current(page)
        hidden = ("asked", "merchant", "number", "expiry", "listed_from")
        shown = {name: value for name, value in page.items() if name not in hidden}
        if "card" in page and page["card"]["token"] not in page["merchant"].tokens:
            del shown["card"]
        return shown

    def _current(self, page: Json) -> Json:
        if page["status"] != "done" and self._now() >= datetime.fromisoformat(page["ends_at"]):
            page["status"] = "closed"
        return page

    def _id(self, kind: str) -> str:
        self._count += 1
        return f"{kind}_{self._count}"
