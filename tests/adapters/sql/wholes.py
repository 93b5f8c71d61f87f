"""A record with a field of each kind, and its rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from adapters.psp.contract.samples import NOW
from adapters.sql.rows import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A record within a record."""

    at: datetime
    amount: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A record with a field of each kind."""

    id: str
    flag: bool
    count: int | None
    amount: Decimal
    at: datetime
    until: datetime | None = None
    part: Part | None = None
    names: tuple[str, ...] = ()


ROWS = Rows("wholes", Whole, key=("id",))
BARE = Whole(id="null", flag=False, count=None, amount=Decimal("1.10"), at=NOW)
FULL = Whole(
    id="",
    flag=True,
    count=7,
    amount=Decimal("0.10"),
    at=NOW,
    until=NOW,
    part=Part(at=NOW, amount=Decimal("2.50")),
    names=("a", 'b"', "ü", "\\", "%s", "\U0001f600"),
)
