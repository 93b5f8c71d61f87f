"""Address verification (AVS): what can be known of a billing address before the card is."""

from __future__ import annotations

from domain.billing import BillingInfo
from domain.errors import BillingInfoRequired, IncorrectBillingAddress
from domain.ports import PostalCodes


def require_billing_address(billing_info: BillingInfo | None, postal_codes: PostalCodes) -> None:
    """Hold a billing address against what AVS needs before the card is known.

    Raises BillingInfoRequired naming what is missing, IncorrectBillingAddress when the postal code
    does not have its country's format. Whether such a code exists is for the bank to say.
    """
    if billing_info is None:
        raise BillingInfoRequired
    if billing_info.address is None:
        raise BillingInfoRequired("address")
    if billing_info.country_code is None:
        raise BillingInfoRequired("country_code")
    if not postal_codes.are_used_in(billing_info.country_code):
        return
    if billing_info.zipcode is None:
        raise BillingInfoRequired("zipcode")
    if not postal_codes.has_format(billing_info.country_code, billing_info.zipcode):
        raise IncorrectBillingAddress
