"""Our words as Stripe's parameters, and Stripe's answers as our words.

Each class holds what is read of an object of Stripe's API reference, by the name it has there. An
answer that has not this form, or a value that is not listed there, is one that cannot be understood.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from adapters.psp.fields import LastFour, Month, Year
from domain.billing import AvsResult, BillingInfo
from domain.hosted_pages import (
    CONSENT_LANGUAGE,
    CardCollected,
    CardRefused,
    HostedPage,
    HostedPageRequest,
    NoCardCollected,
    Outcome,
    PageClosed,
    Pending,
)
from domain.identifiers import CardToken, GuestReference
from domain.payment_accounts import Card
from domain.ports import ProviderUnavailable

if TYPE_CHECKING:
    from stripe.params import CustomerUpdateParams, CustomerUpdateParamsAddress
    from stripe.params.checkout import SessionCreateParams

SHORTEST_LIFE: Final = timedelta(minutes=30)
LONGEST_LIFE: Final = timedelta(hours=24)
"""How long after its creation a Checkout Session may end ("Create a Session", `expires_at`)."""

LEEWAY: Final = timedelta(minutes=2)
"""What the way to Stripe, a repeated call, and two clocks that differ may take of either."""

CARD: Final = "card"
"""The type of a payment method that is a card."""

LINK: Final = "link"
"""The brand of a "card" that is a Link account, behind which may be anything (PaymentMethod,
`card.brand`). It has no fingerprint, and no bank has checked its address."""

DETACH_GRACE: Final = timedelta(minutes=1)
"""How long after a page is complete its card may still be attached to the customer.

Stripe attaches it at the end of the confirmation, which a challenge may prolong.
"""

_MARKDOWN: Final = re.compile(
    # Emphasis, code, links, HTML; what makes a link of an address; what begins an entity.
    r"[\\`*_~\[\]<@]|(?<=\])\(|:(?=//)|(?<=www)\.|&(?=#?[0-9a-z]+;)",
    re.IGNORECASE,
)

TOKEN_ID: Final = "token_id"  # noqa: S105 - the name of a metadata key
ATTEMPT: Final = "attempt"
GUEST_ID: Final = "guest_id"


def consent_as_sent(text: str) -> str:
    """Give a consent text so that Stripe, which renders Markdown, shows it as it is.

    Names in it may hold anything. Source: Stripe's documentation, "Customize text and policies".
    """
    return _MARKDOWN.sub(r"\\\g<0>", text)


def page_parameters(
    request: HostedPageRequest, customer: str, currency: str | None
) -> SessionCreateParams:
    """Give the parameters of "Create a Session" for the page of an attempt.

    They depend on nothing but the request, the customer and a setting, so that a repeated call is
    the same. `currency` is a three-letter code in lower case; without one none is sent.

    Checkout makes SetupIntents for use `off_session`; there is no parameter for it. What was
    `payment_method_types` is called `allowed_payment_method_types` since version 2026-09-30.
    """
    metadata = {TOKEN_ID: request.token_id, ATTEMPT: str(request.attempt)}
    parameters: SessionCreateParams = {
        "mode": "setup",
        "allowed_payment_method_types": [CARD],
        # Link counts as a card for the filter above, and may have a bank account behind it.
        "wallet_options": {"link": {"display": "never"}},
        "locale": CONSENT_LANGUAGE,
        "customer": customer,
        "client_reference_id": request.token_id,
        "metadata": metadata,
        # Events of a SetupIntent carry its own metadata, not the session's.
        "setup_intent_data": {"metadata": metadata},
        "success_url": request.return_uri,
        "cancel_url": request.cancel_uri,
        "expires_at": math.ceil(_ends_at(request).timestamp()),
        "custom_text": {"submit": {"message": consent_as_sent(request.consent.text)}},
    }
    if currency:
        parameters["currency"] = currency
    if request.avs:
        parameters["billing_address_collection"] = "required"
    return parameters


def _ends_at(request: HostedPageRequest) -> datetime:
    """Give when the page ends: Stripe's least, or what the session asks for, up to its most."""
    earliest = request.begun_at + SHORTEST_LIFE + LEEWAY
    latest = request.begun_at + LONGEST_LIFE - LEEWAY
    return min(max(earliest, request.live_until), latest)


def customer_parameters(request: HostedPageRequest) -> CustomerUpdateParams:
    """Give what Stripe may know of the guest, and fills its page in with as far as it does."""
    billing = request.billing_info or BillingInfo()
    name = " ".join(filter(None, (billing.first_name, billing.last_name)))
    parameters: CustomerUpdateParams = {"name": name or request.guest_name}
    if email := billing.email or request.guest_email:
        parameters["email"] = email
    if billing.phone:
        # Stripe takes 20 characters, which the digits alone never exceed.
        parameters["phone"] = "+" + "".join(filter(str.isdigit, billing.phone))
    if address := _address(billing):
        parameters["address"] = address
    return parameters


def _address(billing: BillingInfo) -> CustomerUpdateParamsAddress:
    address: CustomerUpdateParamsAddress = {}
    if billing.address:
        address["line1"] = billing.address
    if billing.city:
        address["city"] = billing.city
    if billing.state:
        address["state"] = billing.state
    if billing.zipcode:
        address["postal_code"] = billing.zipcode
    if billing.country_code:
        address["country"] = billing.country_code
    return address


_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
_Time = Annotated[int, msgspec.Meta(ge=0, le=253_402_300_799)]  # to the end of the year 9999


class SessionStatus(StrEnum):
    """Checkout Session, `status`."""

    OPEN = "open"
    COMPLETE = "complete"
    EXPIRED = "expired"


class IntentStatus(StrEnum):
    """SetupIntent, `status`."""

    REQUIRES_PAYMENT_METHOD = "requires_payment_method"
    REQUIRES_CONFIRMATION = "requires_confirmation"
    REQUIRES_ACTION = "requires_action"
    PROCESSING = "processing"
    SUCCEEDED = "succeeded"
    CANCELED = "canceled"


class Check(StrEnum):
    """PaymentMethod, `card.checks`."""

    PASS = "pass"  # noqa: S105 - no password
    FAIL = "fail"
    UNAVAILABLE = "unavailable"
    UNCHECKED = "unchecked"


class Answer(msgspec.Struct):
    """What every object of the API has: whether it is of live mode."""

    livemode: bool


class Checks(msgspec.Struct):
    """PaymentMethod, `card.checks`."""

    address_line1_check: Check | None = None
    address_postal_code_check: Check | None = None


class CardDetails(msgspec.Struct):
    """PaymentMethod, `card`."""

    brand: Annotated[str, msgspec.Meta(pattern="^[a-z0-9_]{1,32}$")]
    last4: LastFour
    exp_month: Month
    exp_year: Year
    fingerprint: _Id | None = None
    checks: Checks | None = None


class CollectedMethod(msgspec.Struct):
    """PaymentMethod, with its `card` if its type is `card`."""

    id: _Id
    type: Annotated[str, msgspec.Meta(pattern="^[a-z0-9_]{1,64}$")]
    created: _Time
    card: CardDetails | None = None
    customer: _Id | None = None

    def __post_init__(self) -> None:
        """Refuse a card without its details. msgspec makes a ValidationError of the ValueError."""
        if self.type == CARD and self.card is None:
            raise ValueError("a card without details")


class SetupError(msgspec.Struct):
    """SetupIntent, `last_setup_error`: that there is one is all that is read of it."""


class SetupIntent(msgspec.Struct):
    """SetupIntent, with its PaymentMethod where that was asked for."""

    status: IntentStatus
    payment_method: CollectedMethod | str | None = None
    last_setup_error: SetupError | None = None


class CustomerOrWhatIsLeft(msgspec.Struct):
    """Customer, which can be retrieved after it was deleted, with little in it."""

    deleted: bool = False


class CheckoutSession(Answer):
    """Checkout Session, with its SetupIntent and customer where they were asked for."""

    id: _Id
    status: SessionStatus
    expires_at: _Time
    url: str | None = None
    customer: CustomerOrWhatIsLeft | str | None = None
    payment_method_types: tuple[str, ...] = ()
    client_reference_id: str | None = None
    metadata: dict[str, str] | None = None
    setup_intent: SetupIntent | str | None = None

    def is_for(self, request: HostedPageRequest) -> bool:
        """Tell whether it was made for this attempt."""
        attempt = (self.metadata or {}).get(ATTEMPT)
        return (self.client_reference_id, attempt) == (request.token_id, str(request.attempt))


class Sessions(msgspec.Struct):
    """A list of Checkout Sessions."""

    data: list[CheckoutSession]


class Account(msgspec.Struct):
    """Account; it has the same `id` in test mode and in live mode."""

    id: _Id


class Customer(Answer):
    """Customer."""

    id: _Id


class StoredMethod(Answer):
    """PaymentMethod, and the customer it is attached to, None once it is detached."""

    id: _Id
    customer: _Id | None = None


def page_of(session: CheckoutSession, customer: str) -> HostedPage:
    """Give the page of a Checkout Session that is open."""
    if not session.url:
        raise ProviderUnavailable("Stripe made a page without an address")
    return HostedPage(
        reference=session.id,
        address=session.url,
        ends_at=_time(session.expires_at),
        guest_reference=GuestReference(customer),
    )


def outcome_of(
    session: CheckoutSession, page: HostedPage, *, completed_at: datetime | None, now: datetime
) -> Outcome:
    """Give what a Checkout Session tells of its page.

    A SetupIntent that has succeeded is the truth whatever the session says of itself: from then on
    the card is stored at Stripe, and has to be kept or discarded. Once it is detached, or its
    customer is deleted, it can never be charged again, and the page brings no card.

    `completed_at` is when a webhook has told that the page is complete, None if none has.
    Raises ProviderUnavailable when Stripe left something out.
    """
    if isinstance(session.setup_intent, str):
        raise ProviderUnavailable("Stripe left the SetupIntent out")
    match session.status, session.setup_intent:
        case _, SetupIntent(status=IntentStatus.SUCCEEDED) as intent:
            if not isinstance(intent.payment_method, CollectedMethod):
                raise ProviderUnavailable("Stripe left the PaymentMethod out")
            method = intent.payment_method
            if isinstance(session.customer, CustomerOrWhatIsLeft) and session.customer.deleted:
                return PageClosed()
            if method.customer is None:
                return _outcome_without_holder(page, completed_at, now)
            return _outcome_with(method, page)
        case SessionStatus.EXPIRED, _:
            return PageClosed()
        case (
            SessionStatus.COMPLETE,
            SetupIntent(status=IntentStatus.REQUIRES_PAYMENT_METHOD | IntentStatus.CANCELED),
        ):
            return PageClosed()
        case SessionStatus.COMPLETE, None:
            raise ProviderUnavailable("Stripe knows no SetupIntent of a complete page")
        case (
            SessionStatus.OPEN,
            SetupIntent(status=IntentStatus.REQUIRES_PAYMENT_METHOD, last_setup_error=SetupError()),
        ):
            return CardRefused()
        case _:
            # Nothing typed yet, or the bank's challenge is open.
            return Pending()


def _outcome_without_holder(
    page: HostedPage, completed_at: datetime | None, now: datetime
) -> Outcome:
    """Give what a page tells whose card no customer holds: not yet, or not any more.

    When the guest was done is told by a webhook alone; without one it was before the page's end.
    Raises ProviderUnavailable where Pending would end a session whose card may yet be attached.
    """
    if now >= (completed_at or page.ends_at) + DETACH_GRACE:
        return PageClosed()
    if now < page.ends_at:
        return Pending()
    raise ProviderUnavailable("Stripe may still attach the card")


def _outcome_with(method: CollectedMethod, page: HostedPage) -> Outcome:
    """Give what a page tells whose card a customer holds."""
    typed_at = _time(method.created)
    token = CardToken(method.id)
    card = method.card
    if method.type != CARD or card is None or card.brand == LINK:
        return NoCardCollected(
            guest_reference=page.guest_reference, token=token, collected_at=typed_at
        )
    return CardCollected(
        card=Card(
            guest_reference=page.guest_reference,
            token=token,
            # Stripe may have none. The card is stored all the same, and has to be kept or discarded:
            # it then counts as a card that is like no other.
            fingerprint=card.fingerprint or method.id,
            card_logo=card.brand,
            last_four=card.last4,
            expiry_month=card.exp_month,
            expiry_year=card.exp_year,
        ),
        avs=_avs_result(card.checks or Checks()),
        collected_at=typed_at,
    )


def _avs_result(checks: Checks) -> AvsResult:
    """Put both checks into one word: what the bank calls wrong is wrong, whatever else is right."""
    results = {checks.address_line1_check, checks.address_postal_code_check}
    if Check.FAIL in results:
        return AvsResult.MISMATCH
    return AvsResult.MATCH if Check.PASS in results else AvsResult.NOT_CHECKED


def _time(unix_seconds: int) -> datetime:
    return datetime.fromtimestamp(unix_seconds, UTC)


# msgspec learns a type when it first reads one, and crashes when several threads do so at once
# (0.22). Making a decoder teaches it the type here, where there is one thread.
for _type in (CheckoutSession, Sessions, Account, Customer, CustomerOrWhatIsLeft, StoredMethod):
    msgspec.json.Decoder(_type)
