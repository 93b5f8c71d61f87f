"""Add-card requests, before and after they are parsed."""

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
    """The parsed content of an add-card request. `CardSession` has the same fields.

    `guest_id` is empty if the client did not send a UUID; such a request is refused. `link_minutes`
    is the requested lifetime of the link. `locale` is the requested language, or `auto`.
    `reference` is the client's own name for the session. `authentication` is what the client
    requires in addition to the center's configuration. `agreement` contains the terms of a booking
    to which the guest must agree, or is None.
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
    def requested(self) -> dict[str, Any]:  # values of any type
        """The values of this class's fields, by name.

        Two requests with equal values count as the same request.
        """
        return {field.name: getattr(self, field.name) for field in fields(RequestedSession)}


@dataclass(frozen=True, slots=True, kw_only=True)
class AddCardRequest:
    """The unparsed values of an add-card request. AddCard checks them in a fixed order."""

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
        """Parse all values but the center id, in the order of the result's fields.

        `decimals_of` is `LocaleFormats.decimals_of`. Raises the refusal for the first invalid
        value: RedirectUriRequired, RedirectUriInvalid, InvalidSource, BillingInfoInvalid or
        InvalidField.
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
