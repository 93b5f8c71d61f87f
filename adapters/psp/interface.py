"""The names that an adapter in another distribution may import."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

INTERFACE: Final = 3
"""The version of the interface. The number increases if a name in NAMES is renamed or removed, or
if its meaning changes.

A plugin states the number that it was written for, and does not import this constant.
"""

NAMES: Final[Mapping[str, str]] = {
    "adapters.thread_safe_types": "prepare",
    "adapters.psp.countries": "ALPHA_3 NUMERIC",
    "adapters.psp.fields": "AwareTime LastFour Month Year",
    "adapters.psp.findings": "Finding Diagnosis compare_clocks ok problem unknown",
    "adapters.psp.http": (
        "Gone HttpClient JsonApi Response RetryPolicy field_of is_passing retry_after"
    ),
    "adapters.psp.plugin": "BackgroundWork PspPlugin Surroundings",
    "adapters.psp.settings": (
        "AccountSettings PspSettingsError is_https_or_loopback is_loopback keys_of require_https "
        "values_of"
    ),
    "adapters.psp.webhooks": ("TOLERANCE decode_webhook is_recent is_signed require_secrets sign"),
    "domain.billing": "AvsResult BillingInfo MAX_LENGTHS",
    "domain.card_numbers": "holds_card_number passes_luhn",
    "domain.fields": "is_clean",
    "domain.identifiers": (
        "CardToken CenterId DEFAULT_MERCHANT_ACCOUNT GuestId GuestReference MerchantAccount "
        "ProviderName TokenId"
    ),
    "domain.languages": "DEFAULT_LANGUAGE look_up",
    "domain.outside": "Clock Ids",
    "domain.psps.capabilities": "Capabilities",
    "domain.psps.card": "Card CardAtPsp CardList CardReading Funding",
    "domain.psps.evidence": "Evidence EvidenceOrigin",
    "domain.psps.hosted_page": (
        "Authentication CardCollected CardRefused Consent HostedPage HostedPageRequest NoCardCollected Outcome "
        "PageClosed Pending"
    ),
    "domain.psps.payment_provider": (
        "FailureDetails NO_DETAILS NotFound PaymentProvider ProviderRefused ProviderUnavailable "
        "UNKNOWN_FOR WebhookRejected is_confirmed"
    ),
    "domain.psps.webhook": "WebhookDelivery WebhookNotice",
    "domain.redirects": "parse_allowed_origin redirect_origin",
    # For the tests of an adapter.
    "adapters.psp_suite.clock": "SettableClock",
    "adapters.psp_suite.ids": "SeededIds",
    "adapters.psp_suite.pages": "text_of",
    "adapters.psp_suite.remote": "RemotePspUnderTest",
    "adapters.psp_suite.under_test": (
        "Ability EXPIRY Facts GuestCard GuestDetails MAIN Method OTHER OTHER_SECRET PrintedCard "
        "PspUnderTest SECRET START Trouble WaysOut"
    ),
    "adapters.psp_suite.stand_in": (
        "Request Response StandInServer Trouble change drip drop_call drop_response html_response "
        "json_response lose_call redirect respond_with"
    ),
}
"""The names that an adapter may import, by module. Other names may change with any release."""
