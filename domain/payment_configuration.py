"""What a center has set up for taking cards."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from domain.identifiers import MerchantAccount, ProviderName, PspAccount

MIN_SESSION_MINUTES: Final = 15
MAX_SESSION_MINUTES: Final = 24 * 60


class CardsPerGuest(StrEnum):
    """How many active cards a guest may have at one center."""

    ONE = "one"
    MANY = "many"


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentConfiguration:
    """How a center takes cards. A session keeps a snapshot of it as it was at add-card.

    `redirect_origins` lists the origins (`https://shop.example`) and custom schemes (`myspa://`)
    that a guest may be sent back to; an empty list allows every http and https address.
    `session_minutes` is how long a link may wait to be opened.
    """

    provider: ProviderName
    merchant_account: MerchantAccount
    avs: bool = False
    cards_per_guest: CardsPerGuest = CardsPerGuest.MANY
    redirect_origins: tuple[str, ...] = ()
    session_minutes: int = 30

    @property
    def psp_account(self) -> PspAccount:
        """Where its cards are taken."""
        return PspAccount(self.provider, self.merchant_account)

    @property
    def session_lifetime(self) -> timedelta:
        """How long the link of a session may wait to be opened."""
        return timedelta(minutes=self.session_minutes)


def check_session_minutes(minutes: int) -> int:
    """Give the minutes back. Raises ValueError when they are not 15 to 1440 (24 hours)."""
    if not MIN_SESSION_MINUTES <= minutes <= MAX_SESSION_MINUTES:
        raise ValueError("a session lives from 15 to 1440 minutes")
    return minutes
