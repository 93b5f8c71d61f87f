"""Address verification (AVS): what is checked of a billing address before there is a card."""

from __future__ import annotations

from typing import Protocol

from domain.billing import BillingInfo
from domain.errors import BillingInfoRequired, IncorrectBillingAddress


def require_billing_address(billing_info: BillingInfo | None, postal_codes: PostalCodes) -> None:
    """Check that a billing address has what AVS needs.

    Raises BillingInfoRequired with the missing field, or IncorrectBillingAddress when the postal
    code does not have its country's format. The bank decides whether the code exists.
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


class PostalCodes(Protocol):
    """The postal codes of each country, by its ISO 3166-1 alpha-2 code."""

    def are_used_in(self, country_code: str) -> bool:
        """Return whether addresses in the country have postal codes."""
        ...

    def has_format(self, country_code: str, zipcode: str) -> bool:
        """Return whether a postal code has the country's format; it need not exist."""
        ...
