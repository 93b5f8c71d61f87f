"""Every operation of the interface, as the OpenAPI document describes it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, TypeAlias

from msgspec import Struct

from adapters.http.errors import (
    InvalidRequestBody,
    InvalidWebhook,
    NotFound,
    RequestBodyTooLarge,
    UnsupportedMediaType,
)
from adapters.http.examples import (
    ACCOUNT_IDS,
    CENTER_IDS,
    DATES,
    GUEST_IDS,
    GUEST_WITH_CARD_IDS,
    PRODUCT_IDS,
    TOKEN_IDS,
    Example,
)
from adapters.http.requests import AddCardBody, GuestBody, ProductBody
from adapters.http.responses import (
    CardSessionStarted,
    CardSessionState,
    CenterInfo,
    Done,
    ExpiringCards,
    GuestRecord,
    Health,
    ListedCenters,
    ListedSessions,
    ProductForSale,
    ProductsForSale,
    StoredCardDetails,
    StoredCards,
)
from domain import errors
from domain.cards.list_expiring_cards import EXPECTED_DATE
from domain.errors import Refusal
from domain.pagination import DEFAULT_PAGE, DEFAULT_SIZE, MAX_SIZE
from domain.permissions import (
    MAY_ADD_CARDS,
    MAY_EDIT_PRODUCTS,
    MAY_PUT_GUESTS,
    MAY_REMOVE_CARDS,
    MAY_VIEW_CARDS,
    MAY_VIEW_GUESTS,
    MAY_VIEW_PRODUCTS,
    Permission,
)

Json: TypeAlias = dict[str, object]


ANY_TOKEN: Final[Collection[Permission]] = ()


class Tag(StrEnum):
    """The groups of operations, in the order in which a client needs them."""

    CENTERS = "Centers"
    GUESTS = "Guests"
    CARDS = "Cards"
    SESSIONS = "Sessions"
    PRODUCTS = "Products"
    SERVICE = "Service"


TAGS: Final[Mapping[Tag, str]] = {
    Tag.CENTERS: "Where cards are added and charged.",
    Tag.GUESTS: "The guests whose cards are on file.",
    Tag.CARDS: "Adding, listing and removing payment cards.",
    Tag.SESSIONS: "How the addition of a card goes on, and the links that a guest's browser opens.",
    Tag.PRODUCTS: "What a center sells.",
    Tag.SERVICE: "For operators, and for payment service providers.",
}
"""What each group is about."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One method of one path: its parameters, its responses, and how it refuses."""

    method: str
    path: str
    name: str
    tag: Tag
    summary: str
    description: str = ""
    parameters: Sequence[Json] = ()
    body: type[AddCardBody | GuestBody | ProductBody] | None = None
    has_signed_body: bool = False
    """Whether it takes a body in the provider's own format."""
    response: type[Struct] | None = None
    """The body of status 200."""
    refusals: Sequence[Refusal] = ()
    """Its own refusals, besides those of every operation with a `response`."""
    needs: Collection[Permission] | None = None
    """The permissions of which a caller needs any; None if there is no caller."""
    links: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Operations that take parameters from the response, and which (OpenAPI Link Objects)."""
    pages: Mapping[int, str] = field(default_factory=dict)
    """Statuses that are a redirect or an HTML page, for a guest's browser, and their meaning."""


def _parameter(
    name: str,
    place: str,
    description: str,
    *,
    required: bool = False,
    known: Mapping[str, Example] | None = None,
    **schema: object,
) -> Json:
    described: Json = {
        "name": name,
        "in": place,
        "required": required or place == "path",
        "description": description,
        "schema": schema or {"type": "string", "format": "uuid"},
    }
    return {**described, "examples": known} if known else described


_GUEST_ID: Final = _parameter("guest_id", "path", "The guest.", known=GUEST_IDS)
_GUEST_WITH_CARD: Final = _parameter("guest_id", "path", "The guest.", known=GUEST_WITH_CARD_IDS)
_ACCOUNT_ID: Final = _parameter(
    "account_id", "path", "The payment account, from the list of cards.", known=ACCOUNT_IDS
)
_TOKEN_ID: Final = _parameter(
    "token_id", "path", "The session, from the response to add-card.", known=TOKEN_IDS
)
_LINK_TOKEN: Final = _parameter(
    "token_id", "query", "The session, from the response to add-card.", required=True
)
_PAGING: Final = (
    _parameter("page", "query", "Which page.", type="integer", minimum=1, default=DEFAULT_PAGE),
    _parameter(
        "size",
        "query",
        "Records per page.",
        type="integer",
        minimum=1,
        maximum=MAX_SIZE,
        default=DEFAULT_SIZE,
    ),
)

_PAGING_REFUSALS: Final = (
    errors.TooManyItems(),
    errors.PageParameterInvalid("page"),
    errors.PageParameterInvalid("size"),
)
_GUEST_REFUSALS: Final = (errors.GuestNotFound(), errors.GuestIdNotUsable())

_SAME_GUEST: Final = {"guest_id": "$request.path.guest_id"}
_SAME_CARD: Final = {**_SAME_GUEST, "account_id": "$request.path.account_id"}
_ITS_CARD: Final = {**_SAME_GUEST, "account_id": "$response.body#/account_id"}
_FIRST_CARD: Final = {**_SAME_GUEST, "account_id": "$response.body#/accounts/0/account_id"}

_LINK_PROBLEMS: Final = {
    404: "The link is not known.",
    503: "Try again in a moment.",
    500: "A fault of the service.",
}
_WAY_BACK: Final = {303: "Back to redirect_uri.", 400: "Malformed request.", **_LINK_PROBLEMS}

_GUEST: Final = "/api/v1/guests/{guest_id}"
_ACCOUNTS: Final = _GUEST + "/accounts"
_CENTERS: Final = "/v1/centers"
_CENTER_ID: Final = _parameter("center_id", "path", "The center.", known=CENTER_IDS)
_CENTER_OF_PRODUCT: Final = {**_CENTER_ID, "examples": {"spa": CENTER_IDS["spa"]}}
_PRODUCT_ID: Final = _parameter("product_id", "path", "The product.", known=PRODUCT_IDS)
_BODY_REFUSALS: Final = (UnsupportedMediaType(), RequestBodyTooLarge(), InvalidRequestBody())

_LINK: Final = Operation(
    method="get",
    path="/hosted-payments",
    name="openHostedPage",
    tag=Tag.SESSIONS,
    summary="The link to which the client redirects the guest's browser",
    description="`hosted_payment_uri` in the response to add-card: open that in a browser.",
    parameters=(
        _LINK_TOKEN,
        _parameter(
            "redirect_uri",
            "query",
            "The redirect_uri of the add-card request.",
            required=True,
            type="string",
            format="uri",
        ),
    ),
    pages={
        200: "After 24 hours: a page with a button, which sends the same address as a POST.",
        303: "To the hosted page, or back to redirect_uri once the session is settled.",
        400: "The link has been changed.",
        410: "The link has expired.",
        429: "Too many of the guest's cards were refused; Retry-After says how long to wait.",
        **_LINK_PROBLEMS,
    },
)

_WEBHOOK: Final = Operation(
    method="post",
    path="/webhooks/{provider}",
    name="receiveWebhook",
    tag=Tag.SERVICE,
    summary="Where a payment service provider sends its events",
    description=(
        "Signed by the provider, in its own format, so it cannot be tried out here. Unknown events "
        "are ignored."
    ),
    parameters=(
        _parameter("provider", "path", "The provider's name.", type="string", examples=["fake"]),
    ),
    has_signed_body=True,
    response=Health,
    refusals=(InvalidWebhook(), NotFound(), RequestBodyTooLarge()),
)

OPERATIONS: Final[Sequence[Operation]] = (
    Operation(
        method="put",
        path=_GUEST,
        name="putGuest",
        tag=Tag.GUESTS,
        summary="Create or update a guest under an id of yours",
        description=(
            "Creating needs `guests:add`, changing `guests:edit`; repeating a request changes "
            "nothing. Tokens that are limited to centers get 403."
        ),
        parameters=(_GUEST_ID,),
        body=GuestBody,
        response=GuestRecord,
        needs=MAY_PUT_GUESTS,
        links={"readGuest": _SAME_GUEST, "addCard": _SAME_GUEST},
        refusals=(
            *_BODY_REFUSALS,
            errors.GuestIdNotUsable(),
            errors.InvalidField("first_name", "1 to 200 characters, not blank"),
        ),
    ),
    Operation(
        method="get",
        path=_GUEST,
        name="readGuest",
        tag=Tag.GUESTS,
        summary="Read a guest",
        description="Tokens that are limited to centers get 403.",
        parameters=(_GUEST_ID,),
        response=GuestRecord,
        needs=MAY_VIEW_GUESTS,
        refusals=_GUEST_REFUSALS,
    ),
    Operation(
        method="post",
        path=_ACCOUNTS,
        name="addCard",
        tag=Tag.CARDS,
        summary="Start adding a card to a guest's profile",
        description=(
            "Returns the link to a hosted page that collects the card. Redirect the guest's "
            "browser to it. The card is stored after the guest has entered it; the browser then "
            "comes back to redirect_uri. Against card testing, sessions and refused cards are limited "
            "in 24 hours per guest, caller and center: after a 429, tell the guest to try again later."
        ),
        parameters=(
            _GUEST_ID,
            _parameter(
                "Idempotency-Key",
                "header",
                "Within 24 hours, the same key and request return the same session.",
                type="string",
                minLength=1,
                maxLength=255,
                pattern="^[!-~]+$",
            ),
        ),
        body=AddCardBody,
        response=CardSessionStarted,
        needs=MAY_ADD_CARDS,
        links={
            "readSession": {**_SAME_GUEST, "token_id": "$response.body#/token_id"},
            "cancelSession": {**_SAME_GUEST, "token_id": "$response.body#/token_id"},
            "openHostedPage": {
                "token_id": "$response.body#/token_id",
                "redirect_uri": "$request.body#/redirect_uri",
            },
            "listCards": _SAME_GUEST,
        },
        refusals=(
            *_BODY_REFUSALS,
            errors.InvalidCenterId(),
            errors.RedirectUriRequired(),
            errors.RedirectUriInvalid(),
            errors.InvalidSource(),
            errors.BillingInfoInvalid("email"),
            errors.InvalidField("link_minutes", "a whole number from 15 to 30"),
            errors.CardLimitReached(counted="sessions per guest", of="", retry_after_seconds=3_600),
            errors.IdempotencyKeyInvalid(),
            errors.IdempotencyKeyReused(),
            *_GUEST_REFUSALS,
            errors.PaymentConfigurationNotDone(),
            errors.PaymentMethodAlreadyExists(),
            errors.BillingInfoRequired("address"),
            errors.IncorrectBillingAddress(),
        ),
    ),
    Operation(
        method="get",
        path=_ACCOUNTS,
        name="listCards",
        tag=Tag.CARDS,
        summary="List a guest's cards on file",
        description="Active cards, oldest first.",
        parameters=(
            _GUEST_ID,
            _parameter("center_id", "query", "Only cards of this center."),
            *_PAGING,
        ),
        response=StoredCards,
        needs=MAY_VIEW_CARDS,
        links={
            "readCard": _FIRST_CARD,
            "chooseDefaultCard": _FIRST_CARD,
            "removeCard": _FIRST_CARD,
        },
        refusals=(*_PAGING_REFUSALS, errors.InvalidCenterId(), *_GUEST_REFUSALS),
    ),
    Operation(
        method="get",
        path=_ACCOUNTS + "/{account_id}",
        name="readCard",
        tag=Tag.CARDS,
        summary="Read one card on file",
        description="A caller with `payments:use` also gets what is needed to charge the card.",
        parameters=(_GUEST_WITH_CARD, _ACCOUNT_ID),
        response=StoredCardDetails,
        needs=MAY_VIEW_CARDS,
        links={"removeCard": _SAME_CARD},
        refusals=(errors.PaymentAccountNotFound(),),
    ),
    Operation(
        method="delete",
        path=_ACCOUNTS + "/{account_id}",
        name="removeCard",
        tag=Tag.CARDS,
        summary="Remove a card on file",
        description="It is discarded at the payment service provider too.",
        parameters=(_GUEST_WITH_CARD, _ACCOUNT_ID),
        response=Done,
        needs=MAY_REMOVE_CARDS,
        links={"readCard": _SAME_CARD, "listCards": _SAME_GUEST},
        refusals=(errors.PaymentAccountNotFound(),),
    ),
    Operation(
        method="put",
        path=_ACCOUNTS + "/{account_id}/default",
        name="chooseDefaultCard",
        tag=Tag.CARDS,
        summary="Make a card the guest's default at its center",
        description="Without a body; one that is sent is ignored.",
        parameters=(_GUEST_WITH_CARD, _ACCOUNT_ID),
        response=Done,
        needs=MAY_ADD_CARDS,
        refusals=(errors.PaymentAccountNotFound(),),
    ),
    Operation(
        method="get",
        path=_ACCOUNTS + "/sessions",
        name="listSessions",
        tag=Tag.SESSIONS,
        summary="List a guest's card-addition sessions",
        description="Newest first.",
        parameters=(_GUEST_ID, *_PAGING),
        response=ListedSessions,
        needs=MAY_ADD_CARDS,
        refusals=(*_PAGING_REFUSALS, *_GUEST_REFUSALS),
    ),
    Operation(
        method="get",
        path=_ACCOUNTS + "/sessions/{token_id}",
        name="readSession",
        tag=Tag.SESSIONS,
        summary="Read the state of a card-addition session",
        parameters=(_GUEST_WITH_CARD, _TOKEN_ID),
        response=CardSessionState,
        needs=MAY_VIEW_CARDS,
        links={"readCard": _ITS_CARD, "removeCard": _ITS_CARD},
        refusals=(errors.SessionNotFound(),),
    ),
    Operation(
        method="delete",
        path=_ACCOUNTS + "/sessions/{token_id}",
        name="cancelSession",
        tag=Tag.SESSIONS,
        summary="Cancel a card-addition session",
        description=(
            "Its link and its page are closed. A card that was collected before is stored. A "
            "session that has ended does not change."
        ),
        parameters=(_GUEST_WITH_CARD, _TOKEN_ID),
        response=CardSessionState,
        needs=MAY_ADD_CARDS,
        links={"readSession": {**_SAME_GUEST, "token_id": "$request.path.token_id"}},
        refusals=(errors.SessionNotFound(),),
    ),
    Operation(
        method="get",
        path=_CENTERS,
        name="listCenters",
        tag=Tag.CENTERS,
        summary="List the centers that the token is for",
        description="By name.",
        parameters=_PAGING,
        response=ListedCenters,
        needs=ANY_TOKEN,
        refusals=_PAGING_REFUSALS,
    ),
    Operation(
        method="get",
        path=_CENTERS + "/{center_id}",
        name="readCenter",
        tag=Tag.CENTERS,
        summary="Read how a center takes cards",
        parameters=(_CENTER_ID,),
        response=CenterInfo,
        needs=ANY_TOKEN,
        refusals=(errors.UserNotAuthorized(), errors.InvalidCenterId()),
    ),
    Operation(
        method="get",
        path=_CENTERS + "/{center_id}/accounts",
        name="listExpiringCards",
        tag=Tag.CARDS,
        summary="List a center's cards on file that expire before a date",
        description="Active cards of all guests, soonest first, with those that have expired.",
        parameters=(
            _CENTER_ID,
            _parameter(
                "expires_before",
                "query",
                "A card expires on the last day of its month.",
                required=True,
                known=DATES,
                type="string",
                format="date",
            ),
            *_PAGING,
        ),
        response=ExpiringCards,
        needs=MAY_VIEW_CARDS,
        refusals=(
            *_PAGING_REFUSALS,
            errors.InvalidCenterId(),
            errors.InvalidField("expires_before", EXPECTED_DATE),
        ),
    ),
    Operation(
        method="get",
        path=_CENTERS + "/{center_id}/products",
        name="listProducts",
        tag=Tag.PRODUCTS,
        summary="List the products of a center",
        description="In the order of their creation.",
        parameters=(_CENTER_ID, *_PAGING),
        response=ProductsForSale,
        needs=MAY_VIEW_PRODUCTS,
        refusals=(*_PAGING_REFUSALS, errors.InvalidCenterId()),
    ),
    Operation(
        method="put",
        path=_CENTERS + "/{center_id}/products/{product_id}",
        name="putProduct",
        tag=Tag.PRODUCTS,
        summary="Create or update a product under an id of yours",
        description="A new product comes last in the list; repeating a request changes nothing.",
        parameters=(_CENTER_OF_PRODUCT, _PRODUCT_ID),
        body=ProductBody,
        response=ProductForSale,
        needs=MAY_EDIT_PRODUCTS,
        refusals=(
            *_BODY_REFUSALS,
            errors.InvalidCenterId(),
            errors.InvalidProductId(),
            errors.InvalidField("code", "1 to 100 characters, not blank"),
        ),
    ),
    _LINK,
    replace(
        _LINK,
        method="post",
        name="openHostedPageByClick",
        summary="The button of the page that an old link shows",
        description="As above, whatever the age of the link.",
        pages={
            **{each: meaning for each, meaning in _LINK.pages.items() if each != 200},
            403: "Sent by a page of another origin.",
        },
    ),
    Operation(
        method="get",
        path="/hosted-payments/return",
        name="returnFromHostedPage",
        tag=Tag.SESSIONS,
        summary="Where the hosted page sends a guest who has finished",
        parameters=(_LINK_TOKEN,),
        pages=_WAY_BACK,
    ),
    Operation(
        method="get",
        path="/hosted-payments/cancel",
        name="cancelHostedPage",
        tag=Tag.SESSIONS,
        summary="Where the hosted page sends a guest who goes back without a card",
        parameters=(_LINK_TOKEN,),
        pages=_WAY_BACK,
    ),
    _WEBHOOK,
    replace(
        _WEBHOOK,
        path="/webhooks/{provider}/{account}",
        name="receiveWebhookOfAccount",
        summary="Where a payment service provider sends the events of one merchant account",
        description="As above, verified with the secrets of that account.",
        parameters=(
            *_WEBHOOK.parameters,
            _parameter(
                "account",
                "path",
                "The merchant account's name.",
                type="string",
                examples=["harbor"],
            ),
        ),
    ),
    Operation(
        method="get",
        path="/healthz",
        name="alive",
        tag=Tag.SERVICE,
        summary="Whether the process is alive",
        response=Health,
    ),
    Operation(
        method="get",
        path="/readyz",
        name="ready",
        tag=Tag.SERVICE,
        summary="Whether the service can read and write its records",
        response=Health,
    ),
    Operation(
        method="get",
        path="/openapi.json",
        name="openapi",
        tag=Tag.SERVICE,
        summary="This document",
        pages={200: "The OpenAPI document."},
    ),
)
