"""What a center has set up for taking cards."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, Protocol

from domain.centers.card_limit import LIMITS_OF_A_CENTER, CardLimit, parse_card_limits
from domain.errors import InvalidField
from domain.identifiers import (
    DEFAULT_MERCHANT_ACCOUNT,
    CenterId,
    MerchantAccount,
    ProviderName,
    PspAccount,
)
from domain.redirects import parse_allowed_origin

MAX_SESSION_MINUTES: Final = 24 * 60

MIN_LINK_MINUTES: Final = 15
MAX_LINK_MINUTES: Final = 30 * 24 * 60

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
    `session_minutes` is how long a link may wait to be opened, unless add-card asks for another
    time. `link_minutes` is the longest time that it may ask for; None means `session_minutes`.
    `card_testing_limits` are limits of the center's own, as `parse_card_limits` reads them; None means
    those of the installation.
    """

    provider: ProviderName
    merchant_account: MerchantAccount
    avs: bool = False
    cards_per_guest: CardsPerGuest = CardsPerGuest.MANY
    redirect_origins: tuple[str, ...] = ()
    session_minutes: int = 30
    link_minutes: int | None = None
    card_testing_limits: str | None = None

    @classmethod
    def parse(
        cls,
        *,
        provider: str,
        merchant_account: str,
        avs: bool,
        cards_per_guest: str,
        redirect_origins: Iterable[str],
        session_minutes: int,
        link_minutes: int | None = None,
        card_testing_limits: str | None = None,
    ) -> PaymentConfiguration:
        """Read a configuration that comes from outside. Raises InvalidField.

        Whether this installation has the PSP, and keys for the merchant account, is not checked.
        """
        if not _MERCHANT_ACCOUNT.fullmatch(merchant_account):
            raise InvalidField(
                "merchant_account", "1 to 64 letters, digits, hyphens and underscores"
            )
        if not MIN_LINK_MINUTES <= session_minutes <= MAX_SESSION_MINUTES:
            raise InvalidField(
                "session_minutes", f"from {MIN_LINK_MINUTES} to {MAX_SESSION_MINUTES}"
            )
        if link_minutes is not None and not session_minutes <= link_minutes <= MAX_LINK_MINUTES:
            raise InvalidField("link_minutes", f"from {session_minutes} to {MAX_LINK_MINUTES}")
        try:
            origins = tuple(dict.fromkeys(map(parse_allowed_origin, redirect_origins)))
        except ValueError as error:
            raise InvalidField(
                "redirect_origins",
                "an origin such as https://shop.example, or an app's scheme such as myspa://",
            ) from error
        try:
            parse_card_limits(card_testing_limits or "", (), allowed=LIMITS_OF_A_CENTER)
        except ValueError as error:
            raise InvalidField(
                "card_testing_limits",
                "sessions and refused cards in 24 hours, such as guest=10/10,center=off/500",
            ) from error
        return cls(
            provider=ProviderName(provider),
            merchant_account=MerchantAccount(merchant_account),
            avs=avs,
            cards_per_guest=CardsPerGuest(cards_per_guest),
            redirect_origins=origins,
            session_minutes=session_minutes,
            link_minutes=link_minutes,
            card_testing_limits=card_testing_limits,
        )

    def card_limits(self, limits: Sequence[CardLimit]) -> Sequence[CardLimit]:
        """Return the limits against card testing, of which `limits` are those of the installation."""
        own = self.card_testing_limits or ""
        return parse_card_limits(own, limits, allowed=LIMITS_OF_A_CENTER)

    @property
    def psp_account(self) -> PspAccount:
        """Where its cards are taken."""
        return PspAccount(self.provider, self.merchant_account)

    @property
    def max_link_minutes(self) -> int:
        """The longest time in minutes that add-card may ask for."""
        return self.link_minutes or self.session_minutes

    def link_lifetime(self, link_minutes: int | None) -> timedelta:
        """Return how long a link may wait to be opened; None means as configured."""
        return timedelta(minutes=link_minutes or self.session_minutes)


def changed(
    before: PaymentConfiguration | None,
    named: Mapping[str, Any],  # fields of different types, which `parse` reads
) -> PaymentConfiguration:
    """Return a configuration with the fields that an operator names, as they come from outside.

    The others stay as they were, or have their defaults at first. Raises InvalidField; also if the
    center took no cards before, and no provider is named.
    """
    if before is None:
        if "provider" not in named:
            raise InvalidField("provider", "given for a center that takes no cards yet")
        before = PaymentConfiguration(
            provider=ProviderName(named["provider"]), merchant_account=DEFAULT_MERCHANT_ACCOUNT
        )
    return PaymentConfiguration.parse(**{**asdict(before), **named})


def parse_link_minutes(value: object, *, at_most: int) -> int | None:
    """Parse link_minutes as a client sent it; None means that it is not given.

    Raises InvalidField for anything but an integer from 15 to `at_most`; `true`, `60.0` and `"60"`
    too.
    """
    if value is None:
        return None
    if type(value) is not int or not MIN_LINK_MINUTES <= value <= at_most:
        raise InvalidField("link_minutes", f"a whole number from {MIN_LINK_MINUTES} to {at_most}")
    return value


class PaymentConfigurations(Protocol):
    """The payment configuration of each center."""

    def get(self, center_id: CenterId) -> PaymentConfiguration | None:
        """Return the center's configuration, or None when payments are not configured."""
        ...

    def get_to_change(self, center_id: CenterId) -> PaymentConfiguration | None:
        """Return the same. A write unit that calls this keeps others that do waiting until it ends."""
        ...

    def put(self, center_id: CenterId, configuration: PaymentConfiguration) -> None:
        """Store the center's configuration; it replaces the one before."""
        ...

    def remove(self, center_id: CenterId) -> None:
        """Remove the center's configuration, if there is one."""
        ...

    def psp_accounts(self) -> frozenset[PspAccount]:
        """Return the merchant accounts of all centers, also where the rest cannot be decoded."""
        ...

    def all(self) -> Sequence[PaymentConfiguration]:
        """Return the configuration of every center, in no order, as far as they can be decoded."""
        ...
