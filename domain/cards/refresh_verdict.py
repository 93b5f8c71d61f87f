"""The changes to an account that follow from a reading of its card at the PSP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from domain.cards.account import Account

GONE: Final = "gone_at_psp"
REPLACED: Final = "replaced"
CLOSED: Final = "account_closed"
"""GONE, REPLACED and CLOSED are the reasons of a removal, as events state them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingVerdict:
    """The changes that a reading causes.

    `kept` is the account that stays on file, and `is_updated` means that it now shows another card
    or expiry date. `removed` is the account to remove, which is stored before `kept`, and `reason`
    is the reason of the removal. If the removed account turned out to be the card of `kept`,
    `joined` is that account before its removal. `has_stopped` means that unknown cards of the
    merchant account are no longer removed.
    """

    kept: Account | None = None
    is_updated: bool = False
    removed: Account | None = None
    joined: Account | None = None
    reason: str | None = None
    has_stopped: bool = False
