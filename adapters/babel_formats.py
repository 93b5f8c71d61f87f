"""Format amounts of money and times for each language, with Babel."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

from babel import Locale, UnknownLocaleError
from babel.dates import format_date, format_time, get_datetime_format, get_timezone_gmt
from babel.numbers import format_currency
from iso4217 import Currency
from typing_extensions import override

from domain.agreements.locale_formats import LocaleFormats
from domain.agreements.terms import Money
from domain.languages import DEFAULT_LANGUAGE

_DECIMALS: Final = {each.code: each.exponent for each in Currency}
_FRACTION: Final = re.compile(r"\.0+")


class BabelFormats(LocaleFormats):
    """Formats as CLDR defines them for each language. ISO 4217 defines the currencies.

    If CLDR does not contain a language such as `de-XX`, the formats of the more general language
    `de` are used. If CLDR does not contain that language either, the English formats are used.
    """

    @override
    def decimals_of(self, currency: str) -> int | None:
        # ISO 4217 does not define decimals for metals and test codes.
        return _DECIMALS.get(currency)

    @override
    def money(self, money: Money, language: str) -> str:
        locale = _locale(language)
        # For some currencies, the number of decimals in CLDR differs from ISO 4217.
        decimals = "0" * (self.decimals_of(money.currency) or 0)
        pattern = _FRACTION.sub(f".{decimals}" if decimals else "", _pattern_of(locale))
        return format_currency(
            money.amount, money.currency, pattern, locale=locale, currency_digits=False
        )

    @override
    def time(self, at: datetime, language: str, time_zone: str) -> str:
        locale, there = _locale(language), at.astimezone(ZoneInfo(time_zone))
        day = format_date(there, "full", locale)
        time = format_time(there, "short", locale=locale)
        if there.replace(fold=0).utcoffset() != there.replace(fold=1).utcoffset():
            # This hour occurs twice, because daylight saving time ends.
            time = f"{time} ({get_timezone_gmt(there, locale=locale)})"
        # Babel declares another type for this text, such as "{1}, {0}".
        return str(get_datetime_format("full", locale)).format(time, day)


def _pattern_of(locale: Locale) -> str:
    """Return the CLDR pattern for amounts of money, such as `¤#,##0.00`."""
    return str(locale.currency_formats["standard"].pattern)


def _locale(language: str) -> Locale:
    subtags = language.split("-")
    while subtags:
        try:
            return Locale.parse("-".join(subtags), sep="-")
        except (UnknownLocaleError, ValueError):
            subtags.pop()
    return Locale.parse(DEFAULT_LANGUAGE)
