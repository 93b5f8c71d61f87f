"""Translate requests into Stripe's parameters, and Stripe's responses into outcomes.

Each class contains the fields that are read from one object of Stripe's API. The fields have the
names in Stripe's API reference. A response in another form, or with a value that the reference does
not list, is not usable.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from adapters.psp.fields import LastFour, Month, Year
from adapters.stripe.page_texts import LOCALES, consent_as_sent, refused_funding
from adapters.thread_safe_types import prepare
from domain.billing import AvsResult, BillingInfo
from domain.identifiers import CardToken, GuestReference
from domain.languages import DEFAULT_LANGUAGE, look_up
from domain.psps.card import Card, CardAtPsp, CardList, CardReading, Funding
from domain.psps.hosted_page import (
    Authentication,
    CardCollected,
    CardRefused,
    HostedPage,
    HostedPageRequest,
    NoCardCollected,
    Outcome,
    PageClosed,
    Pending,
)
from domain.psps.payment_provider import NotFound, ProviderRefused, ProviderUnavailable

if TYPE_CHECKING:
    from stripe.params import CustomerUpdateParams, CustomerUpdateParamsAddress
    from stripe.params.checkout import (
        SessionCreateParams,
        SessionCreateParamsBrandingSettings,
        SessionCreateParamsPaymentMethodOptionsCard,
    )

SHORTEST_LIFE: Final = timedelta(minutes=30)
LONGEST_LIFE: Final = timedelta(hours=24)
"""The maximum lifetime of a Checkout Session ("Create a Session", `expires_at`)."""

LEEWAY: Final = timedelta(minutes=2)
"""The margin by which a page stays within Stripe's shortest and longest lifetime. It allows for
latency, retries and differing clocks.
"""

CARD: Final = "card"
"""The type of a payment method that is a card."""

UNKNOWN: Final = "unknown"
"""The value of facts that Stripe does not know (PaymentMethod, `card.funding`, `card.wallet`)."""

LINK: Final = "link"
"""The brand of a "card" that is a Link account, with any payment method behind it (PaymentMethod,
`card.brand`). Such a card has no fingerprint, and no bank has checked its address.
"""

DETACH_GRACE: Final = timedelta(minutes=1)
"""How long Stripe may take to attach the card of a completed page to the customer.

Stripe attaches the card at the end of the confirmation, which a challenge may prolong. A card that
is not attached after this time was detached.
"""

BRANDING: Final = "branding_settings"
OPTIONS: Final = "payment_method_options"
THREE_D_SECURE: Final = "request_three_d_secure"
TOKEN_ID: Final = "token_id"  # noqa: S105 - the name of a metadata key
ATTEMPT: Final = "attempt"
GUEST_ID: Final = "guest_id"


def page_parameters(
    request: HostedPageRequest, customer: str, currency: str | None
) -> SessionCreateParams:
    """Return the parameters of "Create a Session" for the page of an attempt.

    A repeated call returns the same parameters. `currency` is a three-letter code in lower case, or
    None if no currency is sent.

    The center's consent text replaces Stripe's own text, as "Customize payment method reuse
    agreement" describes. Two texts would be ambiguous, and only the center's text is stored with
    the card.

    Checkout always creates SetupIntents for the use `off_session`, so no parameter states the use.
    Since version 2026-09-30 of the API, the parameter `payment_method_types` has been called
    `allowed_payment_method_types`.
    """
    metadata = {TOKEN_ID: request.token_id, ATTEMPT: str(request.attempt)}
    parameters: SessionCreateParams = {
        "mode": "setup",
        "allowed_payment_method_types": [CARD],
        # The filter above does not exclude Link, which may charge a bank account.
        "wallet_options": {"link": {"display": "never"}},
        "locale": look_up(request.language, LOCALES) or DEFAULT_LANGUAGE,
        "customer": customer,
        "client_reference_id": request.token_id,
        "metadata": metadata,
        # Events about the SetupIntent contain its own metadata, but not those of the session.
        "setup_intent_data": {"metadata": metadata},
        "success_url": request.return_uri,
        "cancel_url": request.cancel_uri,
        "expires_at": math.ceil(_ends_at(request).timestamp()),
        "consent_collection": {"payment_method_reuse_agreement": {"position": "hidden"}},
        "custom_text": {"submit": {"message": consent_as_sent(request.consent.text)}},
        BRANDING: _branding(request),
    }
    if currency:
        parameters["currency"] = currency
    if request.avs:
        parameters["billing_address_collection"] = "required"
    if card := _card_options(request):
        parameters[OPTIONS] = {"card": card}
    if request.refuse_funding:
        parameters["custom_text"]["after_submit"] = {"message": refused_funding(request)}
    return parameters


def _card_options(request: HostedPageRequest) -> SessionCreateParamsPaymentMethodOptionsCard:
    """Return the page's options for cards: which it refuses, and whether 3-D Secure is required."""
    card: SessionCreateParamsPaymentMethodOptionsCard = {}
    if request.refuse_funding:
        card["restrictions"] = {
            "funding_types_blocked": [each.value for each in sorted(request.refuse_funding)]
        }
    if request.authentication is Authentication.REQUIRED:
        card[THREE_D_SECURE] = "any"
    return card


def is_about_restrictions(param: str) -> bool:
    """Return whether a parameter that Stripe refused is about restrictions of cards."""
    return param.startswith(OPTIONS) and not param.endswith(f"[{THREE_D_SECURE}]")


def has_restrictions(parameters: SessionCreateParams) -> bool:
    """Return whether these parameters make the page refuse cards by their funding."""
    return "restrictions" in parameters.get(OPTIONS, {}).get("card", {})


def without_restrictions(parameters: SessionCreateParams) -> SessionCreateParams:
    """Return the parameters without restrictions, so that the page accepts cards of any funding."""
    options = parameters[OPTIONS]
    card = options["card"].copy()
    del card["restrictions"]
    return {**parameters, OPTIONS: {**options, "card": card}}


def _branding(request: HostedPageRequest) -> SessionCreateParamsBrandingSettings:
    """Return the center's name, color and logo, which the page shows in place of the merchant's."""
    branding: SessionCreateParamsBrandingSettings = {"display_name": request.center_name}
    if request.color:
        branding["button_color"] = request.color
    # Stripe's logos are JPG or PNG ("Branding your Stripe account"), and it fetches them.
    if (
        request.logo_uri
        and request.logo_uri.startswith("https:")
        and request.logo_uri.endswith(".png")
    ):
        branding["logo"] = {"type": "url", "url": request.logo_uri}
    return branding


def _ends_at(request: HostedPageRequest) -> datetime:
    """Return the end of the page: `live_until`, or the nearest time that Stripe's limits allow."""
    earliest = request.begun_at + SHORTEST_LIFE + LEEWAY
    latest = request.begun_at + LONGEST_LIFE - LEEWAY
    return min(max(earliest, request.live_until), latest)


def customer_parameters(request: HostedPageRequest) -> CustomerUpdateParams:
    """Return the guest's details with which Stripe prefills its page.

    If the request has no name or e-mail address, the values stored at Stripe are kept. If it has no
    billing address, the address that an earlier page has stored is removed, because the visitor of
    this page must not see it.
    """
    billing = request.billing_info or BillingInfo()
    name = " ".join(filter(None, (billing.first_name, billing.last_name))) or request.guest_name
    parameters: CustomerUpdateParams = {}
    if name:
        parameters["name"] = name
    if email := billing.email or request.guest_email:
        parameters["email"] = email
    if billing.phone:
        # Stripe allows 20 characters, which the digits alone never exceed.
        parameters["phone"] = "+" + "".join(filter(str.isdigit, billing.phone))
    parameters["address"] = _address(billing) or ""
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
_Time = Annotated[int, msgspec.Meta(ge=0, le=253_402_300_799)]  # up to the end of the year 9999


class SessionStatus(StrEnum):
    """The `status` of a Checkout Session."""

    OPEN = "open"
    COMPLETE = "complete"
    EXPIRED = "expired"


class IntentStatus(StrEnum):
    """The `status` of a SetupIntent."""

    REQUIRES_PAYMENT_METHOD = "requires_payment_method"
    REQUIRES_CONFIRMATION = "requires_confirmation"
    REQUIRES_ACTION = "requires_action"
    PROCESSING = "processing"
    SUCCEEDED = "succeeded"
    CANCELED = "canceled"


class Check(StrEnum):
    """The result of one of the checks in a PaymentMethod's `card.checks`."""

    PASS = "pass"  # noqa: S105 - no password
    FAIL = "fail"
    UNAVAILABLE = "unavailable"
    UNCHECKED = "unchecked"


class LiveOrTest(msgspec.Struct):
    """An object of the API that states its mode, live or test."""

    livemode: bool


class Checks(msgspec.Struct):
    """The `card.checks` of a PaymentMethod."""

    address_line1_check: Check | None = None
    address_postal_code_check: Check | None = None


class Wallet(msgspec.Struct):
    """The `card.wallet` of a PaymentMethod."""

    type: str | None = None


class CardDetails(msgspec.Struct):
    """The `card` of a PaymentMethod."""

    brand: Annotated[str, msgspec.Meta(pattern="^[a-z0-9_]{1,32}$")]
    last4: LastFour
    exp_month: Month
    exp_year: Year
    fingerprint: _Id | None = None
    checks: Checks | None = None
    funding: str | None = None
    country: str | None = None
    wallet: Wallet | None = None


class CollectedMethod(msgspec.Struct):
    """A PaymentMethod that a page has collected."""

    id: _Id
    type: Annotated[str, msgspec.Meta(pattern="^[a-z0-9_]{1,64}$")]
    created: _Time
    card: CardDetails | None = None
    customer: _Id | None = None


class SetupError(msgspec.Struct):
    """The `last_setup_error` of a SetupIntent.

    Only its codes are read, because its texts may contain the guest's name.
    """

    code: str | None = None
    decline_code: str | None = None


class ThreeDSecure(msgspec.Struct):
    """The `payment_method_details.card.three_d_secure` of a SetupAttempt that used 3-D Secure."""

    result: str | None = None


class AttemptedCard(msgspec.Struct):
    """The `payment_method_details.card` of a SetupAttempt."""

    three_d_secure: ThreeDSecure | None = None


class AttemptedMethod(msgspec.Struct):
    """The `payment_method_details` of a SetupAttempt."""

    card: AttemptedCard | None = None


class SetupAttempt(msgspec.Struct):
    """A SetupAttempt, which is one attempt to set up a card."""

    payment_method_details: AttemptedMethod


class SetupIntent(msgspec.Struct):
    """A SetupIntent, with its PaymentMethod and its latest attempt if they were expanded."""

    status: IntentStatus
    payment_method: CollectedMethod | str | None = None
    latest_attempt: SetupAttempt | str | None = None
    last_setup_error: SetupError | None = None

    @property
    def authenticated(self) -> bool | None:
        """Whether 3-D Secure authenticated the guest, or None if Stripe does not report it."""
        attempt = self.latest_attempt
        card = attempt.payment_method_details.card if isinstance(attempt, SetupAttempt) else None
        if card is None:
            return None
        return card.three_d_secure is not None and card.three_d_secure.result == "authenticated"


class RetrievedCustomer(msgspec.Struct):
    """A Customer, which can still be retrieved after it was deleted."""

    deleted: bool = False


class CheckoutSession(LiveOrTest):
    """A Checkout Session, with its SetupIntent and its customer if they were expanded."""

    id: _Id
    status: SessionStatus | None
    expires_at: _Time
    url: str | None = None
    customer: RetrievedCustomer | str | None = None
    payment_method_types: tuple[str, ...] = ()
    client_reference_id: str | None = None
    metadata: dict[str, str] | None = None
    setup_intent: SetupIntent | str | None = None

    def is_for(self, request: HostedPageRequest) -> bool:
        """Return whether the session was created for this attempt."""
        attempt = (self.metadata or {}).get(ATTEMPT)
        return (self.client_reference_id, attempt) == (request.token_id, str(request.attempt))

    @property
    def refusal_code(self) -> str | None:
        """Stripe's code for the refusal of the last card, or None if the last card was accepted."""
        intent = self.setup_intent
        if not isinstance(intent, SetupIntent) or intent.last_setup_error is None:
            return None
        return intent.last_setup_error.decline_code or intent.last_setup_error.code


class Sessions(msgspec.Struct):
    """A list of Checkout Sessions."""

    data: list[CheckoutSession]


class Account(msgspec.Struct):
    """An Account. Its `id` is the same in test mode and in live mode."""

    id: _Id


class WebhookEndpoint(LiveOrTest):
    """A Webhook Endpoint, an address to which Stripe sends events."""

    url: str
    status: str
    enabled_events: list[str]


class WebhookEndpoints(msgspec.Struct):
    """A list of Webhook Endpoints. An account has at most 16."""

    data: list[WebhookEndpoint]


class Customer(LiveOrTest):
    """A Customer that exists."""

    id: _Id
    metadata: dict[str, str] | None = None


class StoredMethod(LiveOrTest):
    """A PaymentMethod. A detached PaymentMethod has no `customer` (None)."""

    id: _Id
    customer: _Id | None = None


class Owner(msgspec.Struct):
    """The Customer that has a PaymentMethod. The Customer may be deleted."""

    id: _Id
    deleted: bool = False


class CurrentMethod(LiveOrTest):
    """A PaymentMethod with its expanded `customer`. A detached PaymentMethod has no customer."""

    id: _Id
    type: str
    # A card counts as gone only if the response says so.
    customer: Owner | None
    customer_account: str | None = None
    card: CardDetails | None = None

    def reading(self, customer: GuestReference, token: CardToken, *, at: datetime) -> CardReading:
        """Return the card's present state.

        Raises ProviderUnavailable if this PaymentMethod has another token, or if it belongs to an
        account of Stripe instead of a customer. Raises ProviderRefused if it is not a card, or if
        it belongs to another customer.
        """
        if self.id != token:
            raise ProviderUnavailable("the response is about another card")
        if self.customer is not None and self.customer.id != customer:
            raise ProviderRefused("the card belongs to another customer")
        if self.customer is None and self.customer_account is not None:
            raise ProviderUnavailable("the card belongs to an account of Stripe, not to a customer")
        if self.customer is None or self.customer.deleted:
            return CardReading(card=None, read_at=at)
        if self.type != CARD or self.card is None:
            raise ProviderRefused("the PaymentMethod is not a card")
        return CardReading(card=_card(self.card, customer, token), read_at=at)


class ListedMethod(LiveOrTest):
    """A PaymentMethod in a list, with its `customer`. A detached PaymentMethod has no customer."""

    id: _Id
    customer: Owner | None


class ListedMethods(msgspec.Struct):
    """A part of a list of PaymentMethods with their customers, including detached methods."""

    data: list[ListedMethod]
    has_more: bool

    def cards(self) -> CardList:
        """Return the cards in this part that can be charged, and where the list continues.

        Raises ProviderUnavailable if the list continues, but this part is empty.
        """
        if self.has_more and not self.data:
            raise ProviderUnavailable("the list continues, but this part is empty")
        cards = [
            CardAtPsp(GuestReference(method.customer.id), CardToken(method.id))
            for method in self.data
            if method.customer is not None and not method.customer.deleted
        ]
        return CardList(cards, self.data[-1].id if self.has_more else None)


def page_of(session: CheckoutSession, customer: str) -> HostedPage:
    """Return the page of an open Checkout Session."""
    if not session.url:
        raise ProviderUnavailable("the page has no address")
    return HostedPage(
        reference=session.id,
        address=session.url,
        ends_at=_time(session.expires_at),
        guest_reference=GuestReference(customer),
    )


def outcome_of(
    session: CheckoutSession, page: HostedPage, *, completed_at: datetime | None, now: datetime
) -> Outcome:
    """Return the outcome of a page from its Checkout Session.

    If the SetupIntent has succeeded, the card is stored at Stripe and must be kept or discarded,
    whatever the status of the session is. If the card was detached or its customer was deleted, the
    card can never be charged, and the outcome is that the page is closed.

    `completed_at` is when a webhook reported the completion, or None. Raises ProviderUnavailable if
    the response lacks a required field.
    """
    if isinstance(session.setup_intent, str):
        raise ProviderUnavailable("the response lacks the SetupIntent")
    match session.status, session.setup_intent:
        case _, SetupIntent(status=IntentStatus.SUCCEEDED) as intent:
            method = _method_of(intent)
            if isinstance(session.customer, RetrievedCustomer) and session.customer.deleted:
                return PageClosed()
            if method.customer is None:
                return _outcome_detached(page, completed_at, now)
            customer = GuestReference(method.customer)
            return _outcome_attached(method, customer, authenticated=intent.authenticated)
        case SessionStatus.EXPIRED, _:
            return PageClosed()
        case (
            SessionStatus.COMPLETE,
            SetupIntent(status=IntentStatus.REQUIRES_PAYMENT_METHOD | IntentStatus.CANCELED),
        ):
            return PageClosed()
        case SessionStatus.COMPLETE, None:
            raise NotFound("a complete page has no SetupIntent, or does not have it yet")
        case (
            SessionStatus.OPEN,
            SetupIntent(status=IntentStatus.REQUIRES_PAYMENT_METHOD, last_setup_error=SetupError()),
        ):
            return CardRefused()
        case _:
            # The guest has not typed in a card yet, or the challenge is not finished.
            return Pending()


def _method_of(intent: SetupIntent) -> CollectedMethod:
    """Return the PaymentMethod of a SetupIntent that has succeeded."""
    if intent.payment_method is None:
        raise NotFound("the SetupIntent has no PaymentMethod, or does not have it yet")
    if isinstance(intent.payment_method, str):
        raise ProviderUnavailable("the response lacks the PaymentMethod")
    return intent.payment_method


def _outcome_detached(page: HostedPage, completed_at: datetime | None, now: datetime) -> Outcome:
    """Return the outcome of a page whose card is not yet, or no longer, attached to a customer.

    Only a webhook reports when the page was completed (`completed_at`). If no webhook has reported
    this time, the end of the page is used in its place, because the page cannot be completed later.

    Raises ProviderUnavailable if the page has ended and Stripe may still attach the card. The
    result is not Pending in this case, because after the end of the link, the caller takes Pending
    to mean that the page ended without a card.
    """
    if now >= (completed_at or page.ends_at) + DETACH_GRACE:
        return PageClosed()
    if now < page.ends_at:
        return Pending()
    raise ProviderUnavailable("Stripe may still attach the card")


def _outcome_attached(
    method: CollectedMethod, customer: GuestReference, *, authenticated: bool | None
) -> Outcome:
    """Return the outcome of a page whose payment method is attached to a customer."""
    typed_at = _time(method.created)
    token = CardToken(method.id)
    card = method.card
    if method.type != CARD or card is None or card.brand == LINK:
        missing = "card" if method.type == CARD and card is None else None
        return NoCardCollected(
            guest_reference=customer, token=token, collected_at=typed_at, missing=missing
        )
    return CardCollected(
        card=_card(card, customer, token),
        avs=_avs_result(card.checks or Checks()),
        collected_at=typed_at,
        authenticated=authenticated,
    )


def _card(card: CardDetails, customer: GuestReference, token: CardToken) -> Card:
    return Card(
        guest_reference=customer,
        token=token,
        # If Stripe does not report a fingerprint, the card counts as different from all other
        # cards.
        fingerprint=card.fingerprint or token,
        card_logo=card.brand,
        last_four=card.last4,
        expiry_month=card.exp_month,
        expiry_year=card.exp_year,
        funding=Funding.named(card.funding),
        issuer_country=card.country,
        wallet=card.wallet.type if card.wallet and card.wallet.type != UNKNOWN else None,
    )


def _avs_result(checks: Checks) -> AvsResult:
    """Combine both checks of the address. If either has failed, the result is a mismatch."""
    results = {checks.address_line1_check, checks.address_postal_code_check}
    if Check.FAIL in results:
        return AvsResult.MISMATCH
    return AvsResult.MATCH if Check.PASS in results else AvsResult.NOT_CHECKED


def _time(unix_seconds: int) -> datetime:
    return datetime.fromtimestamp(unix_seconds, UTC)


prepare(CheckoutSession, Sessions, Account, WebhookEndpoints)
prepare(Customer, RetrievedCustomer, StoredMethod, CurrentMethod, ListedMethods)
