"""What a merchant account at Stripe is reached and verified with."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from adapters.psp.webhooks import require_secrets

API_BASE: Final = "https://api.stripe.com"

_CURRENCY: Final = re.compile(r"[a-z]{3}")
_SECRET_KEY: Final = re.compile(r"(?:sk|rk)_(?P<mode>test|live)_[A-Za-z0-9_]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class StripeKeys:
    """The keys of one merchant account, which are never shown, and its currency.

    `secret_key` is a secret key (`sk_…`) or a restricted one (`rk_…`), for test or live mode.
    Any of `webhook_secrets` may have signed a webhook: there are two while one is being rolled.
    `currency` is what its cards are charged in: a three-letter code in lower case (ISO 4217), or
    None where Stripe is not told.
    Raises ValueError for a key or a currency of another form, and for no webhook secret or a blank
    one: anybody could sign with it.
    """

    secret_key: str = field(repr=False)
    webhook_secrets: tuple[str, ...] = field(repr=False)
    currency: str | None = None

    def __post_init__(self) -> None:
        if not _SECRET_KEY.fullmatch(self.secret_key):
            raise ValueError("a secret key of Stripe begins with sk_test_, sk_live_ or rk_")
        require_secrets(self.webhook_secrets)
        if self.currency is not None and not _CURRENCY.fullmatch(self.currency):
            raise ValueError("a currency of Stripe has three lower-case letters")

    @property
    def is_live(self) -> bool:
        """Tell whether the key moves money; test mode and live mode share nothing at Stripe."""
        match = _SECRET_KEY.fullmatch(self.secret_key)
        return match is not None and match["mode"] == "live"
