"""Address verification (AVS): check a billing address before a card is collected."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from domain.billing import BillingInfo
from domain.errors import BillingInfoRequired, IncorrectBillingAddress


def require_billing_address(billing_info: BillingInfo | None, postal_codes: PostalCodes) -> None:
    """Check that a billing address has the fields that AVS needs.

    Raises BillingInfoRequired with the missing field. Raises IncorrectBillingAddress if the postal
    code does not have its country's format. Only the bank can tell whether the postal code exists.
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
    if postal_codes.usual_form(billing_info.country_code, billing_info.zipcode) is None:
        raise IncorrectBillingAddress


def with_usual_postal_code(
    billing_info: BillingInfo | None, postal_codes: PostalCodes
) -> BillingInfo | None:
    """Return the billing address for the PSP, with the postal code in the usual form of its country.

    A postal code stays as the client sent it if it does not have its country's format, or if the
    country is not known.
    """
    if billing_info is None or billing_info.zipcode is None or billing_info.country_code is None:
        return billing_info
    usual_form = postal_codes.usual_form(billing_info.country_code, billing_info.zipcode)
    return replace(billing_info, zipcode=usual_form or billing_info.zipcode)


class PostalCodes(Protocol):
    """The formats of postal codes by country (ISO 3166-1 alpha-2)."""

    def are_used_in(self, country_code: str) -> bool:
        """Return whether addresses in the country have postal codes."""
        ...

    def usual_form(self, country_code: str, zipcode: str) -> str | None:
        """Return a postal code in the usual form of its country, or None if the format is wrong.

        `zipcode` may contain lower-case letters, blanks, dashes and the prefix of the country
        (`D-10115`). Whether the postal code exists is not checked.
        """
        ...
