"""What a reading of a card at its PSP changes in its account."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from domain.cards.account import Account

GONE: Final = "gone_at_psp"
REPLACED: Final = "replaced"
CLOSED: Final = "account_closed"
"""The reason of an account's removal, as events state it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingVerdict:
    """The changes that a reading causes. `removed` is stored before `kept`; `reason` says why.

    `joined` is the removed account before its removal, if it turned out to be the card that is
    kept. `is_updated` means that the account is kept and shows another card or expiry date. `has_stopped`
    means that unknown cards of the merchant account are not removed from now on.
    """

    kept: Account | None = None
    is_updated: bool = False
    removed: Account | None = None
    joined: Account | None = None
    reason: str | None = None
    has_stopped: bool = False
