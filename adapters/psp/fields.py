"""Types of the fields of PSPs' responses, for msgspec: a value out of its bounds cannot be understood."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, TypeAlias

from msgspec import Meta

AwareTime: TypeAlias = Annotated[datetime, Meta(tz=True)]
"""A time of RFC 3339, with its time zone."""
LastFour: TypeAlias = Annotated[str, Meta(pattern=r"^[0-9]{4}\Z")]
"""The last four digits of a card number, and no more of it."""
Month: TypeAlias = Annotated[int, Meta(ge=1, le=12)]
"""A month of an expiry date."""
Year: TypeAlias = Annotated[int, Meta(ge=2000, le=9999)]
"""A year of an expiry date, of four digits."""
