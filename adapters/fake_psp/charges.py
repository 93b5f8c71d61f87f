"""Charge stored cards at the fake PSP, so that a shop can test its charges."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import falcon
import msgspec
from iso4217 import Currency

from adapters.fake_psp.database import PspUnavailable
from adapters.fake_psp.psp import CallRefused, ChargeRequest, FakePsp
from domain.errors import (
    IdempotencyKeyReused,
    InvalidField,
    ServiceUnavailable,
    UserNotAuthenticated,
)
from domain.sessions.add_card import parse_idempotency_key

PATH: Final = "/fake-psp/charges"
MAX_BODY_BYTES: Final = 16 * 1024

_DECIMALS: Final = {each.code: each.exponent for each in Currency if each.exponent is not None}


def add_routes(app: falcon.App[falcon.Request, falcon.Response], psp: FakePsp) -> None:
    """Add the route for charges to an app.

    The app needs error handlers for the domain's refusals, because the route raises them.
    """
    app.add_route(PATH, _Charges(psp))


class _Charges:
    """Make and list charges. Callers send the charge key as their bearer token."""

    def __init__(self, psp: FakePsp) -> None:
        self._psp = psp

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Charge a card, and respond with the charge. Its `status` is the result."""
        self._require_key(req)
        request = _read(req.bounded_stream.read(MAX_BODY_BYTES))
        key = parse_idempotency_key(req.get_header("Idempotency-Key"))
        with _refused():
            _respond(resp, self._psp.charge(request, key))

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Respond with the latest charges, newest first."""
        self._require_key(req)
        with _refused():
            _respond(resp, {"charges": self._psp.charges()})

    def _require_key(self, req: falcon.Request) -> None:
        sent = (req.get_header("Authorization") or "").encode(errors="replace")
        if not hmac.compare_digest(sent, f"Bearer {self._psp.charge_key}".encode()):
            raise UserNotAuthenticated


def _read(body: bytes) -> ChargeRequest:
    """Parse the body of a request for a charge. Raises InvalidField if the body is not valid."""
    try:
        request = msgspec.json.decode(body, type=ChargeRequest)
    except msgspec.MsgspecError:
        raise InvalidField(
            "The body",
            "a JSON object with guest_reference and token of the fake PSP, amount and currency",
        ) from None
    decimals = _DECIMALS.get(request.currency)
    if decimals is None:
        raise InvalidField("currency", "a currency of ISO 4217, such as EUR")
    fraction = rf"\.[0-9]{{{decimals}}}" if decimals else ""
    if not re.fullmatch(rf"(?=.*[1-9])[0-9]{{1,9}}{fraction}", request.amount, re.ASCII):
        raise InvalidField(
            "amount", f"a positive decimal number as a text, with {decimals} digits after the point"
        )
    return request


@contextmanager
def _refused() -> Iterator[None]:
    try:
        yield
    except CallRefused:
        raise IdempotencyKeyReused from None
    except PspUnavailable as error:
        raise ServiceUnavailable from error


def _respond(resp: falcon.Response, content: object) -> None:
    resp.content_type = falcon.MEDIA_JSON
    resp.data = msgspec.json.encode(content)
    resp.set_header("Cache-Control", "no-store")
