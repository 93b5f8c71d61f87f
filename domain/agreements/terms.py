"""The terms of one booking, to which a guest agrees."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """An amount with the number of decimals of its currency, such as `Decimal("40.00")` in `EUR`."""

    amount: Decimal
    currency: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementTerms:
    """What a card may be charged for, how much at most, and until when.

    `reference` is the client's own name for the booking, and `description` says what was booked.
    The booking begins at `starts_at` and ends at `ends_at`. `no_show` and `late_cancellation` are
    the most that may be charged if the guest does not come, or cancels late; at least one is given.
    The guest may cancel free of charge until `cancel_by`; None means that there is no such time.
    `policy_uri` leads to the full terms.
    """

    reference: str
    description: str
    starts_at: datetime
    ends_at: datetime
    no_show: Money | None = None
    late_cancellation: Money | None = None
    cancel_by: datetime | None = None
    policy_uri: str | None = None
