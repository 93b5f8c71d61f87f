"""Translate requests into bodies for Mollie's API, and Mollie's responses into outcomes.

The classes contain the fields that are read from Mollie's objects. The sources are Mollie's API
reference, v2, and its OpenAPI description.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date, timedelta
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from adapters.psp.fields import AwareTime, LastFour
from domain.billing import AvsResult
from domain.identifiers import CardToken, GuestReference
from domain.languages import DEFAULT_LANGUAGE, look_up
from domain.psps.card import Card, Funding
from domain.psps.hosted_page import (
    CardCollected,
    HostedPage,
    HostedPageRequest,
    NoCardCollected,
    Outcome,
    PageClosed,
    Pending,
)
from domain.psps.payment_provider import ProviderUnavailable

CARD: Final = "creditcard"
PAGE_LIFETIME: Final = timedelta(minutes=30)
"""The lifetime of a page: how long a card payment stays open.

The source is "Payment status changes" in Mollie's documentation.
"""

WITHOUT_GUEST: Final = "customer-not-present"
"""The scope of a mandate that may be charged without the guest, as for a missed appointment."""

_WHOLE: Final = frozenset({"ISK", "JPY"})
"""The currencies whose amounts have no decimal places (Mollie's documentation, "Multicurrency")."""


def _by_tag(locales: str) -> Mapping[str, str]:
    """Map language tags to `locales`, a text with one locale after another.

    The first locale of each language gets the tag without a region, such as `de`. Each further
    locale gets its full tag, such as `de-AT`.
    """
    by_tag: dict[str, str] = {}
    for locale in locales.split():
        language, _, _ = locale.partition("_")
        by_tag[locale.replace("_", "-") if language in by_tag else language] = locale
    return by_tag


LOCALES: Final = _by_tag(
    "ca_ES cs_CZ da_DK de_DE de_AT de_CH de_LU en_GB en_BE en_NL en_US es_ES fi_FI fr_FR fr_BE fr_LU "
    "hu_HU is_IS it_IT lt_LT lv_LV nb_NO nl_NL nl_BE pl_PL pt_PT sk_SK sv_SE"
)
"""Mollie's locales of the hosted page, by language tag ("Create payment", `locale`)."""

_LOGOS: Final = {"American Express": "amex", "Diners Club": "diners"}
"""The names that cardonfile's API uses for some brands of cards, by Mollie's names. For any other
brand, the API uses Mollie's name in lower case, without spaces.
"""


_Id: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[a-z]+_[A-Za-z0-9]{1,64}\Z")]


class Resource(msgspec.Struct, frozen=True, rename="camel"):
    """The fields that all objects have. `mode` is the mode of the key.

    `metadata` may be any value, because other programs may have set it.
    """

    id: _Id
    mode: Literal["live", "test"]
    created_at: AwareTime
    metadata: object = None
    customer_id: _Id | None = None


class _Link(msgspec.Struct):
    href: str


class _Links(msgspec.Struct):
    next: _Link | None = None
    checkout: _Link | None = None


class Listed(msgspec.Struct):
    """A part of a list, with the newest object first."""

    embedded: dict[str, list[Resource]] = msgspec.field(name="_embedded")
    links: _Links = msgspec.field(name="_links")


class _Details(msgspec.Struct, rename="camel"):
    failure_reason: str | None = None
    card_security: str | None = None
    card_funding: str | None = None
    card_country_code: str | None = None
    wallet: str | None = None

    def facts(self, card: Card) -> Card:
        """Return `card` with the facts that Mollie reports only in the payment."""
        return replace(
            card,
            # The funding is None for `deferred-debit`, because banks of some countries call it
            # credit, and banks of other countries call it debit.
            funding=Funding.named(self.card_funding),
            issuer_country=self.card_country_code,
            wallet=_WALLETS.get(self.wallet, self.wallet),
        )


_WALLETS: Final[Mapping[str | None, str]] = {"applepay": "apple_pay", "googlepay": "google_pay"}
"""The usual names of wallets, which other PSPs use too, by Mollie's names."""

_AUTHENTICATED: Final[Mapping[str | None, bool]] = {"3dsecure": True, "normal": False}


class Payment(Resource, frozen=True, kw_only=True):
    """A payment of zero, whose page collects a card.

    The guest can try one card, so the status `failed` is final. The status `authorized` does not
    occur, because it is only for payments that are captured later.
    """

    status: Literal["open", "pending", "paid", "canceled", "expired", "failed"]
    links: _Links = msgspec.field(name="_links")
    mandate_id: _Id | None = None
    is_cancelable: bool | None = None
    expires_at: AwareTime | None = None
    paid_at: AwareTime | None = None
    details: _Details | None = None

    def require(
        self, request: HostedPageRequest, customer: GuestReference, reference: str | None = None
    ) -> None:
        """Raise ProviderUnavailable if the payment belongs to another attempt or another guest.

        The payment may lack the customer, because the customer may have been deleted since. The
        payment may lack the metadata only if the payment's id is `reference`, the id that Mollie
        was asked for.
        """
        is_named = self.metadata is None and self.id == reference
        is_ours = is_named or self.metadata == request.idempotency_key
        if not is_ours or self.customer_id not in (None, customer):
            raise ProviderUnavailable("the response is about another payment")

    def page(self, request: HostedPageRequest, customer: GuestReference) -> HostedPage:
        """Return the page of the payment.

        Mollie reports no address for a page that is over. The returned page then has the address to
        which Mollie would send the guest back.
        """
        return HostedPage(
            reference=self.id,
            address=self.links.checkout.href if self.links.checkout else request.return_uri,
            ends_at=self.expires_at or self.created_at + PAGE_LIFETIME,
            guest_reference=customer,
        )


class _CardDetails(msgspec.Struct, rename="camel"):
    # The expiry date is read from the mandate. A payment contains it too, as MM/YY.
    card_expiry_date: date | None = None
    card_number: LastFour | None = None
    card_label: str | None = None
    card_fingerprint: str | None = None


class Mandate(Resource, frozen=True, kw_only=True):
    """A stored card. A mandate that has become invalid can never be charged again."""

    status: Literal["valid", "pending", "invalid"]
    method: str
    details: _CardDetails | None = None
    scopes: list[str] | None = None

    @property
    def has_card(self) -> bool:
        """Whether the mandate is for a card that can be charged without the guest."""
        return self.method == CARD and WITHOUT_GUEST in (self.scopes or ())

    def card(self, customer: GuestReference) -> Card | str:
        """Return the customer's card. If a required field is missing, return its name instead."""
        details = self.details or _CardDetails()
        number, expiry = details.card_number, details.card_expiry_date
        if number is None:
            return "cardNumber"
        if expiry is None:
            return "cardExpiryDate"
        label = details.card_label or "unknown"
        return Card(
            guest_reference=customer,
            token=CardToken(self.id),
            fingerprint=details.card_fingerprint or self.id,
            card_logo=_LOGOS.get(label, label.replace(" ", "").lower()),
            last_four=number,
            expiry_month=expiry.month,
            expiry_year=expiry.year,
        )


class _Method(msgspec.Struct):
    id: str


class Methods(msgspec.Struct):
    """The payment methods that are switched on for a merchant account."""

    embedded: dict[str, list[_Method]] = msgspec.field(name="_embedded")

    @property
    def take_cards(self) -> bool:
        """Whether card payments are switched on for the merchant account."""
        return _Method(CARD) in self.embedded.get("methods", [])


def payment_body(
    request: HostedPageRequest,
    customer: GuestReference,
    *,
    currency: str,
    webhooks_url: str | None,
) -> Mapping[str, object]:
    """Return the body that creates the payment of a page.

    The payment is a card payment of zero, and the first payment of a sequence.
    """
    body = {
        "amount": {"currency": currency, "value": "0" if currency in _WHOLE else "0.00"},
        "description": request.center_name,
        "method": CARD,
        "sequenceType": "first",
        "customerId": customer,
        "locale": LOCALES[look_up(request.language, LOCALES) or DEFAULT_LANGUAGE],
        "metadata": request.idempotency_key,
        "redirectUrl": request.return_uri,
        "cancelUrl": request.cancel_uri,
    }
    return body if webhooks_url is None else {**body, "webhookUrl": webhooks_url}


def outcome_of(payment: Payment, mandate: Mandate | None, customer: GuestReference) -> Outcome:
    """Return the outcome of a customer's page. `mandate` is the card of a paid payment.

    Raises ProviderUnavailable if the response lacks a needed field.
    """
    details = payment.details or _Details()
    match payment.status:
        case "open" | "pending":
            return Pending()
        case "failed":
            return PageClosed(refused_cards=1, refusal_code=details.failure_reason)
        case "canceled" | "expired":
            return PageClosed()
        case "paid":
            pass
    if mandate is None:
        raise ProviderUnavailable("a paid payment lacks its mandate")
    if mandate.status == "pending":
        return Pending()
    if mandate.status == "invalid":
        return PageClosed()
    card = mandate.card(customer) if mandate.has_card else None
    collected_at = payment.paid_at or mandate.created_at
    if not isinstance(card, Card):
        return NoCardCollected(
            guest_reference=customer,
            token=CardToken(mandate.id),
            collected_at=collected_at,
            missing=card,
        )
    return CardCollected(
        card=details.facts(card),
        avs=AvsResult.NOT_CHECKED,
        collected_at=collected_at,
        authenticated=_AUTHENTICATED.get(details.card_security),
    )
