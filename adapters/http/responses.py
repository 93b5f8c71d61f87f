"""The response bodies, with the field names of the interface.

The schemas of the OpenAPI document are made from these types.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, Self

import falcon
import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from adapters.first_reads import prepare
from domain.cards.account import PaymentAccount
from domain.centers.list_centers import ConfiguredCenter
from domain.guests.guest import Guest
from domain.hosted_payments.link import HostedLinks
from domain.pagination import Page
from domain.products.product import Product
from domain.sessions.session import CardSession


def json_body(resp: falcon.Response, body: Struct) -> None:
    """Set the body of the response to `body`, as JSON."""
    resp.content_type = "application/json"
    resp.data = msgspec.json.encode(body)


def _example(value: object, description: str = "", **schema: object) -> Meta:
    return Meta(description=description or None, extra_json_schema={**schema, "examples": [value]})


def _uuid(description: str) -> Meta:
    return _example("8c2f3f1a-6b0e-4c57-9a51-0d8f4c3f7b21", description)


def _time(description: str) -> Meta:
    return _example("2026-11-20T12:00:00Z", description, format="date-time")


# The generators of clients need the type of fixed values, which msgspec leaves out.
_True = Annotated[Literal[True], Meta(extra_json_schema={"type": "boolean"})]
_False = Annotated[Literal[False], Meta(extra_json_schema={"type": "boolean"})]
_Uuid = Annotated[str, Meta(extra_json_schema={"format": "uuid"})]


class ErrorObject(Struct, frozen=True, forbid_unknown_fields=True):
    """Why a request was refused. Strict clients refuse any other field."""

    code: Annotated[int, _example(400, "The same number as the HTTP status.")]
    message: Annotated[str, _example("Invalid center id")]


class Refused(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of an error response under `/api/v1`."""

    success: _False = False
    error: ErrorObject


class Done(Struct, frozen=True):
    """What every successful response under `/api/v1` contains, except for lists."""

    success: _True = True
    error: None = None


class CardSessionStarted(Done, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The response to add-card."""

    hosted_payment_uri: Annotated[
        str,
        _example(
            "https://cards.example/hosted-payments?token_id=8c2f3f1a-6b0e-4c57-9a51-0d8f4c3f7b21"
            "&redirect_uri=https%3A%2F%2Fshop.example%2Fcards",
            "Where to redirect the guest: the link to the hosted page, which collects the card.",
            format="uri",
        ),
    ]
    token_id: Annotated[_Uuid, _uuid("The token of the card-addition session.")]

    @classmethod
    def of(cls, session: CardSession, links: HostedLinks) -> CardSessionStarted:
        """Return the response for a session that has just been started."""
        return cls(hosted_payment_uri=links.hosted_payment_uri(session), token_id=session.token_id)


class SessionFailure(Struct, frozen=True):
    """Why the card of a session was refused."""

    code: Annotated[int, _example(400)]
    message: Annotated[str, _example("Payment method already exists")]
    type: Annotated[str, _example("payment_method_already_exists", "Which refusal this is.")]


_SessionStatus = Annotated[
    Literal["open", "completed", "failed", "expired"], _example("completed", type="string")
]
_SessionProgress = Annotated[
    Literal["created", "opened", "returned", "cancelled"],
    _example("returned", "What the guest did last.", type="string"),
]
_StoredCardId = Annotated[_Uuid | None, _uuid("The stored card, once the session is completed.")]
_SessionFailure = Annotated[
    SessionFailure | None, Meta(description="Why the card was refused, once the session failed.")
]
_SessionEnd = Annotated[
    datetime,
    _time("When the link expires, or its page if that is later; or when it was cancelled."),
]


class CardSessionState(Done, frozen=True, kw_only=True):
    """The state of a card-addition session."""

    status: _SessionStatus
    progress: _SessionProgress
    account_id: _StoredCardId
    failure: _SessionFailure
    expires_at: _SessionEnd

    @classmethod
    def of(cls, session: CardSession) -> CardSessionState:
        """Return the state of a session."""
        return msgspec.convert(session, cls, from_attributes=True)


class GuestRecord(Done, frozen=True, kw_only=True):
    """A guest."""

    id: Annotated[_Uuid, _uuid("The guest.")]
    first_name: Annotated[str, _example("Ada")]
    last_name: Annotated[str, _example("Sample")]
    email: Annotated[str | None, _example("ada@example.com", "Null if it is not known.")]

    @classmethod
    def of(cls, guest: Guest) -> GuestRecord:
        """Return the response for a guest."""
        return msgspec.convert(guest, cls, from_attributes=True)


class PageInfo(Struct, frozen=True):
    """Which page of a list this is."""

    total: Annotated[int, _example(1, "The number of records on all pages.")]
    page: Annotated[int, _example(1, "The current page.")]
    size: Annotated[int, _example(10, "The number of records per page.")]

    @classmethod
    def of(cls, page: Page[Any]) -> PageInfo:  # Any, because only the page itself is described
        """Return the page info of `page`."""
        return cls(total=page.total, page=page.request.page, size=page.request.size)


class StoredCard(Struct, frozen=True, kw_only=True):
    """A card on file."""

    account_id: Annotated[_Uuid, _uuid("The payment account identifier.")]
    center_id: Annotated[_Uuid, _uuid("The center that may charge it.")]
    card_logo: Annotated[str, _example("visa", "The card scheme.")]
    last_four: Annotated[str, _example("4242", "The last four digits of its number.")]
    expiry_on: Annotated[str, _example("09/31", "Month and year of its expiry.")]
    expired: Annotated[bool, _example(False, "Whether that month is over.")] = False
    source: Annotated[
        Literal[1, 5], _example(1, "Where it was added: 1 web store, 5 mobile.", type="integer")
    ]
    created_at: Annotated[datetime, _time("When it was added.")]
    is_default: Annotated[bool, _example(True, "Whether it is the guest's default at the center.")]

    @classmethod
    def of(cls, account: PaymentAccount, now: datetime) -> Self:
        """Return the fields of a card as of `now`, which decides whether it has expired."""
        card = msgspec.convert(account, cls, from_attributes=True)
        return msgspec.structs.replace(card, expired=account.has_expired(now))


class PaymentReference(Struct, frozen=True, kw_only=True):
    """What a payment operation needs to charge a card on file."""

    provider: Annotated[str, _example("fake", "The payment service provider.")]
    merchant_account: Annotated[str, _example("default", "The merchant account there.")]
    guest_reference: Annotated[
        str, _example("guest_5f0c", "The provider's identifier of the guest.")
    ]
    token: Annotated[str, _example("card_91be", "The provider's identifier of the stored card.")]


class StoredCardDetails(StoredCard, frozen=True, kw_only=True):
    """One card on file, with its payment reference if the caller may charge it."""

    success: _True = True
    error: None = None
    payment_reference: Annotated[
        PaymentReference | UnsetType, Meta(description="Only for callers with `payments:use`.")
    ] = UNSET

    def with_reference(self, account: PaymentAccount) -> Self:
        """Add what a payment operation needs of the account, for a caller that may see it."""
        shown = msgspec.convert(account, PaymentReference, from_attributes=True)
        return msgspec.structs.replace(self, payment_reference=shown)


class StoredCards(Struct, frozen=True, kw_only=True):
    """A page of a guest's cards on file."""

    accounts: list[StoredCard]
    page_info: PageInfo

    @classmethod
    def of(cls, page: Page[PaymentAccount], now: datetime) -> StoredCards:
        """Return a page of cards as of `now`, which decides which of them have expired."""
        cards = [StoredCard.of(account, now) for account in page.items]
        return cls(accounts=cards, page_info=PageInfo.of(page))


class ExpiringCard(StoredCard, frozen=True, kw_only=True):
    """A card on file of any guest."""

    guest_id: Annotated[_Uuid, _uuid("The guest whose card it is.")]


class ExpiringCards(Struct, frozen=True, kw_only=True):
    """A page of a center's cards on file, by expiry date."""

    accounts: list[ExpiringCard]
    page_info: PageInfo

    @classmethod
    def of(cls, page: Page[PaymentAccount], now: datetime) -> ExpiringCards:
        """Return a page of cards as of `now`, which decides which of them have expired."""
        cards = [ExpiringCard.of(account, now) for account in page.items]
        return cls(accounts=cards, page_info=PageInfo.of(page))


class ListedSession(Struct, frozen=True, kw_only=True):
    """One of a guest's card-addition sessions."""

    token_id: Annotated[_Uuid, _uuid("The token of the card-addition session.")]
    center_id: Annotated[_Uuid, _uuid("The center that the card is added at.")]
    status: _SessionStatus
    progress: _SessionProgress
    account_id: _StoredCardId
    failure: _SessionFailure
    created_at: Annotated[datetime, _time("When the session was started.")]
    expires_at: _SessionEnd


class ListedSessions(Struct, frozen=True, kw_only=True):
    """A page of a guest's card-addition sessions."""

    sessions: list[ListedSession]
    page_info: PageInfo

    @classmethod
    def of(cls, page: Page[CardSession]) -> ListedSessions:
        """Return a page of sessions."""
        sessions = [
            msgspec.convert(session, ListedSession, from_attributes=True) for session in page.items
        ]
        return cls(sessions=sessions, page_info=PageInfo.of(page))


class CenterInfo(Struct, frozen=True, kw_only=True):
    """A center, and what a client must know before it adds a card there."""

    id: Annotated[_Uuid, _uuid("The center.")]
    name: Annotated[str, _example("Harbor Spa")]
    takes_cards: Annotated[bool, _example(True, "Whether payments are configured.")]
    avs: Annotated[
        bool, _example(False, "Whether add-card needs billing_info: address verification is on.")
    ]
    cards_per_guest: Annotated[
        Literal["one", "many"] | None,
        _example("many", "How many cards a guest may have here; null if it takes none."),
    ]
    redirect_origins: Annotated[
        list[str],
        _example(
            ["https://shop.example"], "The origins that redirect_uri may have; if empty, any."
        ),
    ]
    link_minutes: Annotated[
        int | None,
        _example(43_200, "The longest link_minutes of add-card; null if it takes no cards."),
    ]

    @classmethod
    def of(cls, found: ConfiguredCenter) -> CenterInfo:
        """Return the response for a center."""
        configuration = found.configuration
        return cls(
            id=found.center.id,
            name=found.center.name,
            takes_cards=configuration is not None,
            avs=configuration is not None and configuration.avs,
            cards_per_guest=configuration.cards_per_guest.value if configuration else None,
            redirect_origins=list(configuration.redirect_origins) if configuration else [],
            link_minutes=configuration.max_link_minutes if configuration else None,
        )


class ListedCenters(Struct, frozen=True, kw_only=True):
    """A page of the caller's centers."""

    centers: list[CenterInfo]
    page_info: PageInfo

    @classmethod
    def of(cls, page: Page[ConfiguredCenter]) -> ListedCenters:
        """Return a page of centers."""
        centers = [CenterInfo.of(each) for each in page.items]
        return cls(centers=centers, page_info=PageInfo.of(page))


class Price(Struct, frozen=True):
    """An amount of money."""

    amount: Annotated[str, _example("49.90", "A decimal number in major units.")]
    currency: Annotated[str, _example("EUR", "ISO 4217.")]


class ProductForSale(Struct, frozen=True, kw_only=True):
    """A product of a center."""

    id: Annotated[_Uuid, _uuid("The product.")]
    code: Annotated[str, _example("OIL-50")]
    name: Annotated[str, _example("Massage oil, 50 ml")]
    description: Annotated[str, _example("Almond and lavender")]
    price: Price

    @classmethod
    def of(cls, product: Product) -> ProductForSale:
        """Return the response for a product."""
        return cls(
            id=product.id,
            code=product.code,
            name=product.name,
            description=product.description,
            price=Price(amount=str(product.amount), currency=product.currency),
        )


class ProductsForSale(Struct, frozen=True, kw_only=True):
    """A page of a center's products."""

    products: list[ProductForSale]
    page_info: PageInfo

    @classmethod
    def of(cls, page: Page[Product]) -> ProductsForSale:
        """Return a page of products."""
        products = [ProductForSale.of(each) for each in page.items]
        return cls(products=products, page_info=PageInfo.of(page))


class Health(Struct, frozen=True):
    """The state of the service itself."""

    status: Annotated[str, _example("ok")]


prepare(
    *(GuestRecord, PaymentReference, CardSessionState, ListedSession),
    *(StoredCard, StoredCardDetails, ExpiringCard),
)
