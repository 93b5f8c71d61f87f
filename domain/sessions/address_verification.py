"""Address verification (AVS): the checks of a billing address before there is a card."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from domain.billing import BillingInfo
from domain.errors import BillingInfoRequired, IncorrectBillingAddress


def require_billing_address(billing_info: BillingInfo | None, postal_codes: PostalCodes) -> None:
    """Check that a billing address has the fields that AVS needs.

    Raises BillingInfoRequired with the missing field, or IncorrectBillingAddress if the postal code
    does not have its country's format. Only the bank can say whether the postal code exists.
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
    if postal_codes.own_form(billing_info.country_code, billing_info.zipcode) is None:
        raise IncorrectBillingAddress


def in_own_form(billing_info: BillingInfo | None, postal_codes: PostalCodes) -> BillingInfo | None:
    """Return the billing address with its postal code in its country's usual form, for the PSP.

    A postal code without its country's format, or of an unknown country, is returned as the client
    sent it.
    """
    if billing_info is None or billing_info.zipcode is None or billing_info.country_code is None:
        return billing_info
    own_form = postal_codes.own_form(billing_info.country_code, billing_info.zipcode)
    return replace(billing_info, zipcode=own_form or billing_info.zipcode)


class PostalCodes(Protocol):
    """The postal codes of each country, by its ISO 3166-1 alpha-2 code."""

    def are_used_in(self, country_code: str) -> bool:
        """Return whether addresses in the country have postal codes."""
        ...

    def own_form(self, country_code: str, zipcode: str) -> str | None:
        """Return a postal code in its country's usual form, or None if it has another format.

        The postal code need not exist. It may have lower-case letters, blanks, dashes and the
        prefix of its country (`D-10115`).
        """
        ...
