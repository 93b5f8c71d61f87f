"""The port that writes amounts of money and times in the format of a language."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from domain.agreements.terms import Money


class LocaleFormats(Protocol):
    """Writes amounts of money and times in the format of a language (RFC 5646)."""

    def decimals_of(self, currency: str) -> int | None:
        """Return the number of decimals of a currency (ISO 4217): 2 for `EUR`, 0 for `JPY`.

        Return None if no currency has this code.
        """
        ...

    def money(self, money: Money, language: str) -> str:
        """Return an amount with its currency, such as `40,00 €` for `de`."""
        ...

    def time(self, at: datetime, language: str, time_zone: str) -> str:
        """Return the date and the time of day in a time zone, to the minute.

        `time_zone` is a name of the IANA time zone database, such as `Europe/Berlin`.
        """
        ...
