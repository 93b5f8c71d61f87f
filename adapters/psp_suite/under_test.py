"""What the author tells the contract suite about a PSP, and does for the suite.

The author writes a subclass of `PspUnderTest`, and names it with pytest's option `--psp`. The suite
sees neither the inside of the adapter nor the inside of the PSP.
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
"""The time at which a PSP under test starts. It has microseconds, so that rounding is noticed."""
EXPIRY: Final = (9, 2031)


class Ability(Enum):
    """Abilities that not every PSP or stand-in has. Without an ability, the suite runs fewer tests."""

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
    """One webhook may hold several events."""
    TELLS_OUTCOME = auto()
    """The PSP can be asked for the outcome of a page. If only webhooks report it, write `evidence`.
    """
    IDEMPOTENCY_KEYS = auto()
    """The PSP handles repeated and concurrent calls once. Without keys, an adapter looks in a list
    first.
    """
    NAMES_SESSIONS = auto()
    """The response to a new page names the session, so that a response about another page is
    noticed.
    """
    NAMES_GUESTS = auto()
    """The PSP names each guest itself. Without it, the adapter chooses the name from `guest_key`.
    """
    CHECKS_ADDRESSES = auto()
    """The PSP reports the bank's check of an address, as `Capabilities.checks_addresses` says."""
    CLOSES_PAGES = auto()
    """The PSP, or at least its stand-in, can end a page early: see `Capabilities.closes_pages`."""
    SECOND_CARD = auto()
    """The page takes another card after a refused card. Without it, the link leads to the next
    page.
    """
    COUNTS_REFUSALS = auto()
    """The PSP reports how many cards a page has refused, even when it has a card or is closed."""
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
    """The cards that a guest may type."""

    GOOD = auto()
    ANOTHER_GOOD = auto()
    REFUSED = auto()
    """Refused by the bank."""
    CHALLENGED = auto()
    """Accepted after a challenge (3-D Secure)."""
    WRONG_ADDRESS = auto()
    """Accepted, but the address check fails."""
    UNCHECKED_ADDRESS = auto()
    """Accepted, but the bank cannot check the address. Leave it out if there is no such card."""


@dataclass(frozen=True, slots=True)
class PrintedCard:
    """The number of a test card, and what the adapter reports for it.

    `funding` is None if the PSP does not report the funding of its test cards.
    """

    number: str
    card_logo: str
    funding: Funding | None = None


class Method(Enum):
    """The adapter's methods that call the PSP."""

    START = auto()
    OUTCOME = auto()
    """The outcome of a page that waits for a card."""
    OUTCOME_WITH_CARD = auto()
    """The outcome of a page that has a card."""
    CLOSE = auto()
    DISCARD = auto()
    FORGET_GUEST = auto()
    """Only with FORGETS_GUESTS."""
    READ_CARD = auto()
    """Only with READS_CARDS."""
    LIST_CARDS = auto()
    """Only with LISTS_CARDS: the first list."""


class Trouble(Enum):
    """A fault between an adapter and its PSP."""

    CALL_LOST = auto()
    """The PSP does not receive the call."""
    RESPONSE_LOST = auto()
    """The PSP handles the call, and its response does not arrive."""
    CALL_LATE = auto()
    """The connection breaks, and the PSP handles the call at `handle_late_calls`.

    REMOTE without IDEMPOTENCY_KEYS only.
    """
    NONSENSE = auto()
    """The PSP's response cannot be understood."""
    UNKNOWN_STATUS = auto()
    """The PSP's response is valid except for an unknown status of the page."""
    REFUSED = auto()
    """The PSP refuses the call permanently, and does nothing."""
    NOT_FOUND = auto()
    """404 in the PSP's own form: the PSP does not know the page, card or guest, or not yet."""
    UNAUTHORIZED = auto()
    """401: the key is wrong or revoked. This and all that follow are for REMOTE only."""
    FORBIDDEN = auto()
    """403: the key lacks a permission."""
    NOT_THE_API = auto()
    """404 with an HTML page, from a proxy or a wrong address; the PSP receives no call."""
    CONFLICT_AT_A_PROXY = auto()
    """409 with an HTML page, from a proxy; the PSP receives no call."""
    GONE_AT_A_PROXY = auto()
    """410 with an HTML page, from a proxy; the PSP receives no call."""
    REDIRECTED = auto()
    """302; the PSP handles the call correctly if the redirect is followed."""
    TOO_MANY = auto()
    """429, with Retry-After of 17 seconds."""
    OUT_OF_ORDER = auto()
    """503."""
    UNKNOWN_ERROR = auto()
    """An error that the PSP does not document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaysOut:
    """The addresses to which a page sends the guest's browser, with a card and without a card."""

    with_card: str
    without: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The properties in which PSPs differ.

    - `cards`: the test cards.
    - `after_refusal`: the outcome after the bank refused a card, CardRefused or Pending.
    - `refusal_codes`: the `refusal_code` after REFUSED, and after the failed challenge of
      CHALLENGED. Leave it out if the PSP reports none.
    - `calls`: how many calls each method makes without faults. START is for a new guest.
    - `telling_events`: the kinds of webhooks about a session. If only webhooks report the card, the
      first kind reports it.
    - `silent_events`: the kinds that are not about a session, including an unknown kind.
    - `card_events`: the kinds about a stored card that was changed or lost, or about its guest.
    - `broken_events`: bodies of telling events with a missing or wrong field, by the fault.
    - `misdirected`: other addressees of a correctly signed webhook, such as live mode.
    - `live_settings`: the changes that turn `settings` into those of real cards, as `{"API_KEY":
      "live_…"}`.
    - `nullable`: the names of fields about a card that the PSP's description allows to be null. They
      are in responses, or in webhooks if only these report the card.
    - `address_fields`: the fields of a billing address that the PSP accepts.
    - `resolution`: the unit of the PSP's times.
    - `page_lifetime`: the maximum lifetime of a page, if it is less than a day.
    - `list_lag`: the longest wait until the PSP's lists show the page of a repeated call.
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
    """The guest's details that a PSP received; None where it received nothing.

    `language` is the language of the page, as an RFC 5646 tag.
    """

    name: str | None
    email: str | None
    language: str | None


class PspUnderTest(ABC):
    """A PSP without pages, guests or cards, and with the merchant accounts MAIN and OTHER.

    The suite creates an adapter, plays the guest, and causes faults. Methods that need STAND_IN are
    not called for a PSP without it.
    """

    plugin: ClassVar[AnyPspPlugin]
    facts: ClassVar[Facts]

    clock: SettableClock
    """The clock of the adapter and the stand-in. It moves only when a test moves it."""

    ids: Ids
    """Creates the ids of sessions. For a PSP that remembers them, create new ids in each run."""

    keys: Sequence[str] = ()
    """The keys with which the adapter calls a REMOTE PSP. No log may hold them.

    Add texts that are made from keys, such as the base64 text of a user name and a password.
    """

    settings: ClassVar[Mapping[str, str]] = {}
    """Valid settings of MAIN at a REMOTE PSP, as `{"API_KEY": …}`, including a secret for `sign`.
    """

    keeps: frozenset[str] = frozenset()
    """The attributes of an adapter that its calls may change, such as a cached access token."""

    @classmethod
    def not_tested(cls) -> Sequence[str]:
        """Return the names of what the suite does not test, because the facts leave it out."""
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
        """Start the PSP, with an empty folder for its files."""

    def close(self) -> None:  # noqa: B027 - a PSP may have nothing to stop
        """Stop what was started."""

    @abstractmethod
    def adapter(self, webhook_secrets: Sequence[str] = (SECRET,)) -> PaymentProvider:
        """Return a new adapter, with its usual deadline.

        Each of these secrets may sign webhooks to MAIN. If the PSP is REMOTE, OTHER_SECRET signs
        webhooks to OTHER.
        """

    # The guest

    @abstractmethod
    def type_card(
        self, page: HostedPage, card: GuestCard, *, expiry: tuple[int, int] = EXPIRY
    ) -> None:
        """Type a card as the guest. Does nothing if the page is over."""

    @abstractmethod
    def answer_challenge(self, page: HostedPage, *, confirmed: bool) -> None:
        """Pass or fail the challenge as the guest. Does nothing if the page is over."""

    @abstractmethod
    def read_page(self, page: HostedPage) -> str:
        """Return the text that the guest reads on an open page, as the PSP renders it.

        `adapters.psp_suite.pages.text_of` extracts the text of an HTML page.
        """

    def leave(self, page: HostedPage) -> None:  # noqa: B027 - most PSPs do not notice
        """Leave the page as the guest, by its way out without a card."""

    @abstractmethod
    def ways_out(self, page: HostedPage) -> WaysOut:
        """Return the addresses to which the page sends the guest's browser."""

    def evidence(self, page: HostedPage) -> Sequence[Evidence]:  # noqa: ARG002 - for overriding
        """Return the evidence that the service would have stored for the page so far.

        Override it for a PSP that reports the outcome only in webhooks or with the browser's
        return.
        """
        return ()

    # The records of the PSP

    @abstractmethod
    def billing_info(self, page: HostedPage) -> BillingInfo:
        """Return the billing address that the PSP received, limited to the fields that it accepts."""

    def guest_details(self, page: HostedPage) -> GuestDetails | None:  # noqa: ARG002 - for overriding
        """Return the guest's details that the PSP received; None if it accepts no details."""
        return None

    @abstractmethod
    def count_pages(self) -> int:
        """Return how many pages were created so far."""

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
        """Change a stored card of MAIN to another number and expiry date, as its bank does.

        Override it for READS_CARDS only.
        """
        raise NotImplementedError  # the suite calls it for READS_CARDS alone

    # Trouble

    @abstractmethod
    def have(self, trouble: Trouble, *, from_call: int = 1, calls: int | None = None) -> None:
        """Cause trouble from the `from_call`-th call from now on, until `recover`.

        With `calls`, only that number of calls meet it. NONSENSE and UNKNOWN_STATUS are sent after
        the PSP has handled the call. They need to work only for existing pages.
        """

    def change_bodies(self, change: Callable[[int, bytes], bytes]) -> None:
        """Handle each call, and change the body of its response, until `recover`. For REMOTE only.

        `change` takes the number of the call, from 1 on, and the correct body.
        """
        raise NotImplementedError  # the suite calls it for REMOTE alone

    def count_calls(self) -> int:
        """Return how many calls the PSP has received so far. For REMOTE only."""
        raise NotImplementedError  # the suite calls it for REMOTE alone

    def drip(self, seconds: float) -> None:
        """Send each response byte by byte over so many seconds, until `recover`. For REMOTE only."""
        raise NotImplementedError  # the suite calls it for REMOTE alone

    def handle_late_calls(self) -> None:
        """Handle the calls that met CALL_LATE. For REMOTE without IDEMPOTENCY_KEYS only."""
        raise NotImplementedError  # the suite calls it for such a PSP alone

    def fall_silent(self) -> None:
        """Receive calls without sending any byte of a response, until `recover`. For REMOTE only."""
        raise NotImplementedError  # the suite calls it for REMOTE alone

    @abstractmethod
    def recover(self) -> None:
        """End all trouble; the PSP keeps its records."""

    # Webhooks

    @abstractmethod
    def event(self, kind: str, request: HostedPageRequest, page: HostedPage) -> bytes:
        """Return the body of a webhook of that kind, about this page if the kind is a telling one."""

    def card_event(self, kind: str, card: Card) -> bytes:
        """Return the body of a webhook of that kind about a card of MAIN. For `card_events`."""
        raise NotImplementedError  # the suite calls it for each of `card_events`

    def batch(self, bodies: Sequence[bytes]) -> bytes:
        """Return the body of one webhook with the events of these bodies.

        Override it for BATCHES only.
        """
        raise NotImplementedError  # the suite calls it for BATCHES alone

    @abstractmethod
    def sign(self, body: bytes, *, secret: str = SECRET, at: datetime) -> WebhookDelivery:
        """Sign a body, for the webhook address of MAIN.

        The delivery has only the headers of the signature.
        """

    def misdirect(self, whom: str, request: HostedPageRequest, page: HostedPage) -> WebhookDelivery:
        """Return a correctly signed webhook to MAIN that is meant for another addressee.

        Override it for `misdirected`.
        """
        raise NotImplementedError  # the suite calls it for each of `misdirected`
