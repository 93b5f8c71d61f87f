"""An add-card request, as sent and as parsed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from domain.agreements.terms import AgreementTerms, parse_agreement
from domain.billing import BillingInfo, parse_billing_info
from domain.centers.payment_configuration import (
    MAX_LINK_MINUTES,
    PaymentConfiguration,
    parse_authentication,
    parse_link_minutes,
)
from domain.identifiers import CenterId, GuestId, plain_uuid
from domain.languages import parse_locale
from domain.psps.hosted_page import Authentication
from domain.redirects import parse_redirect_uri
from domain.sessions.reference import parse_reference
from domain.source import DEFAULT_SOURCE, Source, parse_source


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedSession:
    """The content of an add-card request, which its session keeps.

    `guest_id` is empty if the client sent no UUID; no stored session has such a guest.
    `link_minutes` is the requested lifetime of the link, `locale` the requested language or `auto`,
    and `reference` the client's own name for the session. `authentication` is what the client
    demands beside the center's configuration. `agreement` has the terms of a booking, to which the
    guest must agree.
    """

    guest_id: GuestId
    center_id: CenterId
    redirect_uri: str
    source: Source
    billing_info: BillingInfo | None
    link_minutes: int | None = None
    locale: str | None = None
    reference: str | None = None
    authentication: Authentication | None = None
    agreement: AgreementTerms | None = None

    @property
    def requested(self) -> dict[str, Any]:  # of any type
        """The fields of the content. Requests with equal fields are the same request."""
        return {field.name: getattr(self, field.name) for field in fields(RequestedSession)}


@dataclass(frozen=True, slots=True, kw_only=True)
class AddCardRequest:
    """The unparsed values that a client sent. AddCard checks them in a fixed order."""

    guest_id: str
    center_id: object
    redirect_uri: object
    source: object = DEFAULT_SOURCE.value
    billing_info: object = None
    link_minutes: object = None
    locale: object = None
    reference: object = None
    authentication: object = None
    agreement: object = None
    idempotency_key: str | None = None

    def parsed(
        self,
        center_id: CenterId,
        configuration: PaymentConfiguration | None,
        *,
        decimals_of: Callable[[str], int | None],
        now: datetime,
    ) -> RequestedSession:
        """Parse the values after the center, in the order of the result's fields.

        `decimals_of` is the method of `LocaleFormats`. Raises RedirectUriRequired or
        RedirectUriInvalid, InvalidSource, BillingInfoInvalid, and InvalidField for the others.
        """
        allowed = configuration.redirect_origins if configuration else ()
        longest = configuration.max_link_minutes if configuration else MAX_LINK_MINUTES
        return RequestedSession(
            # An id that is not a UUID is refused later.
            guest_id=GuestId(plain_uuid(self.guest_id) or ""),
            center_id=center_id,
            redirect_uri=parse_redirect_uri(self.redirect_uri, allowed=allowed),
            source=parse_source(self.source),
            billing_info=parse_billing_info(self.billing_info),
            link_minutes=parse_link_minutes(self.link_minutes, at_most=longest),
            locale=parse_locale(self.locale),
            reference=parse_reference(self.reference),
            authentication=parse_authentication(self.authentication),
            agreement=parse_agreement(self.agreement, decimals_of, now),
        )
