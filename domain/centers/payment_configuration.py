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
    """The number of active cards that a guest may have at one center."""

    ONE = "one"
    MANY = "many"


class GuestRemoval(StrEnum):
    """What happens if a guest removes a card that guarantees a booking."""

    ALWAYS = "always"
    """The card is removed at once."""
    AFTER_AGREEMENT = "after-agreement"
    """The card stays on file for the booking only, until the time that the guest read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentConfiguration:
    """How a center takes cards.

    Each session keeps the configuration that the center had when the session was created.

    Links and addresses:

    - `redirect_origins` lists the origins (`https://shop.example`) and custom schemes (`myspa://`)
      to which a guest may be redirected. If it is empty, every http and https address is allowed.
    - A link must be opened within `session_minutes`, unless add-card requests another time. The
      longest time that add-card may request is `link_minutes`; None means `session_minutes`.
    - The link to a guest's own page works for `portal_minutes`.

    Cards:

    - Cards whose funding is in `refuse_funding` are not accepted. `acquirer_agreed` is whether the
      operator confirmed that the acquirer allows this.
    - `authentication` is whether the bank must authenticate a guest who adds a card.
    - `card_testing_limits` are the center's own limits, in the form that `parse_card_limits` reads.
      None means the limits of the installation.

    Bookings:

    - A card is kept for `keep_after_end_days` after its last booking, so that a no-show can still
      be charged.
    - `no_show_indicator` is whether the acquirer allows "no-show" as the reason for a charge under
      an agreement.
    - `guest_removal` is what happens if a guest removes a card that guarantees a booking. None
      means `after-agreement` if the center takes agreements, and `always` if it does not.
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
        """Parse a configuration that an operator typed. Raises InvalidField.

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
            raise InvalidField("refuse_funding", "fewer than all kinds of funding")
        if refused and not acquirer_agreed:
            # Visa and Mastercard require merchants to accept all their cards. Exceptions depend on
            # the country and the contract.
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

    def may_state_no_show(self, at: PspAccount) -> bool:
        """Return whether the bank may be sent "no-show" as the reason for a charge.

        `at` is the merchant account of the charge. `no_show_indicator` applies only to the center's
        present merchant account, because only the acquirer of that account has agreed to this
        reason.
        """
        return self.no_show_indicator and self.psp_account == at

    def card_limits(self, limits: Sequence[CardLimit]) -> Sequence[CardLimit]:
        """Return the limits against card testing that apply to the center.

        `limits` are the installation's limits. The center's own limits replace them.
        """
        own = self.card_testing_limits or ""
        return parse_card_limits(own, limits, allowed=LIMITS_OF_A_CENTER)

    @property
    def psp_account(self) -> PspAccount:
        """The PSP and the merchant account at which the center's cards are stored."""
        return PspAccount(self.provider, self.merchant_account)

    @property
    def max_link_minutes(self) -> int:
        """The longest lifetime of a link, in minutes, that add-card may request."""
        return self.link_minutes or self.session_minutes

    def link_lifetime(self, link_minutes: int | None) -> timedelta:
        """Return the time within which a link must be opened.

        It is `link_minutes`, which add-card requested, or the configured time if `link_minutes` is
        None.
        """
        return timedelta(minutes=link_minutes or self.session_minutes)


def changed(
    before: PaymentConfiguration | None,
    named: Mapping[str, Any],  # fields of different types, which `parse` reads
) -> PaymentConfiguration:
    """Return `before` with the changes in `named`, which maps names to unparsed values.

    Other fields keep their values. If `before` is None, the other fields have their defaults, and
    `named` must contain a provider. Raises InvalidField.
    """
    if before is None:
        if "provider" not in named:
            raise InvalidField("provider", "given for a center that does not take cards yet")
        before = PaymentConfiguration(
            provider=ProviderName(named["provider"]), merchant_account=DEFAULT_MERCHANT_ACCOUNT
        )
    former = asdict(before)
    has_moved = any(
        named.get(name, former[name]) != former[name] for name in ("provider", "merchant_account")
    )
    if has_moved or "refuse_funding" in named:
        # The acquirer's consent covers only the former merchant account and the former refusals.
        del former["acquirer_agreed"]
    if has_moved:
        # Only the acquirer of the former merchant account was asked.
        del former["no_show_indicator"]
    return PaymentConfiguration.parse(**{**former, **named})


def parse_authentication(value: object) -> Authentication | None:
    """Parse the `authentication` that a client sent. Raises InvalidField.

    Return None for `automatic`, null and a missing field, because they require nothing.
    """
    if value is None or value == Authentication.AUTOMATIC:
        return None
    if value == Authentication.REQUIRED:
        return Authentication.REQUIRED
    raise InvalidField("authentication", "`automatic` or `required`")


def parse_link_minutes(value: object, *, at_most: int) -> int | None:
    """Parse the link_minutes that a client sent, or return None if it is absent.

    The value must be an integer from 15 to `at_most`. Raises InvalidField for any other value,
    including `true`, `60.0` and `"60"`.
    """
    if value is None:
        return None
    if type(value) is not int or not MIN_LINK_MINUTES <= value <= at_most:
        raise InvalidField("link_minutes", f"a whole number from {MIN_LINK_MINUTES} to {at_most}")
    return value


class PaymentConfigurations(Protocol):
    """Repository of the payment configurations of centers."""

    def get(self, center_id: CenterId) -> PaymentConfiguration | None:
        """Return the center's configuration, or None."""
        ...

    def get_to_change(self, center_id: CenterId) -> PaymentConfiguration | None:
        """Return what `get` returns, and lock it.

        Other write units that call this for the center wait until this unit ends.
        """
        ...

    def put(self, center_id: CenterId, configuration: PaymentConfiguration) -> None:
        """Store the center's configuration, in place of any stored configuration."""
        ...

    def remove(self, center_id: CenterId) -> None:
        """Remove the center's configuration, if there is one."""
        ...

    def psp_accounts(self) -> frozenset[PspAccount]:
        """Return the merchant accounts of all centers.

        They are returned even if the rest of a center's configuration cannot be decoded.
        """
        ...

    def all(self) -> Sequence[PaymentConfiguration]:
        """Return every center's configuration that can be decoded, in no particular order."""
        ...
