"""The keys of a merchant account at Stripe."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from adapters.psp.webhooks import require_secrets

API_BASE: Final = "https://api.stripe.com"

_SECRET_KEY: Final = re.compile(r"(?:sk|rk)_(?:test|live)_[A-Za-z0-9_]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class StripeKeys:
    """The keys and the currency of one merchant account. The `repr` does not contain the keys.

    `secret_key` is a secret key (`sk_…`) or a restricted key (`rk_…`), for test or live mode. A
    webhook may be signed with any of `webhook_secrets`; there are two while a secret is being
    rolled. `currency` is a three-letter code in lower case (ISO 4217), or None if no currency is
    sent. Raises ValueError for a malformed key, and if a webhook secret is missing or blank.
    """

    secret_key: str = field(repr=False)
    webhook_secrets: tuple[str, ...] = field(repr=False)
    currency: str | None = None

    def __post_init__(self) -> None:
        if not _SECRET_KEY.fullmatch(self.secret_key):
            raise ValueError("a secret key of Stripe begins with sk_test_, sk_live_ or rk_")
        require_secrets(self.webhook_secrets)

    @property
    def is_live(self) -> bool:
        """Return whether the key is for live mode. Live and test mode have no objects in common."""
        return self.secret_key.split("_")[1] == "live"
