"""The shop's client of the public API: HTTP with an access token, and what comes back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from typing import Final, Literal, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

TIMEOUT_SECONDS: Final = 10.0
MAX_ANSWER_BYTES: Final = 1024 * 1024
CARDS_ON_A_PAGE: Final = 6
PRODUCTS_ON_A_PAGE: Final = 10


class ApiProblem(Exception):
    """The API refused, in its own words, or could not be asked."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        self.message = message
        super().__init__(message)


class PageInfo(Struct, frozen=True):
    """Which page of a list this is."""

    total: int
    page: int
    size: int

    @property
    def last_page(self) -> int:
        """The number of the last page; an empty list has one."""
        return max(1, -(-self.total // self.size))


class Card(Struct, frozen=True):
    """A card on file."""

    account_id: str
    center_id: str
    card_logo: str
    last_four: str
    expiry_on: str
    expired: bool
    source: Literal[1, 5]


class Cards(Struct, frozen=True):
    """A page of a guest's cards."""

    accounts: tuple[Card, ...]
    page_info: PageInfo


class Price(Struct, frozen=True):
    """An amount of money."""

    amount: str
    currency: str


class Product(Struct, frozen=True):
    """What a center sells."""

    code: str
    name: str
    description: str
    price: Price


class Products(Struct, frozen=True):
    """A page of a center's products."""

    products: tuple[Product, ...]
    page_info: PageInfo


class StartedSession(Struct, frozen=True):
    """Where the guest types the card, and the session to ask for afterwards."""

    hosted_payment_uri: str
    token_id: str


class Failure(Struct, frozen=True):
    """Why a card or a request was refused."""

    code: int = 0
    message: str = ""


class Session(Struct, frozen=True):
    """How the addition of a card stands."""

    status: Literal["open", "completed", "failed", "expired"]
    failure: Failure | None


class _Refused(Failure, frozen=True):
    error: Failure | None = None


class _Done(Struct, frozen=True):
    success: Literal[True]


_Answer = TypeVar("_Answer", bound=Struct)


class CardApi:
    """Calls the API at `address` (host and port). Every method may raise ApiProblem."""

    def __init__(self, address: str, token: str) -> None:
        self._address = address
        self._token = token

    def cards(self, guest_id: str, *, page: str) -> Cards:
        """List a guest's cards."""
        query = urlencode({"page": page, "size": CARDS_ON_A_PAGE})
        return self._call("GET", f"{_accounts(guest_id)}?{query}", Cards)

    def add_card(self, guest_id: str, request: Mapping[str, object]) -> StartedSession:
        """Start adding a card."""
        return self._call("POST", _accounts(guest_id), StartedSession, request)

    def session(self, guest_id: str, token_id: str) -> Session:
        """Read how the addition of a card stands."""
        return self._call("GET", f"{_accounts(guest_id)}/sessions/{token_id}", Session)

    def remove_card(self, guest_id: str, account_id: str) -> None:
        """Remove a card."""
        self._call("DELETE", f"{_accounts(guest_id)}/{account_id}", _Done)

    def products(self, center_id: str, *, page: str) -> Products:
        """List a center's products."""
        query = urlencode({"page": page, "size": PRODUCTS_ON_A_PAGE})
        return self._call("GET", f"/v1/centers/{quote(center_id)}/products?{query}", Products)

    def _call(
        self,
        method: str,
        target: str,
        answer: type[_Answer],
        request: Mapping[str, object] | None = None,
    ) -> _Answer:
        headers = {"Authorization": f"Bearer {self._token}"}
        body = None
        if request is not None:
            headers["Content-Type"] = "application/json"
            body = json.dumps(request)
        connection = HTTPConnection(self._address, timeout=TIMEOUT_SECONDS)
        try:
            connection.request(method, target, body, headers)
            response = connection.getresponse()
            raw = response.read(MAX_ANSWER_BYTES)
            if response.status != 200:
                refused = msgspec.json.decode(raw, type=_Refused)
                raise ApiProblem(response.status, (refused.error or refused).message)
            return msgspec.json.decode(raw, type=answer)
        except (OSError, HTTPException, msgspec.DecodeError) as error:
            raise ApiProblem(503, "The card service cannot be reached just now.") from error
        finally:
            connection.close()


def _accounts(guest_id: str) -> str:
    return f"/api/v1/guests/{quote(guest_id)}/accounts"
