"""Amounts and times as guests read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from adapters.babel_formats import BabelFormats
from domain.agreements.terms import Money

SUMMER = datetime(2026, 7, 1, 22, 30, tzinfo=UTC)
TWICE = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
"""The hour after 2 o'clock comes twice on this day."""
HOUR = timedelta(hours=1)
WINTER = datetime(2026, 12, 5, 22, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("currency", "decimals"),
    [
        ("EUR", 2),
        ("JPY", 0),
        # CLDR writes these with other decimals than ISO 4217.
        ("IQD", 3),
        ("HUF", 2),
        ("eur", None),
        ("XXX", None),
        ("XAU", None),
        ("DEM", None),
        ("", None),
    ],
)
def test_amounts_in_each_currency_have_the_decimals_of_iso_4217(
    currency: str, decimals: int | None
) -> None:
    assert BabelFormats().decimals_of(currency) == decimals


@pytest.mark.parametrize(
    ("amount", "currency", "language", "written"),
    [
        ("1040.00", "EUR", "de", "1.040,00 €"),
        ("1040.00", "EUR", "de-AT", "€ 1.040,00"),
        ("1040.00", "EUR", "en", "€1,040.00"),
        ("1040.00", "EUR", "fr", "1 040,00 €"),
        ("40.00", "EUR", "ar", "\u200f40.00 €"),
        ("4000", "JPY", "en", "¥4,000"),
        ("1.500", "IQD", "de", "1,500 IQD"),
        ("40.00", "EUR", "x-spa", "€40.00"),
    ],
)
def test_an_amount_is_formatted_for_the_language(
    amount: str, currency: str, language: str, written: str
) -> None:
    money = Money(amount=Decimal(amount), currency=currency)
    spaces = str.maketrans("\xa0\u202f", "  ")
    assert BabelFormats().money(money, language).translate(spaces) == written


@pytest.mark.parametrize(
    ("at", "language", "time_zone", "written"),
    [
        (SUMMER, "de", "Europe/Berlin", "Donnerstag, 2. Juli 2026, 00:30"),
        (WINTER, "de", "Europe/Berlin", "Samstag, 5. Dezember 2026, 23:30"),
        (TWICE, "de", "Europe/Berlin", "Sonntag, 25. Oktober 2026, 02:30 (GMT+02:00)"),
        (TWICE + HOUR, "de", "Europe/Berlin", "Sonntag, 25. Oktober 2026, 02:30 (GMT+01:00)"),
        (TWICE + 2 * HOUR, "de", "Europe/Berlin", "Sonntag, 25. Oktober 2026, 03:30"),
        (WINTER, "en", "America/New_York", "Saturday, December 5, 2026, 5:30 PM"),
        (WINTER, "pt-BR", "America/Sao_Paulo", "sábado, 5 de dezembro de 2026 19:30"),
        (WINTER, "ar", "Asia/Riyadh", "الأحد، 6 ديسمبر 2026، 1:30 ص"),
    ],
)
def test_a_time_is_formatted_in_a_language_with_the_time_zone_of_the_center(
    at: datetime, language: str, time_zone: str, written: str
) -> None:
    text = BabelFormats().time(at, language, time_zone)
    assert text.replace("\u202f", " ") == written
