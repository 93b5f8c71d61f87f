"""Card-addition sessions: add-card, and `/api/v1/guests/{guest_id}/accounts/sessions`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, ClassVar, Final, Literal

import falcon
import msgspec
from msgspec import Meta, Struct

from adapters.http.cards import ACCOUNTS
from adapters.http.examples import CLINIC_ID, SPA_ID, TOKEN_IDS, Example, sample
from adapters.http.guests import GUEST_REFUSALS, GUEST_WITH_CARD, SAME_GUEST
from adapters.http.operations import Operation, Tag, parameter
from adapters.http.requests import RequestBody, field
from adapters.http.responses import Done, PageInfo, Uri, Uuid, example, time_example, uuid_example
from adapters.thread_safe_types import prepare
from domain import errors
from domain.agreements.terms import MAX_AGREEMENT_REFERENCE_LENGTH, MAX_DESCRIPTION_LENGTH, Reuse
from domain.billing import MAX_LENGTHS
from domain.centers.payment_configuration import MAX_LINK_MINUTES, MIN_LINK_MINUTES
from domain.hosted_payments.link import HostedLinks
from domain.identifiers import plain_uuid
from domain.languages import EXPECTED_LOCALE, MAX_TAG_LENGTH
from domain.pagination import Page, PageRequest
from domain.permissions import Caller
from domain.psps.hosted_page import Authentication
from domain.redirects import MAX_REDIRECT_URI_LENGTH
from domain.sessions.add_card import AddCard
from domain.sessions.end import SessionStatus
from domain.sessions.queries import ListSessions, ReadSession
from domain.sessions.reference import EXPECTED_REFERENCE, MAX_REFERENCE_LENGTH
from domain.sessions.request import AddCardRequest
from domain.sessions.session import CardSession
from domain.settling.cancel_session import CancelSession
from domain.source import DEFAULT_SOURCE, Source

SESSION: Final = ACCOUNTS + "/sessions/{token_id}"
_TOKEN_ID: Final = parameter(
    "token_id", "path", "The token of the session, from the response to add-card.", known=TOKEN_IDS
)

REPLAYED: Final = "Idempotent-Replayed"

_ITS_CARD: Final = {**SAME_GUEST, "account_id": "$response.body#/account_id"}


_BILLING_FIELDS: Final[dict[str, dict[str, object]]] = {
    name: {"type": ["string", "null"], "maxLength": length} for name, length in MAX_LENGTHS.items()
}


AN_AGREEMENT: Final[dict[str, object]] = {
    "reference": "booking-1001",
    "description": "2 × massage",
    "starts_at": "2026-12-05T15:00:00+01:00",
    "ends_at": "2026-12-05T16:00:00+01:00",
    "no_show": {"amount": "80.00", "currency": "EUR"},
    "late_cancellation": {"amount": "40.00", "currency": "EUR"},
    "cancel_by": "2026-12-04T15:00:00+01:00",
    "policy_uri": "https://shop.example/terms",
}

_MONEY: Final[dict[str, object]] = {
    "type": ["object", "null"],
    "properties": {
        "amount": {"type": "string", "pattern": r"^(0|[1-9][0-9]*)(\.[0-9]+)?$"},
        "currency": {"type": "string", "pattern": "^[A-Z]{3}$"},
    },
    "required": ["amount", "currency"],
    "additionalProperties": False,
}
_AGREEMENT_FIELDS: Final[dict[str, dict[str, object]]] = {
    "reference": {"type": "string", "minLength": 1, "maxLength": MAX_AGREEMENT_REFERENCE_LENGTH},
    "description": {"type": "string", "minLength": 1, "maxLength": MAX_DESCRIPTION_LENGTH},
    "starts_at": {"type": "string", "format": "date-time"},
    "ends_at": {"type": "string", "format": "date-time"},
    "no_show": _MONEY,
    "late_cancellation": _MONEY,
    "cancel_by": {"type": ["string", "null"], "format": "date-time"},
    "policy_uri": {"type": ["string", "null"], "format": "uri", "pattern": "^https://"},
    "replaces": {"type": ["string", "null"], "format": "uuid"},
    "reuse": {"type": ["string", "null"], "enum": [*Reuse, None]},
}


class AddCardBody(RequestBody, frozen=True, kw_only=True):
    """The body of add-card. Unknown fields are ignored and never stored."""

    required: ClassVar[tuple[str, ...]] = ("center_id", "redirect_uri")

    center_id: Annotated[
        object,
        field(
            "The id of the center.",
            type="string",
            format="uuid",
            examples=["5d0c6e2e-7b1f-4a66-8a43-2f1b0c9d7e10"],
        ),
    ] = None
    redirect_uri: Annotated[
        object,
        field(
            "The address to which the guest's browser is redirected after the card is added.",
            type="string",
            format="uri",
            maxLength=MAX_REDIRECT_URI_LENGTH,
            examples=["https://shop.example/cards"],
        ),
    ] = None
    billing_info: Annotated[
        object,
        field(
            "If address verification is on, address and country_code are required, and zipcode if "
            "the country has postal codes.",
            type=["object", "null"],
            properties=_BILLING_FIELDS,
            examples=[{"address": "1 Main St", "country_code": "US", "zipcode": "98101"}],
        ),
    ] = None
    source: Annotated[
        object,
        field(
            "Where the card is added: 1 = web store (the default), 5 = mobile.",
            type="integer",
            enum=[source.value for source in Source],
        ),
    ] = DEFAULT_SOURCE.value
    link_minutes: Annotated[
        object,
        field(
            "How many minutes the link can wait to be opened, at most the center's link_minutes.",
            type=["integer", "null"],
            minimum=MIN_LINK_MINUTES,
            maximum=MAX_LINK_MINUTES,
        ),
    ] = None
    locale: Annotated[
        object,
        field(
            "The language of the hosted page (BCP 47), or `auto` for the language of the browser.",
            type=["string", "null"],
            maxLength=MAX_TAG_LENGTH,
            examples=["de-AT"],
        ),
    ] = None
    reference: Annotated[
        object,
        field(
            "Your own reference, such as an order number. The session, lists and events contain it.",
            type=["string", "null"],
            maxLength=MAX_REFERENCE_LENGTH,
            examples=["order-1001"],
        ),
    ] = None
    authentication: Annotated[
        object,
        field(
            "`required` if the bank must authenticate the guest (3-D Secure), even if the center "
            "does not require it.",
            type=["string", "null"],
            enum=[*(each.value for each in Authentication), None],
        ),
    ] = None
    agreement: Annotated[
        object,
        field(
            "The terms of a booking that the card guarantees, if the center takes agreements. The "
            "guest agrees to them before typing the card. Unknown fields in it are refused.",
            type=["object", "null"],
            properties=_AGREEMENT_FIELDS,
            required=["reference", "description", "starts_at", "ends_at"],
            additionalProperties=False,
            examples=[AN_AGREEMENT],
        ),
    ] = None


_LINK_EXAMPLE: Final = (
    "https://cards.example/hosted-payments?token_id=8c2f3f1a-6b0e-4c57-9a51-0d8f4c3f7b21"
    "&key=mzxw6ytboi2hk4tfonuw45dpmu&redirect_uri=https%3A%2F%2Fshop.example%2Fcards"
)


class CardSessionStarted(Done, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The response to add-card."""

    hosted_payment_uri: Annotated[
        Uri,
        example(
            _LINK_EXAMPLE,
            "Where to redirect the guest: the link to the hosted page, which collects the card.",
        ),
    ]
    token_id: Annotated[Uuid, uuid_example("The token of the card-addition session.")]

    @classmethod
    def of(cls, session: CardSession, links: HostedLinks) -> CardSessionStarted:
        """Return the response for a session that has just been started."""
        return cls(hosted_payment_uri=links.hosted_payment_uri(session), token_id=session.token_id)


class SessionFailure(Struct, frozen=True):
    """The reason why the card of a session was refused."""

    code: Annotated[int, example(400)]
    message: Annotated[str, example("Payment method already exists")]
    type: Annotated[str, example("payment_method_already_exists", "The type of the refusal.")]


_SessionToken = Annotated[Uuid, uuid_example("The token of the card-addition session.")]


_SessionCenter = Annotated[Uuid, uuid_example("The center at which the card is added.")]


_SessionReference = Annotated[
    str | None, example("order-1001", "Your own reference, as sent with add-card.")
]


_SessionLocale = Annotated[str | None, example("de-AT", "The locale, as sent with add-card.")]


_SessionStart = Annotated[datetime, time_example("When the session was started.")]


_SessionStatus = Annotated[
    Literal["open", "completed", "failed", "expired"], example("completed", type="string")
]


_SessionProgress = Annotated[
    str,
    example("returned", "The last step of the session: created, opened, returned or cancelled."),
]


_StoredCardId = Annotated[
    Uuid | None, uuid_example("The id of the stored card, once the session is completed.")
]


_ExistingCardId = Annotated[
    Uuid | None,
    uuid_example(
        "The payment account that already holds the card, if the session failed for this reason."
    ),
]


_SessionFailure = Annotated[
    SessionFailure | None, Meta(description="Why the card was refused, once the session failed.")
]


_SessionEnd = Annotated[
    datetime,
    time_example(
        "The end of the link, or of its page if that is later. For a cancelled session, the time of "
        "the cancellation."
    ),
]


class CardSessionState(Done, frozen=True, kw_only=True):
    """The state of a card-addition session."""

    token_id: _SessionToken
    center_id: _SessionCenter
    reference: _SessionReference
    locale: _SessionLocale
    created_at: _SessionStart
    status: _SessionStatus
    progress: _SessionProgress
    account_id: _StoredCardId
    existing_account_id: _ExistingCardId
    failure: _SessionFailure
    expires_at: _SessionEnd
    hosted_payment_uri: Annotated[
        Uri | None,
        example(
            _LINK_EXAMPLE,
            "The link, while it works. Only callers that may add cards see it, and only if they "
            "started the session or may read the guest. Otherwise null.",
        ),
    ] = None
    short_uri: Annotated[
        Uri | None,
        example(
            "https://cards.example/h/mzxw6ytboi2hk4tfonuw45dpmu",
            "The short form of the link, for text messages and QR codes. Null if hosted_payment_uri is "
            "null, or if a release before 0.3 started the session.",
        ),
    ] = None

    @classmethod
    def of(cls, session: CardSession, links: HostedLinks | None = None) -> CardSessionState:
        """Return the state of a session. Without `links`, the state does not contain the link."""
        state = msgspec.convert(session, cls, from_attributes=True)
        if links is None:
            return state
        return msgspec.structs.replace(
            state,
            hosted_payment_uri=links.hosted_payment_uri(session),
            short_uri=links.short_uri(session),
        )


class ListedSession(Struct, frozen=True, kw_only=True):
    """One of a guest's card-addition sessions."""

    token_id: _SessionToken
    center_id: _SessionCenter
    reference: _SessionReference
    locale: _SessionLocale
    status: _SessionStatus
    progress: _SessionProgress
    account_id: _StoredCardId
    existing_account_id: _ExistingCardId
    failure: _SessionFailure
    created_at: _SessionStart
    expires_at: _SessionEnd


class ListedSessions(Struct, frozen=True, kw_only=True):
    """A page of a guest's card-addition sessions."""

    sessions: list[ListedSession]
    page_info: PageInfo

    @classmethod
    def of(cls, page: Page[CardSession]) -> ListedSessions:
        """Return the response for a page of sessions."""
        sessions = [
            msgspec.convert(session, ListedSession, from_attributes=True) for session in page.items
        ]
        return cls(sessions=sessions, page_info=PageInfo.of(page))


def _add_card_examples(base_url: str) -> Mapping[str, Example]:
    # The guest's browser returns to this address, which is a page of this service.
    redirect_uri = f"{base_url}/docs"
    return {
        "spa": sample("At Still Water Spa", {"center_id": SPA_ID, "redirect_uri": redirect_uri}),
        "clinic": sample(
            "At Clear Skin Clinic, which verifies the billing address",
            {
                "center_id": CLINIC_ID,
                "redirect_uri": redirect_uri,
                "billing_info": {
                    "address": "1 Main Street",
                    "zipcode": "98101",
                    "country_code": "US",
                },
            },
        ),
    }


prepare(AddCardBody, CardSessionState, ListedSession)


@dataclass(frozen=True, kw_only=True)
class SessionResource:
    """Add cards: start, list, read and cancel sessions."""

    add_card: AddCard
    list_sessions: ListSessions
    read_session: ReadSession
    cancel_session: CancelSession
    links: HostedLinks
    wake_reconciler: Callable[[], None]

    @Operation(
        method="post",
        path=ACCOUNTS,
        name="addCard",
        tag=Tag.CARDS,
        summary="Start adding a card to a guest's profile",
        description=(
            "Returns the link to a hosted page that collects the card. Redirect the guest's "
            "browser to the link. The card is stored after the guest has entered it. The browser then "
            "comes back to redirect_uri. To prevent card testing, the sessions and refused cards of a "
            "guest, a caller and a center are limited in 24 hours. After a 429, tell the guest to try "
            "again later."
        ),
        parameters=(
            GUEST_WITH_CARD,
            parameter(
                "Idempotency-Key",
                "header",
                "For 24 hours, a repeated request with the same key returns the same session. The "
                "key may be a quoted string.",
                type="string",
                minLength=1,
                maxLength=255,
                pattern="^[!-~]+$",
            ),
        ),
        body_examples=_add_card_examples,
        headers={
            REPLAYED: {
                "description": "`true` if an earlier request with this key started the session.",
                "schema": {"type": "string"},
            }
        },
        logged=("guest_id",),
        calls=AddCard,
        links={
            "readSession": {**SAME_GUEST, "token_id": "$response.body#/token_id"},
            "cancelSession": {**SAME_GUEST, "token_id": "$response.body#/token_id"},
            "listCards": SAME_GUEST,
        },
        refusals=(
            errors.InvalidCenterId(),
            errors.RedirectUriRequired(),
            errors.RedirectUriInvalid(),
            errors.InvalidSource(),
            errors.BillingInfoInvalid("email"),
            errors.InvalidField("link_minutes", "a whole number from 15 to 30"),
            errors.InvalidField("locale", EXPECTED_LOCALE),
            errors.InvalidField("reference", EXPECTED_REFERENCE),
            errors.InvalidField("agreement.ends_at", "after starts_at"),
            errors.ConsentNotSet(),
            errors.AgreementReferenceUsed(),
            errors.TooManyAgreements(),
            errors.CardLimitReached(counted="sessions per guest", of="", retry_after_seconds=3_600),
            errors.IdempotencyKeyInvalid(),
            errors.IdempotencyKeyReused(),
            *GUEST_REFUSALS,
            errors.PaymentConfigurationNotDone(),
            errors.CenterKeepsOneCard(),
            errors.BillingInfoRequired("address"),
            errors.IncorrectBillingAddress(),
        ),
    )
    def add(
        self,
        req: falcon.Request,
        resp: falcon.Response,
        caller: Caller,
        guest_id: str,
        body: AddCardBody,
    ) -> CardSessionStarted:
        """Start a card-addition session."""
        req.context.asked_for["center_id"] = plain_uuid(body.center_id)
        started = self.add_card(
            caller,
            AddCardRequest(
                guest_id=guest_id,
                idempotency_key=req.get_header("Idempotency-Key"),
                **msgspec.structs.asdict(body),
            ),
        )
        if started.is_replayed:
            resp.set_header(REPLAYED, "true")
        return CardSessionStarted.of(started.session, self.links)

    @Operation(
        method="get",
        path=ACCOUNTS + "/sessions",
        name="listSessions",
        tag=Tag.SESSIONS,
        summary="List a guest's card-addition sessions",
        description="Newest first.",
        parameters=(
            GUEST_WITH_CARD,
            parameter(
                "status",
                "query",
                "List only sessions with this status.",
                type="string",
                enum=[status.value for status in SessionStatus],
            ),
            parameter(
                "reference",
                "query",
                "List only sessions with this reference, which you sent with add-card.",
                type="string",
                maxLength=MAX_REFERENCE_LENGTH,
            ),
        ),
        calls=ListSessions,
        refusals=(
            errors.InvalidField("status", "one of open, completed, failed, expired"),
            *GUEST_REFUSALS,
        ),
    )
    def list(
        self,
        caller: Caller,
        guest_id: str,
        status: Sequence[str],
        reference: Sequence[str],
        page: PageRequest,
    ) -> ListedSessions:
        """List the guest's sessions, newest first."""
        found = self.list_sessions(
            caller, guest_id=guest_id, statuses=status, references=reference, page=page
        )
        return ListedSessions.of(found)

    @Operation(
        method="get",
        path=SESSION,
        name="readSession",
        tag=Tag.SESSIONS,
        summary="Read the state of a card-addition session",
        parameters=(GUEST_WITH_CARD, _TOKEN_ID),
        calls=ReadSession,
        links={"readCard": _ITS_CARD, "removeCard": _ITS_CARD},
        refusals=(errors.SessionNotFound(),),
    )
    def read(self, caller: Caller, guest_id: str, token_id: str) -> CardSessionState:
        """Read the state of a session.

        If the session has ended, the state contains the account or the failure.
        """
        session, shows_link = self.read_session(caller, guest_id=guest_id, token_id=token_id)
        return CardSessionState.of(session, self.links if shows_link else None)

    @Operation(
        method="delete",
        path=SESSION,
        name="cancelSession",
        tag=Tag.SESSIONS,
        summary="Cancel a card-addition session",
        description=(
            "Closes the link and the page of the session. A card that was collected before the "
            "cancellation is stored. A session that has ended does not change. A caller that may "
            "read the guest can also cancel the sessions of other callers."
        ),
        parameters=(GUEST_WITH_CARD, _TOKEN_ID),
        calls=CancelSession,
        links={"readSession": {**SAME_GUEST, "token_id": "$request.path.token_id"}},
        refusals=(errors.SessionNotFound(),),
    )
    def cancel(self, caller: Caller, guest_id: str, token_id: str) -> CardSessionState:
        """Cancel a session, and return its state."""
        session = self.cancel_session(caller, guest_id=guest_id, token_id=token_id)
        self.wake_reconciler()
        return CardSessionState.of(session)
