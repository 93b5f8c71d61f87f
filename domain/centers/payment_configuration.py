"""A center's configuration for taking cards."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
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
from domain.psps.card import Card, Funding
from domain.psps.hosted_page import Authentication
from domain.redirects import parse_allowed_origin

MAX_SESSION_MINUTES: Final = 24 * 60

MIN_LINK_MINUTES: Final = 15
MAX_LINK_MINUTES: Final = 30 * 24 * 60

MAX_KEEP_AFTER_END_DAYS: Final = 90

MIN_PORTAL_MINUTES: Final = 5
MAX_PORTAL_MINUTES: Final = 24 * 60
DEFAULT_PORTAL_MINUTES: Final = 15

_MERCHANT_ACCOUNT = re.compile(r"[A-Za-z0-9_-]{1,64}")


class CardsPerGuest(StrEnum):
    """How many active cards a guest may have at one center."""

    ONE = "one"
    MANY = "many"


class GuestRemoval(StrEnum):
    """What happens to a card that guarantees a booking if the guest removes it."""

    ALWAYS = "always"
    """The card is removed at once."""
    AFTER_AGREEMENT = "after-agreement"
    """The card stays for the booking alone, as long as the guest read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentConfiguration:
    """How a center takes cards. A session keeps a copy from the time of add-card.

    `redirect_origins` lists the origins (`https://shop.example`) and custom schemes (`myspa://`) to
    which a guest may be sent back; an empty list allows every http and https address.
    `session_minutes` is how long a link may wait to be opened, unless add-card sets another time.
    `link_minutes` is the longest time that add-card may set; None means `session_minutes`.
    `card_testing_limits` are the center's own limits, as `parse_card_limits` reads them; None means
    the installation's limits. Cards whose funding is in `refuse_funding` are not accepted;
    `acquirer_agreed` is whether the operator confirmed that the acquirer allows this.
    `authentication` says whether the bank must authenticate guests who add a card. A card is kept
    for `keep_after_end_days` after its last booking, because a no-show is charged after it.
    `no_show_indicator` is whether the acquirer lets the center say "no-show" when it charges a card
    under an agreement. A link to a guest's own page works for `portal_minutes`. `guest_removal` says
    what happens to a card that guarantees a booking if the guest removes it there; None means
    `after-agreement` if the center takes agreements, otherwise `always`.
    """

    provider: ProviderName
    merchant_account: MerchantAccount
    avs: bool = False
    cards_per_guest: CardsPerGuest = CardsPerGuest.MANY
    redirect_origins: tuple[str, ...] = ()
    session_minutes: int = 30
    link_minutes: int | None = None
    card_testing_limits: str | None = None
    refuse_funding: frozenset[Funding] = frozenset()
    acquirer_agreed: bool = False
    authentication: Authentication = Authentication.AUTOMATIC
    keep_after_end_days: int = 7
    no_show_indicator: bool = False
    portal_minutes: int = DEFAULT_PORTAL_MINUTES
    guest_removal: GuestRemoval | None = None

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
        refuse_funding: Collection[str] = (),
        acquirer_agreed: bool = False,
        authentication: str = Authentication.AUTOMATIC,
        keep_after_end_days: int = 7,
        no_show_indicator: bool = False,
        portal_minutes: int = DEFAULT_PORTAL_MINUTES,
        guest_removal: str | None = None,
    ) -> PaymentConfiguration:
        """Parse a configuration from outside. Raises InvalidField.

        Does not check whether this installation has the PSP, or keys for the merchant account.
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
        if not 0 <= keep_after_end_days <= MAX_KEEP_AFTER_END_DAYS:
            raise InvalidField("keep_after_end_days", f"from 0 to {MAX_KEEP_AFTER_END_DAYS}")
        if not MIN_PORTAL_MINUTES <= portal_minutes <= MAX_PORTAL_MINUTES:
            raise InvalidField(
                "portal_minutes", f"from {MIN_PORTAL_MINUTES} to {MAX_PORTAL_MINUTES}"
            )
        refused = frozenset(map(Funding, refuse_funding))
        if len(refused) == len(Funding):
            raise InvalidField("refuse_funding", "not every funding")
        if refused and not acquirer_agreed:
            # Visa and Mastercard demand that a merchant accepts all their cards, with exceptions by
            # country and by contract.
            raise InvalidField(
                "refuse_funding",
                "confirmed with --acquirer-agreed, once the acquirer has agreed to it in writing",
            )
        return cls(
            provider=ProviderName(provider),
            merchant_account=MerchantAccount(merchant_account),
            avs=avs,
            cards_per_guest=CardsPerGuest(cards_per_guest),
            redirect_origins=origins,
            session_minutes=session_minutes,
            link_minutes=link_minutes,
            card_testing_limits=card_testing_limits,
            refuse_funding=refused,
            acquirer_agreed=bool(refused),
            authentication=Authentication(authentication),
            keep_after_end_days=keep_after_end_days,
            no_show_indicator=no_show_indicator,
            portal_minutes=portal_minutes,
            guest_removal=None if guest_removal is None else GuestRemoval(guest_removal),
        )

    def accepts(self, card: Card) -> bool:
        """Return whether the center accepts a card's funding. Unknown funding is accepted."""
        return card.funding not in self.refuse_funding

    def says_no_show(self, at: PspAccount) -> bool:
        """Return whether a charge at a merchant account may say "no-show".

        Only the acquirer of the center's present merchant account was asked.
        """
        return self.no_show_indicator and self.psp_account == at

    def card_limits(self, limits: Sequence[CardLimit]) -> Sequence[CardLimit]:
        """Return the limits against card testing. `limits` are the installation's limits."""
        own = self.card_testing_limits or ""
        return parse_card_limits(own, limits, allowed=LIMITS_OF_A_CENTER)

    @property
    def psp_account(self) -> PspAccount:
        """The PSP and merchant account that take its cards."""
        return PspAccount(self.provider, self.merchant_account)

    @property
    def max_link_minutes(self) -> int:
        """The longest time, in minutes, that add-card may set."""
        return self.link_minutes or self.session_minutes

    def link_lifetime(self, link_minutes: int | None) -> timedelta:
        """Return how long a link may wait to be opened; None means the configured time."""
        return timedelta(minutes=link_minutes or self.session_minutes)


def changed(
    before: PaymentConfiguration | None,
    named: Mapping[str, Any],  # fields of different types, which `parse` reads
) -> PaymentConfiguration:
    """Return `before`, changed as an operator asks. `named` has the new values, unparsed.

    Fields that are not named keep their values, or their defaults in a first configuration. Raises
    InvalidField, also for a first configuration without a provider.
    """
    if before is None:
        if "provider" not in named:
            raise InvalidField("provider", "given for a center that takes no cards yet")
        before = PaymentConfiguration(
            provider=ProviderName(named["provider"]), merchant_account=DEFAULT_MERCHANT_ACCOUNT
        )
    former = asdict(before)
    has_moved = any(
        named.get(name, former[name]) != former[name] for name in ("provider", "merchant_account")
    )
    if has_moved or "refuse_funding" in named:
        # The acquirer agreed for the former merchant account, and only to the former refusals.
        del former["acquirer_agreed"]
    if has_moved:
        # Only the acquirer of the former merchant account was asked.
        del former["no_show_indicator"]
    return PaymentConfiguration.parse(**{**former, **named})


def parse_authentication(value: object) -> Authentication | None:
    """Parse `authentication` as a client sent it; return None if the client requires nothing.

    So requests with `automatic`, with null and without the field are equal. Raises InvalidField.
    """
    if value is None or value == Authentication.AUTOMATIC:
        return None
    if value == Authentication.REQUIRED:
        return Authentication.REQUIRED
    raise InvalidField("authentication", "`automatic` or `required`")


def parse_link_minutes(value: object, *, at_most: int) -> int | None:
    """Parse link_minutes as a client sent it; None means that it is absent.

    Raises InvalidField for anything but an integer from 15 to `at_most`, including `true`, `60.0`
    and `"60"`.
    """
    if value is None:
        return None
    if type(value) is not int or not MIN_LINK_MINUTES <= value <= at_most:
        raise InvalidField("link_minutes", f"a whole number from {MIN_LINK_MINUTES} to {at_most}")
    return value


class PaymentConfigurations(Protocol):
    """The payment configuration of each center."""

    def get(self, center_id: CenterId) -> PaymentConfiguration | None:
        """Return the center's configuration, or None if it has no configuration."""
        ...

    def get_to_change(self, center_id: CenterId) -> PaymentConfiguration | None:
        """Return what `get` returns. Other write units that call this wait until this unit ends."""
        ...

    def put(self, center_id: CenterId, configuration: PaymentConfiguration) -> None:
        """Store the center's configuration. It replaces the former one."""
        ...

    def remove(self, center_id: CenterId) -> None:
        """Remove the center's configuration, if there is one."""
        ...

    def psp_accounts(self) -> frozenset[PspAccount]:
        """Return every center's merchant account, even if the rest of its row cannot be decoded."""
        ...

    def all(self) -> Sequence[PaymentConfiguration]:
        """Return every center's configuration that can be decoded, in no particular order."""
        ...
