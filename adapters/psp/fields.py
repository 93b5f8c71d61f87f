"""Types for the fields of PSPs' responses. msgspec refuses values outside their bounds."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, TypeAlias

from msgspec import Meta

AwareTime: TypeAlias = Annotated[datetime, Meta(tz=True)]
"""An RFC 3339 time with a time zone."""
LastFour: TypeAlias = Annotated[str, Meta(pattern=r"^[0-9]{4}\Z")]
"""The last four digits of a card number."""
Month: TypeAlias = Annotated[int, Meta(ge=1, le=12)]
"""The month of an expiry date."""
Year: TypeAlias = Annotated[int, Meta(ge=2000, le=9999)]
"""The four-digit year of an expiry date."""
