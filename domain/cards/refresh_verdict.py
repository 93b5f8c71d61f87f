"""The changes to an account that follow from a reading of its card at the PSP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from domain.cards.account import Account

GONE: Final = "gone_at_psp"
REPLACED: Final = "replaced"
CLOSED: Final = "account_closed"
"""GONE, REPLACED and CLOSED are the reasons for a removal, as events state them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingVerdict:
    """The changes that a reading causes.

    - `kept` is the account that stays on file. If the account that was read is removed, `kept` is
      the account that has the same card, or the account that becomes the default, or None.
    - `is_updated` is whether the details of the card in `kept` have changed, such as its number or
      its expiry date.
    - `removed` is the account to remove. It must be stored before `kept`.
    - `joined` is the account in `removed`, in its state before the removal. It is None unless the
      account turned out to have the same card as `kept`.
    - `reason` is the reason for the removal.
    - `has_stopped` is whether this reading stops the removal of unknown cards of the merchant
      account, because too many of them were removed.
    """

    kept: Account | None = None
    is_updated: bool = False
    removed: Account | None = None
    joined: Account | None = None
    reason: str | None = None
    has_stopped: bool = False
