"""What a look at a card at its PSP changes of its account."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from domain.cards.account import Account

GONE: Final = "gone_at_psp"
REPLACED: Final = "replaced"
CLOSED: Final = "account_closed"
"""Why an account was removed, as clients are told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingVerdict:
    """What a reading changes. `removed` is stored before `kept`, `reason` says why.

    `is_updated`: the account that was read is kept, and shows another card or expiry date.
    `has_stopped`: from now on no unknown card of the merchant account is removed.
    """

    kept: Account | None = None
    is_updated: bool = False
    removed: Account | None = None
    reason: str | None = None
    has_stopped: bool = False
