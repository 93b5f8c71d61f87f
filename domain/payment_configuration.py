"""What a center has set up for taking cards."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from domain.errors import InvalidField
from domain.identifiers import MerchantAccount, ProviderName, PspAccount
from domain.redirects import parse_allowed_origin

MIN_SESSION_MINUTES: Final = 15
MAX_SESSION_MINUTES: Final = 24 * 60

_MERCHANT_ACCOUNT = re.compile(r"[A-Za-z0-9_-]{1,64}")


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

    @classmethod
    def parse(
        cls,
        *,
        provider: str,
        merchant_account: str,
        avs: bool,
        cards_per_guest: CardsPerGuest,
        redirect_origins: Iterable[str],
        session_minutes: int,
    ) -> PaymentConfiguration:
        """Read a configuration that comes from outside. Raises InvalidField.

        Whether this installation has the PSP, and keys for the merchant account, is not checked.
        """
        if not _MERCHANT_ACCOUNT.fullmatch(merchant_account):
            raise InvalidField(
                "merchant_account", "1 to 64 letters, digits, hyphens and underscores"
            )
        if not MIN_SESSION_MINUTES <= session_minutes <= MAX_SESSION_MINUTES:
            raise InvalidField(
                "session_minutes", f"from {MIN_SESSION_MINUTES} to {MAX_SESSION_MINUTES}"
            )
        try:
            origins = tuple(dict.fromkeys(map(parse_allowed_origin, redirect_origins)))
        except ValueError as error:
            raise InvalidField(
                "redirect_origins",
                "an origin such as https://shop.example, or an app's scheme such as myspa://",
            ) from error
        return cls(
            provider=ProviderName(provider),
            merchant_account=MerchantAccount(merchant_account),
            avs=avs,
            cards_per_guest=cards_per_guest,
            redirect_origins=origins,
            session_minutes=session_minutes,
        )

    @property
    def psp_account(self) -> PspAccount:
        """Where its cards are taken."""
        return PspAccount(self.provider, self.merchant_account)

    @property
    def session_lifetime(self) -> timedelta:
        """How long the link of a session may wait to be opened."""
        return timedelta(minutes=self.session_minutes)
