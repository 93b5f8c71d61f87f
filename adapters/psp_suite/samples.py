"""Sample values for tests: a guest, a merchant account and the request for a page."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from domain.identifiers import CenterId, GuestId, MerchantAccount, TokenId
from domain.psps.hosted_page import Consent, HostedPageRequest

NOW: Final = datetime(2026, 3, 4, 5, 6, 7, 800_009, tzinfo=UTC)
"""A time with microseconds, so that rounding is noticed."""

MERCHANT_ACCOUNT: Final = MerchantAccount("main")


def a_uuid(number: int) -> str:
    """Return the UUID with this number as its value."""
    return f"00000000-0000-4000-8000-{number:012}"


CONSENT: Final = Consent(
    version="2026-11",
    text="By adding this card you allow Harbor Spa to keep it on file and to charge it for services "
    "that you agree to. You can withdraw at any time by asking for the card to be removed.",
)

GUEST_ID: Final = GuestId(a_uuid(11))
OTHER_GUEST_ID: Final = GuestId(a_uuid(12))
TOKEN_ID: Final = TokenId(a_uuid(21))


# Any: `changes` holds fields of any type, and replace() refuses wrong names.
def a_page_request(**changes: Any) -> HostedPageRequest:
    """Return the request for the page of a session's first attempt.

    `changes` replaces fields of the request.
    """
    request = HostedPageRequest(
        token_id=TOKEN_ID,
        attempt=1,
        merchant_account=MERCHANT_ACCOUNT,
        guest_id=GUEST_ID,
        guest_reference=None,
        guest_name="Zoë Null",
        guest_email="zoe@guests.example",
        center_name="Harbor Spa",
        billing_info=None,
        avs=True,
        return_uri="https://pay.example/hosted-payments/return",
        cancel_uri="https://pay.example/hosted-payments/cancel",
        redirect_origin="https://shop.example",
        consent=CONSENT,
        begun_at=NOW,
        live_until=NOW + timedelta(minutes=30),
        center_id=CenterId(a_uuid(1)),
    )
    return replace(request, **changes)
