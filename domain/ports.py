"""The ports: what the domain needs of the outside, and what each adapter promises.

Each storage and each PSP adapter passes a contract suite: `tests/contracts/` and
`adapters/psp/contract/`. The other ports are tested with their adapters.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final, Protocol, TypeVar

from domain.access_tokens import AccessToken
from domain.card_limits import CardLimit, CardsAtCenter, RefusedCard
from domain.card_sessions import CardSession, DueSession
from domain.centers import Center
from domain.discards import Discard
from domain.events import DueDelivery, Event, EventDelivery, EventEndpoint
from domain.guests import Guest
from domain.hosted_pages import (
    Evidence,
    HostedPage,
    HostedPageRequest,
    Outcome,
    PspGuest,
    WebhookDelivery,
    WebhookNotice,
)
from domain.identifiers import (
    AccountId,
    CallerName,
    CardToken,
    CenterId,
    EndpointId,
    EventId,
    GuestId,
    GuestReference,
    MerchantAccount,
    ProductId,
    ProviderName,
    PspAccount,
    TokenId,
)
from domain.pagination import Page, PageRequest
from domain.payment_accounts import PaymentAccount
from domain.payment_configuration import PaymentConfiguration
from domain.permissions import Caller
from domain.products import Product


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureDetails:
    """What may be logged of a failed call: no guest's data, no secret, no free text of the PSP.

    `error` is the kind of failure, such as `TimeoutError`; `status` the HTTP status; `code` the
    PSP's error code; `param` the rejected parameter; `request_id` the PSP's id of the call.
    """

    error: str | None = None
    status: int | None = None
    code: str | None = None
    param: str | None = None
    request_id: str | None = None


NO_DETAILS: Final = FailureDetails()


class ProviderUnavailable(Exception):
    """The PSP did not respond, or its response is not usable. It may have acted.

    `retry_after` is set when the PSP has said how long to wait before the next call (429,
    Retry-After). `details` are logged when an outage begins.
    """

    def __init__(
        self,
        reason: str = "",
        *,
        retry_after: timedelta | None = None,
        details: FailureDetails = NO_DETAILS,
    ) -> None:
        super().__init__(reason)
        self.retry_after = retry_after
        self.details = details


class ProviderRefused(Exception):
    """The PSP rejected the call and did not act. The same call would be rejected again.

    `details` are logged when an outage of this kind begins.
    """

    def __init__(self, reason: str = "", *, details: FailureDetails = NO_DETAILS) -> None:
        super().__init__(reason)
        self.details = details


class WebhookRejected(Exception):
    """A webhook that is forged, altered, too old, dated in the future, or for another merchant."""


class PaymentProvider(Protocol):
    """A payment service provider (PSP), in the domain's terms.

    An adapter reports and decides nothing: a card that the bank declines is an outcome, not an
    error. Every method may be called again after any failure, and takes at most 5 seconds in all.
    It raises ProviderUnavailable when there is no usable response, and ProviderRefused when the PSP
    rejects the call itself. Callers treat ProviderRefused like an outage, except from `start` and
    `identity`.
    """

    @property
    def return_parameters(self) -> frozenset[str]:
        """The query parameters of the return address that `outcome` needs as evidence."""
        return frozenset()

    def identity(self, merchant_account: MerchantAccount) -> str | None:  # noqa: ARG002 - an adapter that tells needs it
        """Return the PSP's id of the merchant that the keys of an account belong to; no secret.

        It is the same for every key of one merchant in one mode (live or test), and differs for any
        other. None, or ProviderRefused, means that the PSP does not say.
        """
        return None

    def start(self, request: HostedPageRequest) -> HostedPage:
        """Create the page of an attempt. The same idempotency key returns the same page again.

        A guest without a reference at the PSP, or with one that it has deleted, gets a new one.
        """
        ...

    def outcome(
        self, request: HostedPageRequest, page: HostedPage, evidence: Sequence[Evidence]
    ) -> Outcome:
        """Return what became of a page, from the PSP's response and the evidence so far.

        A page unknown to the PSP is PageClosed. A card that has been discarded is not reported
        again, so that it cannot come back when a backup is restored.
        """
        ...

    def close(self, request: HostedPageRequest, page: HostedPage) -> None:
        """Close a page so that it takes no more cards. A page that is over or unknown is fine."""
        ...

    def discard(
        self,
        merchant_account: MerchantAccount,
        guest_reference: GuestReference,
        token: CardToken,
    ) -> None:
        """Delete a stored token at the PSP. A token that is gone or unknown is fine."""
        ...

    def read_webhook(self, delivery: WebhookDelivery) -> Sequence[WebhookNotice]:
        """Verify a webhook over its raw bytes, and return a notice for each session in it.

        Events that concern no session return an empty sequence. Raises WebhookRejected when the
        webhook cannot be trusted. Makes no call to the PSP.
        """
        ...


class Providers(dict[ProviderName, PaymentProvider]):
    """The configured PSPs, by name. Looking up any other raises ProviderUnavailable."""

    def __missing__(self, name: ProviderName) -> PaymentProvider:
        """Raise ProviderUnavailable: the PSP may be configured again later."""
        raise ProviderUnavailable(f"no PSP named {name} is set up here")


class Centers(Protocol):
    """The centers on file."""

    def get(self, center_id: CenterId) -> Center | None:
        """Return the center, or None."""
        ...

    def page(self, centers: frozenset[CenterId] | None, request: PageRequest) -> Page[Center]:
        """Return a page of these centers, by name; None means all centers."""
        ...

    def put_many(self, centers: Iterable[Center]) -> None:
        """Store centers, and update those that exist."""
        ...


class Guests(Protocol):
    """The guests on file."""

    def get(self, guest_id: GuestId) -> Guest | None:
        """Return the guest, or None."""
        ...

    def add(self, guest: Guest) -> None:
        """Store a new guest. Raises AlreadyStored when the guest exists."""
        ...

    def update(self, guest: Guest) -> None:
        """Store a guest that exists."""
        ...

    def put_many(self, guests: Iterable[Guest]) -> None:
        """Store guests, and update those that exist."""
        ...


class Products(Protocol):
    """The products on file, within each center in the order of their creation."""

    def page(self, center_id: CenterId, request: PageRequest) -> Page[Product]:
        """Return a page of a center's products. A later page costs no more than the first."""
        ...

    def get(self, product_id: ProductId) -> Product | None:
        """Return the product, or None."""
        ...

    def put_many(self, products: Iterable[Product]) -> None:
        """Store products, and update those that exist, which keep their place.

        Their centers must exist. Raises AlreadyStored when another center has one of them.
        """
        ...


class PaymentConfigurations(Protocol):
    """The payment configuration of each center."""

    def get(self, center_id: CenterId) -> PaymentConfiguration | None:
        """Return the center's configuration, or None when payments are not configured."""
        ...

    def put(self, center_id: CenterId, configuration: PaymentConfiguration) -> None:
        """Store the center's configuration; it replaces the one before."""
        ...

    def remove(self, center_id: CenterId) -> None:
        """Remove the center's configuration, if there is one."""
        ...

    def all(self) -> Sequence[PaymentConfiguration]:
        """Return the configuration of every center, in no order, as far as they can be decoded."""
        ...


class CardSessions(Protocol):
    """Card-addition sessions."""

    def add(self, session: CardSession) -> None:
        """Store a new session."""
        ...

    def get(self, token_id: TokenId) -> CardSession | None:
        """Return the session, or None. A write unit locks it."""
        ...

    def with_page(
        self, provider: ProviderName, merchant_account: MerchantAccount, page_reference: str
    ) -> CardSession | None:
        """Return the session whose current page has this reference at the PSP, or None.

        A write unit locks it.
        """
        ...

    def update(self, session: CardSession) -> None:
        """Store a session that exists."""
        ...

    def make_pages_due(self, guest_id: GuestId, now: datetime) -> None:
        """Make every open session of a guest with a page that is not over due at `now`.

        It waits for units that have locked one of them, so the caller must hold no lock yet. It locks
        them in the order of their ids.
        """
        ...

    def open_of(self, caller: CallerName) -> Sequence[TokenId]:
        """Return the open sessions of a caller that are not cancelled yet; locks nothing."""
        ...

    def page(
        self, guest_id: GuestId, centers: frozenset[CenterId] | None, request: PageRequest
    ) -> Page[CardSession]:
        """Return a page of a guest's sessions, newest first; `centers` None means all."""
        ...

    def is_any_due(self, now: datetime, *, except_at: Collection[PspAccount] = ()) -> bool:
        """Return whether `take_due` would find a session; changes nothing."""
        ...

    def take_due(
        self, now: datetime, *, until: datetime, except_at: Collection[PspAccount] = ()
    ) -> DueSession | None:
        """Lease a session that is due; None when none is.

        A session is due from its `due_at` on, and if that is later than `latest_due`: while its PSP
        does not respond it waits for MAX_BACKOFF at most, with a page that is not over or after its
        `expires_at` for POLL_EVERY; any other may wait until its `expires_at`.

        Each merchant account has a queue for each of these three. From queue to queue they take
        turns, which follow from `now`; within one, the session comes first that has been due the
        longest. So a backlog holds up no other account. Sessions of the merchant accounts in
        `except_at` are left out, and make the call no slower, however many they are.

        The lease ends at `until`: then the session is due again, in case the process that took it
        has died. A row that cannot be decoded is taken like any other, so that it does not block
        the rest.
        """
        ...


class RefusedCards(Protocol):
    """Cards that were refused, and the limits on them and on sessions."""

    def add(self, cards: Iterable[RefusedCard]) -> int:
        """Store refused cards, and return how many were new. The others stay as they are."""
        ...

    def reached(
        self, limits: Sequence[CardLimit], session: CardSession, *, since: datetime
    ) -> Mapping[CardLimit, datetime]:
        """Return the limits that are reached, each with the time from which on it is full.

        A limit of n is reached when the session's guest, caller or center has n sessions or refused
        cards within COUNTED_FOR after `since`, whether the session itself is stored or not; it is
        full from the n-th latest on. Costs as much as reading n entries of an index for each limit,
        and for a guest at a center all entries of the guest. A write unit locks the guest: other
        units wait here until it ends, so that none misses what another adds for the same guest.
        """
        ...

    def at_centers(self, *, since: datetime, at_least: int) -> Sequence[CardsAtCenter]:
        """Return the centers with at least that many refused cards after `since`.

        Counts the latest 10,000 refused cards only.
        """
        ...


class EvidenceLog(Protocol):
    """What PSPs reported of sessions by webhook or return address."""

    def add(self, token_id: TokenId, evidence: Evidence, *, at_most: int) -> None:
        """Store a piece of evidence once, however often it comes.

        Once a session has `at_most` pieces of its origin, nothing more of that origin is stored.
        """
        ...

    def of(self, token_id: TokenId) -> Sequence[Evidence]:
        """Return the evidence on a session, oldest first."""
        ...


class IdempotencyKeys(Protocol):
    """The session that each caller's Idempotency-Key stands for."""

    def get(self, caller: CallerName, key: str, *, since: datetime) -> TokenId | None:
        """Return the session that the key was used for after `since`, or None."""
        ...

    def claim(
        self, caller: CallerName, key: str, token_id: TokenId, *, now: datetime, since: datetime
    ) -> TokenId:
        """Use the key for `token_id`, unless it was used after `since`.

        Return the session that the key stands for now. Of concurrent claims one wins.
        """
        ...

    def forget(self, *, before: datetime) -> int:
        """Delete a bounded number of keys that were used before that time; return how many."""
        ...


class PaymentAccounts(Protocol):
    """Cards on file."""

    def add(self, account: PaymentAccount) -> None:
        """Store a new account.

        Raises AlreadyStored for a second active account with the same guest, center, merchant
        account and fingerprint, for a second active default of the same guest and center, and for
        a second account of the same session.
        """
        ...

    def get(self, account_id: AccountId) -> PaymentAccount | None:
        """Return the account, removed or not, or None. A write unit locks it.

        A unit that changes an account locks it by `active_at` instead: two units that lock an
        account of the same guest each, and then the others, would wait for each other.
        """
        ...

    def update(self, account: PaymentAccount) -> None:
        """Store an account that exists.

        A second active default of the same guest and center is a programming error, and raises the
        exception of the database.
        """
        ...

    def active_at(self, guest_id: GuestId, center_id: CenterId) -> Sequence[PaymentAccount]:
        """Return the active accounts of a guest at a center, oldest first.

        A write unit locks them, and other units wait here until it ends. So after this call an
        `add` cannot miss an account that is added at the same time.
        """
        ...

    def is_held(
        self, provider: ProviderName, merchant_account: MerchantAccount, token: CardToken
    ) -> bool:
        """Return whether an active account, of any guest and center, holds this token.

        A write unit locks the token: other units wait here and in `Discards.get` until it ends.
        """
        ...

    def page(
        self, guest_id: GuestId, centers: frozenset[CenterId] | None, request: PageRequest
    ) -> Page[PaymentAccount]:
        """Return a page of a guest's active accounts, oldest first; `centers` None means all."""
        ...

    def is_expiry_notice_due(self, now: datetime) -> bool:
        """Return whether `with_expiry_notice_due` would find an account."""
        ...

    def with_expiry_notice_due(
        self, now: datetime, *, at_most: int, unreadable_until: datetime
    ) -> Sequence[PaymentAccount | None]:
        """Return the active accounts whose `expiry_notice_at` has come, the first ones.

        A write unit locks them, and leaves out those that another unit has locked. None stands for
        one that cannot be decoded; its notice is put off until `unreadable_until`.
        """
        ...

    def page_expiring(
        self, center_id: CenterId, *, before: date, request: PageRequest
    ) -> Page[PaymentAccount]:
        """Return a page of a center's active accounts that expire before a date, soonest first.

        A card expires on the last day of its month. Accounts of the same month come oldest first.
        One that cannot be decoded is counted and left out.
        """
        ...


class RecordUnreadable(Exception):
    """A stored record that this release cannot decode; most likely another release wrote it.

    The storage has logged its table and key, once in a process. A repository that returns several
    records leaves such a one out where the method says so.
    """


class AlreadyStored(Exception):
    """The storage already holds a record that must be unique."""


class GuestReferences(Protocol):
    """The PSPs' own references for our guests."""

    def get(self, guest: PspGuest) -> GuestReference | None:
        """Return the reference, or None when the guest has none there."""
        ...

    def keep(self, guest: PspGuest, reference: GuestReference) -> None:
        """Store a reference; it replaces the one before."""
        ...


class MerchantIdentities(Protocol):
    """The merchant whose keys each merchant account had when it was first used."""

    def get(self, provider: ProviderName, merchant_account: MerchantAccount) -> str | None:
        """Return the stored identity, or None."""
        ...

    def claim(
        self, provider: ProviderName, merchant_account: MerchantAccount, identity: str
    ) -> str:
        """Store an identity unless there is one.

        Return the one that is stored now. Of concurrent claims one wins.
        """
        ...


class Discards(Protocol):
    """Tokens that are to be discarded at their PSP, and those that have been."""

    def add(self, discard: Discard) -> None:
        """Store a discard. If the token has one, nothing changes."""
        ...

    def get(
        self, provider: ProviderName, merchant_account: MerchantAccount, token: CardToken
    ) -> Discard | None:
        """Return the discard of a token, done or not, or None.

        A write unit locks the token, as `PaymentAccounts.is_held` does.
        """
        ...

    def update(self, discard: Discard) -> None:
        """Store a discard that exists."""
        ...

    def remove(self, discard: Discard) -> None:
        """Delete a discard, because the token is stored after all."""
        ...

    def is_any_due(self, now: datetime, *, except_at: Collection[PspAccount] = ()) -> bool:
        """Return whether `take_due` would find a discard; changes nothing."""
        ...

    def take_due(
        self, now: datetime, *, until: datetime, except_at: Collection[PspAccount] = ()
    ) -> Discard | None:
        """Lease a discard that is due; None when none is.

        A discard is due from its `due_at` on, and if that is later than `latest_due` after a wait of
        MAX_BACKOFF. Merchant accounts take turns and are left out as in `CardSessions.take_due`. The
        lease ends at `until`, which is the `due_at` of the discard returned. One that cannot be decoded
        is leased and passed over, so that it does not block the rest. The caller commits, even if none
        is returned.
        """
        ...


class EventEndpoints(Protocol):
    """The endpoints that take events."""

    def add(self, endpoint: EventEndpoint) -> None:
        """Store an endpoint. Raises AlreadyStored if one that is not removed has this URL."""
        ...

    def get(self, endpoint_id: EndpointId) -> EventEndpoint | None:
        """Return the endpoint, removed or not, or None. A write unit locks it."""
        ...

    def all(self) -> Sequence[EventEndpoint]:
        """Return the endpoints that are not removed and can be decoded, oldest first."""
        ...

    def update(self, endpoint: EventEndpoint) -> None:
        """Store an endpoint that exists."""
        ...


class EventDeliveries(Protocol):
    """The deliveries of events, under way and done."""

    def add(self, delivery: EventDelivery) -> None:
        """Store a delivery. Raises AlreadyStored if the event has one to this endpoint."""
        ...

    def get(self, event_id: EventId, endpoint_id: EndpointId) -> EventDelivery | None:
        """Return the delivery of an event to an endpoint, or None. A write unit locks it."""
        ...

    def of(self, event_id: EventId) -> Sequence[EventDelivery]:
        """Return the deliveries of an event. A write unit locks them."""
        ...

    def latest(self, *, limit: int, only_failed: bool) -> Sequence[EventDelivery]:
        """Return the deliveries of the latest events, newest first; or only those that failed.

        Those that cannot be decoded are left out.
        """
        ...

    def update(self, delivery: EventDelivery) -> None:
        """Store a delivery that exists."""
        ...

    def is_any_due(self, now: datetime, *, except_to: Collection[EndpointId] = ()) -> bool:
        """Return whether `take_due` would find a delivery; changes nothing."""
        ...

    def take_due(
        self, now: datetime, *, until: datetime, except_to: Collection[EndpointId] = ()
    ) -> DueDelivery | None:
        """Lease the delivery that has been due the longest; None when none is due.

        A delivery is due from its `due_at` on, and if that is later than `latest_due` after a wait
        of LONGEST_WAIT. Those of `account.expiring` come after all others, because thousands are
        stored at once. Those to the endpoints in `except_to` are left out. The lease ends at `until`: then the
        delivery is due again, in case the process that took it has died. The event is not read, so
        one that cannot be read does not keep the others from being taken.
        """
        ...

    def forget(self, *, before: datetime) -> int:
        """Delete a bounded number of deliveries that are not due and whose event happened before.

        Return how many.
        """
        ...


class AccessTokens(Protocol):
    """Issued access tokens, by hash."""

    def add(self, token: AccessToken) -> None:
        """Store an issued token."""
        ...

    def get(self, token_hash: str) -> AccessToken | None:
        """Return the token with this hash, valid or not, or None."""
        ...

    def all(self) -> Sequence[AccessToken]:
        """Return every token that can be decoded, oldest first."""
        ...

    def update(self, token: AccessToken) -> None:
        """Store a token that exists."""
        ...


class WorkerHeartbeats(Protocol):
    """When a background worker last ran, in any process."""

    def last(self) -> datetime | None:
        """Return the time of the last heartbeat, or None before the first."""
        ...

    def leave(self, now: datetime) -> None:
        """Store a heartbeat."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitOfWork:
    """The repositories, seen in one consistent state."""

    centers: Centers
    guests: Guests
    products: Products
    configurations: PaymentConfigurations
    sessions: CardSessions
    refused_cards: RefusedCards
    evidence: EvidenceLog
    idempotency_keys: IdempotencyKeys
    accounts: PaymentAccounts
    guest_references: GuestReferences
    merchant_identities: MerchantIdentities
    discards: Discards
    event_endpoints: EventEndpoints
    event_deliveries: EventDeliveries
    access_tokens: AccessTokens
    worker_heartbeats: WorkerHeartbeats


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteUnit(UnitOfWork):
    """A unit of work that may change records. What it locks stays locked until it ends.

    `commit` makes the changes durable. A unit that ends without it changes nothing.
    """

    commit: Callable[[], None]


Result = TypeVar("Result")


class Storage(Protocol):
    """Where records are stored. Every call may raise ServiceUnavailable: nothing was written.

    The exception is an in-doubt commit: the connection is lost during a commit, and the database
    does not come back within seconds. The unit may then have been committed. Every use case may
    therefore be called again after ServiceUnavailable.

    Units are short and never span a call to a PSP. Nested units, writes in a read unit and writes
    after the commit are programming errors and raise RuntimeError.
    """

    def read(self) -> AbstractContextManager[UnitOfWork]:
        """Open a read-only unit that sees one state of the records until it ends."""
        ...

    def write(self) -> AbstractContextManager[WriteUnit]:
        """Open a unit that may change records and then commits.

        Raises ServiceUnavailable when it conflicts with another unit.
        """
        ...

    def transact(self, work: Callable[[WriteUnit], Result]) -> Result:
        """Call `work` with a new write unit, and return its result.

        After a conflict with another unit it is called again with a new unit, a few times. It must
        therefore have no effect outside the unit.
        """
        ...

    def check(self) -> None:
        """Raise ServiceUnavailable unless records can be read and written now."""
        ...

    def close(self) -> None:
        """Close every connection. No unit may be open. May be called twice."""
        ...


class EventNotSent(Exception):
    """No response came from an endpoint. The text says why, for operators; it may have got it."""


class EventSender(Protocol):
    """Sends events to endpoints, signed as Standard Webhooks describes."""

    def send(self, event: Event, endpoint: EventEndpoint, *, now: datetime) -> int:
        """Send an event once, and return the HTTP status of the response.

        It takes at most 15 seconds. `now` is the time that is signed. Raises EventNotSent when
        there is no response, or when the endpoint is not one that may be called.
        """
        ...


class Identity(Protocol):
    """Finds the caller behind an access token."""

    def authenticate(self, token: str) -> Caller | None:
        """Return the caller of a token, or None if it is unknown, expired or revoked."""
        ...


class PostalCodes(Protocol):
    """The postal codes of each country, by its ISO 3166-1 alpha-2 code."""

    def are_used_in(self, country_code: str) -> bool:
        """Return whether addresses in the country have postal codes."""
        ...

    def has_format(self, country_code: str, zipcode: str) -> bool:
        """Return whether a postal code has the country's format; it need not exist."""
        ...


class Clock(Protocol):
    """The time."""

    def now(self) -> datetime:
        """Return the current time, with the time zone UTC."""
        ...

    def is_steady(self) -> bool:
        """Return whether the clock has gone on evenly for 10 minutes, as this process has seen.

        What cannot be undone waits for that: a clock that is ahead for some minutes, as after the
        start of a machine, must not end it.
        """
        return True


class Ids(Protocol):
    """Random identifiers and secrets."""

    def uuid(self) -> str:
        """Return a new random UUID in 36-character form, lower case (RFC 9562, version 4)."""
        ...

    def secret(self) -> str:
        """Return new URL-safe random text of at least 128 bits."""
        ...
