"""What the suite of `PaymentProvider` needs of a PSP to ask an adapter for every promise.

A PSP states its own words and numbers in a subclass of `PspUnderTest`, and pytest's option `--psp`
names it. The adapter may well talk to its PSP over a socket: nothing here looks inside either.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from pathlib import Path
from typing import ClassVar, Final

from adapters.psp.contract.clock import SettableClock
from adapters.psp.contract.samples import MERCHANT_ACCOUNT
from adapters.psp.plugin import AnyPspPlugin
from domain.billing import BillingInfo
from domain.hosted_pages import (
    Evidence,
    HostedPage,
    HostedPageRequest,
    Outcome,
    WebhookDelivery,
)
from domain.identifiers import CardToken, GuestReference, MerchantAccount
from domain.ports import Ids, PaymentProvider

MAIN: Final = MERCHANT_ACCOUNT
OTHER: Final = MerchantAccount("other")
SECRET: Final = "the secret of webhooks to main"  # noqa: S105 - made up
OTHER_SECRET: Final = "the secret of webhooks to other"  # noqa: S105 - made up
START: Final = datetime(2026, 11, 20, 12, 0, 37, 789_012, tzinfo=UTC)
"""When a PSP under test begins: at no whole minute or second, so that no part is lost unnoticed."""
EXPIRY: Final = (9, 2031)


class Ability(Enum):
    """What a PSP, or what plays it here, may truly be without; the suite then asks less of it."""

    STAND_IN = auto()
    """It is played here: its guests, its calls, its records and its time are in our hands."""
    REMOTE = auto()
    """The adapter calls it over HTTP, with a key and webhook secrets for each merchant account."""
    SIGNED_WEBHOOKS = auto()
    """It sends webhooks, with an HMAC by a shared secret in their headers."""
    SIGNED_TIMES = auto()
    """Its signatures hold the time at which they were made."""
    BATCHES = auto()
    """One webhook may hold several events."""
    IDEMPOTENCY_KEYS = auto()
    """It does a call once that comes twice, also at once. Without it, an adapter looks first."""


class GuestCard(Enum):
    """The cards that a guest may type."""

    GOOD = auto()
    ANOTHER_GOOD = auto()
    REFUSED = auto()
    """The bank refuses it."""
    CHALLENGED = auto()
    """The bank asks the guest first (3-D Secure)."""
    WRONG_ADDRESS = auto()
    """Good, but the bank says that the address is another."""


@dataclass(frozen=True, slots=True)
class PrintedCard:
    """A card as it lies before the guest, with the name that the adapter has for its brand."""

    number: str
    card_logo: str


class Method(Enum):
    """The methods of an adapter that call the PSP."""

    START = auto()
    OUTCOME = auto()
    CLOSE = auto()
    DISCARD = auto()


class Trouble(Enum):
    """What may go wrong between an adapter and its PSP."""

    CALL_LOST = auto()
    """The PSP never gets the call."""
    RESPONSE_LOST = auto()
    """The PSP does what the call asks, and its response never comes."""
    NONSENSE = auto()
    """The PSP's response is none that can be understood."""
    UNKNOWN_STATUS = auto()
    """The PSP answers well, but with a status that nobody has heard of."""
    REFUSED = auto()
    """The PSP refuses the call itself, for good, and does nothing."""
    UNAUTHORIZED = auto()
    """401: the key is wrong, or was revoked. REMOTE alone, as all that follow."""
    FORBIDDEN = auto()
    """403: the key may not do this."""
    NOT_THE_API = auto()
    """404 with an HTML page, from a proxy or a wrong address; the PSP never gets the call."""
    REDIRECTED = auto()
    """302; the PSP gets the call only if it is followed, and there it gives a sound response."""
    TOO_MANY = auto()
    """429."""
    OUT_OF_ORDER = auto()
    """503."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaysOut:
    """Where a page sends the guest's browser: with a card stored, and without."""

    with_card: str
    without: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is so of one PSP and may be otherwise with the next.

    `after_refusal` is what the adapter says once the bank has refused a card: CardRefused, or
    Pending. `calls` are how many calls each method makes when all goes well, START for a guest who
    is new there. Telling events are the kinds of webhooks that speak of a session, silent ones
    those that do not, among them one that nobody knows. Broken events are bodies of telling ones
    that lack something or have it in a wrong form, by their fault. `misdirected` names for whom
    else a well-signed webhook may be meant: another merchant account, live mode …
    `address_fields` are those of a billing address that the PSP has a place for. `resolution` is
    the unit of the times that the PSP tells, and `list_lag` how long a call
    that is repeated may have to wait until the PSP's lists show what the first has made.
    """

    cards: Mapping[GuestCard, PrintedCard]
    after_refusal: Outcome
    calls: Mapping[Method, int]
    telling_events: Sequence[str]
    silent_events: Sequence[str]
    broken_events: Mapping[str, bytes]
    misdirected: Sequence[str]
    address_fields: frozenset[str] = frozenset(
        {"address", "city", "state", "zipcode", "country_code"}
    )
    resolution: timedelta = timedelta(microseconds=1)
    list_lag: timedelta = timedelta(0)
    abilities: frozenset[Ability] = frozenset(Ability)


class PspUnderTest(ABC):
    """A PSP with no pages, guests and cards yet, where the merchant accounts MAIN and OTHER exist.

    The suite has an adapter made, plays the guest, and has trouble happen. What a PSP without
    STAND_IN cannot do is never asked of it.
    """

    plugin: ClassVar[AnyPspPlugin]
    facts: ClassVar[Facts]

    clock: SettableClock
    """The time, for the adapter and, if it is a stand-in, for the PSP; it stands still."""

    ids: Ids
    """Makes the ids of sessions; those of a PSP that remembers must be new in each run."""

    keys: Sequence[str] = ()
    """The keys that the adapter calls a REMOTE PSP with; no log may hold them."""

    settings: ClassVar[Mapping[str, str]] = {}
    """Sound settings of one merchant account of a REMOTE PSP, by what they are: `API_KEY` …"""

    @abstractmethod
    def __init__(self, folder: Path) -> None:
        """Start the PSP, with an empty folder for its files."""

    def close(self) -> None:  # noqa: B027 - not every PSP has something to stop
        """Stop what was started."""

    @abstractmethod
    def adapter(self, webhook_secrets: Sequence[str] = (SECRET,)) -> PaymentProvider:
        """Make the adapter, with the deadline that it is shipped with.

        Each of these secrets may sign webhooks to MAIN. OTHER_SECRET signs those to OTHER, if the
        PSP is REMOTE.
        """

    # The guest

    @abstractmethod
    def type_card(
        self, page: HostedPage, card: GuestCard, *, expiry: tuple[int, int] = EXPIRY
    ) -> None:
        """Have the guest type a card; nothing comes of it when the page takes none any more."""

    @abstractmethod
    def answer_challenge(self, page: HostedPage, *, confirmed: bool) -> None:
        """Have the guest answer the bank; nothing comes of it when the page is over."""

    @abstractmethod
    def read_page(self, page: HostedPage) -> str:
        """Give the text that the guest reads on an open page, as the PSP renders it.

        `adapters.psp.contract.pages.text_of` gives the text of an HTML page.
        """

    @abstractmethod
    def ways_out(self, page: HostedPage) -> WaysOut:
        """Give where the page would send the guest's browser."""

    def evidence(self, page: HostedPage) -> Sequence[Evidence]:  # noqa: ARG002 - a PSP that needs it overrides this
        """Give what the service would have kept of the page by now.

        For a PSP that tells the outcome by the browser's return or by webhooks alone.
        """
        return ()

    # What there is at the PSP

    @abstractmethod
    def billing_info(self, page: HostedPage) -> BillingInfo:
        """Give what the PSP was told of the billing address, as far as it has a place for it."""

    @abstractmethod
    def count_pages(self) -> int:
        """Count every page ever made."""

    @abstractmethod
    def guests(self, merchant_account: MerchantAccount) -> frozenset[GuestReference]:
        """Give the guests that a merchant account has."""

    @abstractmethod
    def forget_guest(self, merchant_account: MerchantAccount, reference: GuestReference) -> None:
        """Have somebody delete a guest at the PSP."""

    @abstractmethod
    def tokens(self, merchant_account: MerchantAccount) -> frozenset[CardToken]:
        """Give the tokens that a merchant account can charge."""

    # Trouble

    @abstractmethod
    def have(self, trouble: Trouble, *, from_call: int = 1) -> None:
        """Have trouble with every call but the next `from_call - 1`, until `recover`.

        NONSENSE and UNKNOWN_STATUS come once the PSP has done what the call asks, and need to be
        had only with pages that exist already.
        """

    @abstractmethod
    def drip(self, seconds: float) -> None:
        """Have each response come whole, and byte by byte over so many seconds, until `recover`.

        Asked of a REMOTE PSP alone, as the next.
        """

    @abstractmethod
    def fall_silent(self) -> None:
        """Have each call arrive, and no byte of a response come, until `recover`."""

    @abstractmethod
    def recover(self) -> None:
        """Have no more trouble; what the PSP has done stays done."""

    # Webhooks

    @abstractmethod
    def event(self, kind: str, request: HostedPageRequest, page: HostedPage) -> bytes:
        """Give the body of a webhook of that kind, about this page as far as it is about one."""

    @abstractmethod
    def batch(self, bodies: Sequence[bytes]) -> bytes:
        """Give the body of one webhook with the events of these. Asked of a PSP with BATCHES."""

    @abstractmethod
    def sign(self, body: bytes, *, secret: str = SECRET, at: datetime) -> WebhookDelivery:
        """Sign a body, and deliver it to the address of MAIN's webhooks.

        Its headers are those that the signature is made of, and no others.
        """

    @abstractmethod
    def misdirect(self, whom: str, request: HostedPageRequest, page: HostedPage) -> WebhookDelivery:
        """Deliver a webhook to MAIN that is well signed, fresh, and meant for somebody else."""
