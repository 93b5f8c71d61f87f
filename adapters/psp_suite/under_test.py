"""The base class and the types with which the author of an adapter describes a PSP to the suite.

The author writes a subclass of `PspUnderTest`, and names it with pytest's option `--psp`. The suite
does not depend on the internals of the adapter or of the PSP.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from pathlib import Path
from typing import ClassVar, Final

from adapters.psp.plugin import AnyPspPlugin
from adapters.psp_suite.clock import SettableClock
from adapters.psp_suite.samples import MERCHANT_ACCOUNT
from domain.billing import BillingInfo
from domain.identifiers import CardToken, GuestReference, MerchantAccount
from domain.outside import Ids
from domain.psps.card import Card, Funding
from domain.psps.evidence import Evidence
from domain.psps.hosted_page import HostedPage, HostedPageRequest, Outcome
from domain.psps.payment_provider import PaymentProvider
from domain.psps.webhook import WebhookDelivery

MAIN: Final = MERCHANT_ACCOUNT
OTHER: Final = MerchantAccount("other")
SECRET: Final = "the secret of webhooks to main"  # noqa: S105 - made up
OTHER_SECRET: Final = "the secret of webhooks to other"  # noqa: S105 - made up
START: Final = datetime(2026, 11, 20, 12, 0, 37, 789_012, tzinfo=UTC)
"""The time at which the clock of a PSP under test starts. It has microseconds, so that the tests
notice rounding.
"""
EXPIRY: Final = (9, 2031)


class Ability(Enum):
    """Abilities that a PSP or a stand-in may lack.

    Tests that need a missing ability are left out.
    """

    STAND_IN = auto()
    """A stand-in plays the PSP, so that guests, calls, records and time can be controlled."""
    REMOTE = auto()
    """The adapter calls the PSP over HTTP, with a key and webhook secrets for each merchant
    account.
    """
    SIGNED_WEBHOOKS = auto()
    """The PSP sends webhooks with an HMAC, made with a shared secret, in their headers."""
    SIGNED_TIMES = auto()
    """The signatures include the time of signing."""
    BATCHES = auto()
    """One webhook may contain several events."""
    TELLS_OUTCOME = auto()
    """The PSP can be asked for the outcome of a page. Without this ability, override `evidence`."""
    IDEMPOTENCY_KEYS = auto()
    """If calls with the same key are repeated or concurrent, the PSP acts only once. Without this
    ability, the adapter looks for an existing page in a list before it creates a page.
    """
    NAMES_SESSIONS = auto()
    """The response that creates a page identifies the session, so that the adapter can notice a
    response about another page.
    """
    NAMES_GUESTS = auto()
    """The PSP chooses the reference of each guest. Without this ability, the adapter derives the
    reference from `guest_key`.
    """
    CHECKS_ADDRESSES = auto()
    """The PSP reports the bank's check of an address, as `Capabilities.checks_addresses` says."""
    CLOSES_PAGES = auto()
    """The PSP, or at least its stand-in, can end a page early: see `Capabilities.closes_pages`."""
    SECOND_CARD = auto()
    """The page takes another card after a refused card. Without this ability, the guest tries the
    other card on the session's next page.
    """
    COUNTS_REFUSALS = auto()
    """The PSP reports how many cards were refused on a page, even after the page has stored a card
    or was closed.
    """
    FORGETS_GUESTS = auto()
    """The PSP can delete a guest, as the plugin's `Capabilities.forgets_guests` says."""
    READS_CARDS = auto()
    """The PSP reports a stored card's present state, as the plugin's `Capabilities.reads_cards`
    says.
    """
    LISTS_CARDS = auto()
    """The PSP lists the stored cards, as the plugin's `Capabilities.lists_cards` says."""
    JSON = auto()
    """The responses are JSON, so that each of their values can be damaged."""


class GuestCard(Enum):
    """The kinds of cards that a guest may type in."""

    GOOD = auto()
    ANOTHER_GOOD = auto()
    REFUSED = auto()
    """Refused by the bank."""
    CHALLENGED = auto()
    """Accepted after a challenge (3-D Secure)."""
    WRONG_ADDRESS = auto()
    """Accepted, but the address check fails."""
    UNCHECKED_ADDRESS = auto()
    """Accepted, but the bank cannot check the address. `Facts.cards` may lack this kind."""


@dataclass(frozen=True, slots=True)
class PrintedCard:
    """A test card of the PSP: its number, and the facts that the adapter reports about it.

    `funding` is None if the PSP does not report the funding of its test cards.
    """

    number: str
    card_logo: str
    funding: Funding | None = None


class Method(Enum):
    """The methods of the adapter that call the PSP.

    `outcome` is listed twice, because it may make different calls once the page has a card.
    """

    START = auto()
    OUTCOME = auto()
    """The outcome of a page that waits for a card."""
    OUTCOME_WITH_CARD = auto()
    """The outcome of a page that has a card."""
    CLOSE = auto()
    DISCARD = auto()
    FORGET_GUEST = auto()
    """Called only if the PSP has FORGETS_GUESTS."""
    READ_CARD = auto()
    """Called only if the PSP has READS_CARDS."""
    LIST_CARDS = auto()
    """The call for the first part of the list. Called only if the PSP has LISTS_CARDS."""


class Trouble(Enum):
    """A fault between an adapter and its PSP."""

    CALL_LOST = auto()
    """The PSP does not receive the call."""
    RESPONSE_LOST = auto()
    """The PSP handles the call, but its response does not arrive."""
    CALL_LATE = auto()
    """The connection breaks, and the PSP handles the call when `handle_late_calls` is called.

    Used only for a REMOTE PSP without IDEMPOTENCY_KEYS.
    """
    NONSENSE = auto()
    """The PSP's response cannot be understood."""
    UNKNOWN_STATUS = auto()
    """The PSP's response is valid except for an unknown status of the page."""
    REFUSED = auto()
    """The PSP refuses the call permanently, and does nothing."""
    NOT_FOUND = auto()
    """404 in the PSP's own form: the PSP does not know the object, or does not know it yet."""
    UNAUTHORIZED = auto()
    """401: the key is wrong or revoked. This kind and all kinds below are only for a REMOTE PSP."""
    FORBIDDEN = auto()
    """403: the key lacks a permission."""
    NOT_THE_API = auto()
    """404 with an HTML page, from a proxy or a wrong address. The call does not reach the PSP."""
    CONFLICT_AT_A_PROXY = auto()
    """409 with an HTML page, from a proxy. The call does not reach the PSP."""
    GONE_AT_A_PROXY = auto()
    """410 with an HTML page, from a proxy. The call does not reach the PSP."""
    REDIRECTED = auto()
    """302. The PSP would handle the call correctly if the adapter followed the redirect."""
    TOO_MANY = auto()
    """429, with Retry-After of 17 seconds."""
    OUT_OF_ORDER = auto()
    """503: the PSP is out of order."""
    UNKNOWN_ERROR = auto()
    """An error response that the PSP does not document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaysOut:
    """The addresses to which a page redirects the guest's browser, with and without a card."""

    with_card: str
    without: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The facts about a PSP that the suite needs to know, because they differ between PSPs.

    Cards and pages:

    - `cards`: the test cards.
    - `after_refusal`: the outcome after the bank has refused a card. It is CardRefused or Pending.
    - `refusal_codes`: the `refusal_code` for the card REFUSED, and for the card CHALLENGED after a
      failed challenge. Leave out the whole mapping if the PSP does not report codes.
    - `nullable`: the names of fields about a card that may be null according to the PSP's
      documentation. Name the fields of the responses that report a card. If only webhooks report a
      card, name the fields of the webhooks.
    - `address_fields`: the fields of a billing address that the PSP accepts.
    - `page_lifetime`: the maximum lifetime of a page, if it is less than a day.

    Webhooks:

    - `telling_events`: the kinds of webhooks about a session. If only webhooks report the card, the
      first kind must be one that reports the card.
    - `silent_events`: the kinds of webhooks that are not about a session, including an unknown
      kind.
    - `card_events`: the kinds of webhooks about a stored card that was changed or lost, or about
      its guest.
    - `broken_events`: bodies of telling events with a missing or wrong field. The keys name the
      fault.
    - `misdirected`: the cases in which a correctly signed webhook is meant for another addressee,
      so that the adapter must reject it. Choose a name for each case, such as "live mode" for a
      webhook to an account in test mode.

    Calls:

    - `calls`: how many calls to the PSP each method makes if nothing fails. For START, it is the
      number for a guest who is new to the PSP.
    - `live_settings`: the settings with which the account takes real cards, such as
      `{"API_KEY": "live_…"}`. They replace the settings of the same names in
      `PspUnderTest.settings`.
    - `resolution`: the precision of the PSP's times, such as one second.
    - `list_lag`: the longest time from the beginning of an attempt (`HostedPageRequest.begun_at`)
      until the PSP's lists show the page of the attempt.
    - `abilities`: the PSP's abilities.
    """

    cards: Mapping[GuestCard, PrintedCard]
    after_refusal: Outcome
    calls: Mapping[Method, int]
    telling_events: Sequence[str]
    silent_events: Sequence[str]
    broken_events: Mapping[str, bytes]
    misdirected: Sequence[str]
    card_events: Sequence[str] = ()
    refusal_codes: Mapping[GuestCard, str] = field(default_factory=dict)
    live_settings: Mapping[str, str] = field(default_factory=dict)
    nullable: Sequence[str] = ()
    address_fields: frozenset[str] = frozenset(
        {"address", "city", "state", "zipcode", "country_code"}
    )
    resolution: timedelta = timedelta(microseconds=1)
    page_lifetime: timedelta | None = None
    list_lag: timedelta = timedelta(0)
    abilities: frozenset[Ability] = frozenset(Ability)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestDetails:
    """The details of the guest that the PSP has received. A detail that was not sent is None.

    `language` is the language of the page, as an RFC 5646 tag.
    """

    name: str | None
    email: str | None
    language: str | None


class PspUnderTest(ABC):
    """A PSP with the merchant accounts MAIN and OTHER. At first, it has no pages, guests or cards.

    The suite creates an adapter, plays the guest, and causes faults. Methods that need the ability
    STAND_IN are not called for a PSP without it.
    """

    plugin: ClassVar[AnyPspPlugin]
    facts: ClassVar[Facts]

    clock: SettableClock
    """The clock of the adapter and the stand-in. It moves only when a test moves it."""

    ids: Ids
    """Creates the ids of sessions. If the PSP remembers them, create new ids in each run."""

    keys: Sequence[str] = ()
    """The keys with which the adapter calls a REMOTE PSP. No log may contain them.

    Add texts that are made from keys, such as the base64 text of a user name and a password.
    """

    settings: ClassVar[Mapping[str, str]] = {}
    """Valid settings of MAIN at a REMOTE PSP, as `{"API_KEY": …}`, including a secret for `sign`.
    """

    keeps: frozenset[str] = frozenset()
    """The attributes of an adapter that its calls may change, such as a cached access token."""

    @classmethod
    def not_tested(cls) -> Sequence[str]:
        """Return the names of the abilities, cards, facts and methods that the author left out.

        The suite does not run the tests that need them.
        """
        facts = cls.facts
        left_out: Mapping[str, bool] = {
            "misdirected": not facts.misdirected,
            "list_lag": not facts.list_lag,
            "card_events": not facts.card_events,
            "refusal_codes": not facts.refusal_codes,
            "live_settings": not facts.live_settings,
            "nullable": not facts.nullable,
            "guest_details": cls.guest_details is PspUnderTest.guest_details,
            "leave": cls.leave is PspUnderTest.leave,
            "evidence": cls.evidence is PspUnderTest.evidence,
        }
        return [
            *(ability.name for ability in Ability if ability not in facts.abilities),
            *(card.name for card in GuestCard if card not in facts.cards),
            *(what for what, is_left_out in left_out.items() if is_left_out),
        ]

    @abstractmethod
    def __init__(self, folder: Path) -> None:
        """Start the PSP. `folder` is an empty folder for its files."""

    def close(self) -> None:  # noqa: B027 - a PSP may have nothing to stop
        """Stop what was started."""

    @abstractmethod
    def adapter(self, webhook_secrets: Sequence[str] = (SECRET,)) -> PaymentProvider:
        """Return a new adapter with its usual deadline.

        It accepts webhooks to MAIN that are signed with any of `webhook_secrets`. If the PSP is
        REMOTE, it accepts webhooks to OTHER that are signed with OTHER_SECRET.
        """

    # The guest

    @abstractmethod
    def type_card(
        self, page: HostedPage, card: GuestCard, *, expiry: tuple[int, int] = EXPIRY
    ) -> None:
        """Play the guest who types in a card. Does nothing if the page is over."""

    @abstractmethod
    def answer_challenge(self, page: HostedPage, *, confirmed: bool) -> None:
        """Play the guest who passes or fails the challenge. Does nothing if the page is over."""

    @abstractmethod
    def read_page(self, page: HostedPage) -> str:
        """Return the text that the guest reads on an open page, as the PSP renders it.

        `adapters.psp_suite.pages.text_of` extracts the text of an HTML page.
        """

    def leave(self, page: HostedPage) -> None:  # noqa: B027 - most PSPs do not notice
        """Play the guest who leaves the page without adding a card."""

    @abstractmethod
    def ways_out(self, page: HostedPage) -> WaysOut:
        """Return the addresses to which the page redirects the guest's browser."""

    def evidence(self, page: HostedPage) -> Sequence[Evidence]:  # noqa: ARG002 - for overriding
        """Return the evidence about the page that the service would have stored so far.

        Override this method for a PSP that reports the outcome only by webhook or with the
        browser's return.
        """
        return ()

    # The records of the PSP

    @abstractmethod
    def billing_info(self, page: HostedPage) -> BillingInfo:
        """Return the billing address that the PSP received, limited to the fields that it accepts."""

    def guest_details(self, page: HostedPage) -> GuestDetails | None:  # noqa: ARG002 - for overriding
        """Return the details of the guest that the PSP has received.

        Return None if the PSP does not accept details.
        """
        return None

    @abstractmethod
    def count_pages(self) -> int:
        """Return how many pages the PSP has created so far."""

    @abstractmethod
    def guests(self, merchant_account: MerchantAccount) -> frozenset[GuestReference]:
        """Return the guests of a merchant account."""

    @abstractmethod
    def forget_guest(self, merchant_account: MerchantAccount, reference: GuestReference) -> None:
        """Delete a guest at the PSP, as its dashboard would."""

    @abstractmethod
    def tokens(self, merchant_account: MerchantAccount) -> frozenset[CardToken]:
        """Return the tokens that a merchant account can charge."""

    def update_card(self, card: Card, to: GuestCard, *, expiry: tuple[int, int]) -> None:
        """Change the number and the expiry date of a stored card of MAIN, as its bank does.

        Override this method only for a PSP with READS_CARDS.
        """
        raise NotImplementedError  # the suite calls it for READS_CARDS alone

    # Trouble

    @abstractmethod
    def have(self, trouble: Trouble, *, from_call: int = 1, calls: int | None = None) -> None:
        """Cause trouble from the `from_call`-th call on, until `recover` is called.

        Calls are counted from now. If `calls` is given, the trouble ends after that number of
        calls. For NONSENSE and UNKNOWN_STATUS, the PSP handles the call, and then sends the faulty
        response. UNKNOWN_STATUS only has to work for calls about existing pages. The same applies
        to NONSENSE if the PSP is not REMOTE.
        """

    def change_bodies(self, change: Callable[[int, bytes], bytes]) -> None:
        """Handle each call, but change the body of its response, until `recover` is called.

        `change` is called with the number of the call, counted from 1, and the correct body. Called
        only for a PSP with REMOTE.
        """
        raise NotImplementedError  # the suite calls it for REMOTE alone

    def count_calls(self) -> int:
        """Return how many calls the PSP has received so far. Called only for a PSP with REMOTE."""
        raise NotImplementedError  # the suite calls it for REMOTE alone

    def drip(self, seconds: float) -> None:
        """Send each response byte by byte over this number of seconds, until `recover` is called.

        Called only for a PSP with REMOTE.
        """
        raise NotImplementedError  # the suite calls it for REMOTE alone

    def handle_late_calls(self) -> None:
        """Handle the calls that CALL_LATE has held back.

        Called only for a PSP with REMOTE and without IDEMPOTENCY_KEYS.
        """
        raise NotImplementedError  # the suite calls it for such a PSP alone

    def fall_silent(self) -> None:
        """Receive calls without sending any byte of a response, until `recover` is called.

        Called only for a PSP with REMOTE.
        """
        raise NotImplementedError  # the suite calls it for REMOTE alone

    @abstractmethod
    def recover(self) -> None:
        """End all simulated faults. The PSP keeps its records."""

    # Webhooks

    @abstractmethod
    def event(self, kind: str, request: HostedPageRequest, page: HostedPage) -> bytes:
        """Return the body of a webhook of this kind.

        If `kind` is one of `Facts.telling_events`, the webhook is about this page.
        """

    def card_event(self, kind: str, card: Card) -> bytes:
        """Return the body of a webhook about a card of MAIN. `kind` is one of `card_events`."""
        raise NotImplementedError  # the suite calls it for each of `card_events`

    def batch(self, bodies: Sequence[bytes]) -> bytes:
        """Return the body of one webhook with the events of all these bodies.

        Override this method only for a PSP with BATCHES.
        """
        raise NotImplementedError  # the suite calls it for BATCHES alone

    @abstractmethod
    def sign(self, body: bytes, *, secret: str = SECRET, at: datetime) -> WebhookDelivery:
        """Return a webhook with this body, sent to the address of MAIN and signed with `secret`.

        `at` is the time of signing. The webhook has no headers other than those of the signature.
        """

    def misdirect(self, whom: str, request: HostedPageRequest, page: HostedPage) -> WebhookDelivery:
        """Return a correctly signed webhook that is sent to MAIN but meant for another addressee.

        The parameter `whom` is an item of `Facts.misdirected`. Override this method if that list is
        not empty.
        """
        raise NotImplementedError  # the suite calls it for each of `misdirected`
