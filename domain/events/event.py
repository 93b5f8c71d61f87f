"""Events about cards and sessions, which are sent to the operators' endpoints.

An endpoint is a client's address that receives events of some types. When an event occurs, one
delivery is stored for each endpoint that receives the event. When the event is replayed, deliveries
to further endpoints may be added.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from random import Random
from typing import Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from domain.errors import InvalidField
from domain.identifiers import (
    AccountId,
    AgreementId,
    CenterId,
    EndpointId,
    EventId,
    GuestId,
    TokenId,
)
from domain.outside import Trace
from domain.psps.card import Card, Funding
from domain.redirects import redirect_origin
from domain.retries import Waiting

MAX_ENDPOINTS: Final = 50
"""The maximum number of endpoints. The worker has a thread for each endpoint, so that no endpoint
waits for another.
"""

WAITS: Final = (
    timedelta(seconds=30),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=2),
    timedelta(hours=5),
    timedelta(hours=10),
    timedelta(hours=14),
    timedelta(hours=18),
    timedelta(hours=22),
)
"""The waits between the ten attempts of a delivery. They add up to three days."""
JITTER: Final = 0.1
"""Each wait is up to this fraction longer or shorter, so that a backlog does not arrive all at once.
"""

LONGEST_WAIT: Final = max(WAITS) * (1 + JITTER)

BOTH_SECRETS_SIGN_FOR: Final = timedelta(hours=24)

GONE: Final = 410
"""The HTTP status with which an endpoint unsubscribes from all events (RFC 9110)."""


class EventType(StrEnum):
    """The types of events."""

    ACCOUNT_STORED = "account.stored"
    ACCOUNT_RENEWED = "account.renewed"
    ACCOUNT_UPDATED = "account.updated"
    ACCOUNT_REMOVED = "account.removed"
    ACCOUNT_EXPIRING = "account.expiring"
    SESSION_UNOPENED = "session.unopened"
    SESSION_CARD_DECLINED = "session.card_declined"
    SESSION_FAILED = "session.failed"
    SESSION_EXPIRED = "session.expired"
    ACCOUNT_DEFAULT = "account.default"
    CONSENT_WITHDRAWN = "consent.withdrawn"
    AGREEMENT_ADDED = "agreement.added"
    AGREEMENT_ENDED = "agreement.ended"
    GUEST_MERGED = "guest.merged"
    TEST = "test"
    """The type of an event that an operator sends to any endpoint as a test. It is not stored."""


ENDPOINT_TYPES: Final = tuple(each for each in EventType if each is not EventType.TEST)
"""The types to which an endpoint may subscribe."""


MEANINGS: Final[Mapping[EventType, str]] = {
    EventType.ACCOUNT_STORED: "A card was stored.",
    EventType.ACCOUNT_RENEWED: "A guest typed a card on file again, so its payment reference may be new.",
    EventType.ACCOUNT_UPDATED: "The bank has given a card on file a new number or expiry date.",
    EventType.ACCOUNT_REMOVED: "A card was removed.",
    EventType.ACCOUNT_EXPIRING: "A card expires in 30 days or in 7 days.",
    EventType.SESSION_UNOPENED: "Half of a link's life is over, and nobody has opened it.",
    EventType.SESSION_CARD_DECLINED: "A card was refused in a session.",
    EventType.SESSION_FAILED: "The PSP collected a card, but a rule refused it.",
    EventType.SESSION_EXPIRED: "A session ended without a card.",
    EventType.ACCOUNT_DEFAULT: "A guest made a card the default.",
    EventType.CONSENT_WITHDRAWN: "A guest withdrew the consent to charges other than those for bookings.",
    EventType.AGREEMENT_ADDED: "A guest agreed to charges for a booking, and a card guarantees it.",
    EventType.AGREEMENT_ENDED: "An agreement ended: its booking is over, the shop ended it, or the "
    "guest replaced it.",
    EventType.GUEST_MERGED: "A guest was merged into another guest, and the former id is no longer used.",
    EventType.TEST: "A test by an operator. The ids in it do not belong to any record.",
}
"""The meaning of each type, in one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSummary:
    """The details of a card at the time of an event or a session. `expiry_on` is MM/YY.

    `authenticated` is whether the bank authenticated the guest, or None if the PSP does not report
    it.
    """

    card_logo: str
    last_four: str
    expiry_on: str
    funding: Funding | None = None
    issuer_country: str | None = None
    wallet: str | None = None
    authenticated: bool | None = None

    @classmethod
    def of(cls, card: Card, *, authenticated: bool | None) -> CardSummary:
        """Return the present details of a card."""
        return cls(
            card_logo=card.card_logo,
            last_four=card.last_four,
            expiry_on=card.expiry_on,
            funding=card.funding,
            issuer_country=card.issuer_country,
            wallet=card.wallet,
            authenticated=authenticated,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to a card or a session at `occurred_at`.

    `token_id` is the session, and `account_id` is the card on file, if there is one. `status` is
    the session's new status; for a card, it is `active` or `removed`. `reason` is one word; it is
    None if events of this type always have the same reason, or if the reason is unknown.
    `language` (RFC 5646) is the language of the consent with which the card was stored or renewed.
    `reference` is the client's own reference for the session that caused the event, or None if no
    session did. If a card was refused because it is already on file, `existing_account_id` is the
    account with that card. `live` is whether the PSP takes real cards, or None if that is unknown.

    `agreement_id` is the agreement that the event is about, and `agreement_reference` is the
    client's name for its booking. `merged_guest_id` is the guest who was merged into `guest_id`;
    such an event is not about a center or a session. `by` is `guest` if the guest caused the event
    on the guest's own page, otherwise None. `trace` is sent to endpoints in a header, and not in
    the body of the request.
    """

    event_id: EventId
    type: EventType
    occurred_at: datetime
    guest_id: GuestId
    center_id: CenterId
    token_id: TokenId
    status: str
    account_id: AccountId | None = None
    existing_account_id: AccountId | None = None
    reason: str | None = None
    card: CardSummary | None = None
    language: str | None = None
    reference: str | None = None
    live: bool | None = None
    merged_guest_id: GuestId | None = None
    agreement_id: AgreementId | None = None
    agreement_reference: str | None = None
    by: str | None = None
    trace: Trace | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """The secrets that sign an endpoint's events: `whsec_` and Base64 (Standard Webhooks).

    Until `previous_until`, events are also signed with `previous`, so that a receiver has time to
    switch to the `current` secret.
    """

    current: str
    previous: str | None = None
    previous_until: datetime | None = None

    @classmethod
    def of(cls, random_text: str) -> Secrets:
        """Return secrets made from new random text."""
        return cls(current=f"whsec_{b64encode(random_text.encode()).decode()}")

    def rolled(self, random_text: str, now: datetime) -> Secrets:
        """Return secrets with a new `current` secret.

        The secret that was `current` stays valid as `previous` for 24 hours.
        """
        return replace(
            self.of(random_text), previous=self.current, previous_until=now + BOTH_SECRETS_SIGN_FOR
        )

    def at(self, now: datetime) -> tuple[str, ...]:
        """Return the secrets that sign events at the time `now`, the current secret first."""
        if self.previous is None or self.previous_until is None or now >= self.previous_until:
            return (self.current,)
        return (self.current, self.previous)

    def __repr__(self) -> str:
        """Return a text without the secrets, so that logs do not contain them."""
        return "Secrets(...)"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventEndpoint:
    """An address that receives events of certain types at certain centers.

    `centers` is None for all centers. An endpoint that responds 410 is disabled at `disabled_at`.
    Endpoints that are disabled or removed do not receive events. `types` may contain types that a
    newer release stored and this release does not know.
    """

    endpoint_id: EndpointId
    url: str
    types: tuple[str, ...]
    centers: frozenset[CenterId] | None
    secrets: Secrets
    created_at: datetime
    disabled_at: datetime | None = None
    removed_at: datetime | None = None

    @property
    def is_active(self) -> bool:
        """Whether the endpoint receives events."""
        return self.disabled_at is None and self.removed_at is None

    def takes(self, event: Event) -> bool:
        """Return whether the endpoint receives this event."""
        is_its_center = self.centers is None or event.center_id in self.centers
        return self.is_active and event.type in self.types and is_its_center


class DeliveryStatus(StrEnum):
    """The states of a delivery."""

    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"


class DueDelivery(NamedTuple):
    """A leased delivery, and the end of its lease."""

    event_id: EventId
    endpoint_id: EndpointId
    due_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EventDelivery:
    """The delivery of one event to one endpoint.

    A delivery is stored in the same commit as its event, or when the event is replayed.

    `due_at` is the time of the next attempt or the end of a lease. It is None if there will be no
    further attempt. `attempts` counts the attempts since the delivery was stored or last replayed.
    `last_result` is an HTTP status or a kind of failure, for operators.
    """

    event: Event
    endpoint_id: EndpointId
    due_at: datetime | None
    attempts: int = 0
    attempted_at: datetime | None = None
    last_result: str | None = None
    status: DeliveryStatus = DeliveryStatus.PENDING

    def delivered(self, result: str, now: datetime) -> EventDelivery:
        """Return a copy of this delivery that records that the endpoint accepted the event."""
        return self._attempted(result, now, due_at=None, status=DeliveryStatus.DELIVERED)

    def failed_for_good(self, result: str, now: datetime) -> EventDelivery:
        """Return a copy of this delivery that records a last attempt without success.

        There is no further attempt unless the event is replayed.
        """
        return self._attempted(result, now, due_at=None, status=DeliveryStatus.FAILED)

    def refused(self, result: str, now: datetime) -> EventDelivery:
        """Return a copy of this delivery that records an attempt without success.

        If it was the tenth attempt, the copy has failed. If not, the next attempt is scheduled.
        """
        if self.attempts >= len(WAITS):
            return self.failed_for_good(result, now)
        # The jitter is computed from the ids, so that the same history always gives the same times.
        jitter = Random(f"{self.event.event_id}/{self.endpoint_id}/{self.attempts}")  # noqa: S311 - it need not be secret
        wait = WAITS[self.attempts] * jitter.uniform(1 - JITTER, 1 + JITTER)
        return self._attempted(result, now, due_at=now + wait, status=DeliveryStatus.PENDING)

    def replayed(self, now: datetime) -> EventDelivery:
        """Return a copy of this delivery that is due at once, with ten new attempts."""
        return replace(self, due_at=now, attempts=0, status=DeliveryStatus.PENDING)

    def _attempted(
        self, result: str, now: datetime, *, due_at: datetime | None, status: DeliveryStatus
    ) -> EventDelivery:
        return replace(
            self,
            due_at=due_at,
            attempts=self.attempts + 1,
            attempted_at=now,
            last_result=result,
            status=status,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryCounts:
    """How many events an endpoint has not accepted.

    `pending` counts the deliveries that will be attempted again, and `failed` counts the deliveries
    that will not. `pending_since` is the time of the oldest event with a pending delivery.
    """

    pending: int = 0
    pending_since: datetime | None = None
    failed: int = 0


def parse_endpoint_url(value: str, *, may_be_http: bool) -> str:
    """Check the address of an endpoint that an operator typed, and return it unchanged.

    The address must be https, or may be http if `may_be_http` is set. It must not contain user
    information or a fragment. Whether the host is public is checked at each connection. Raises
    InvalidField.
    """
    schemes = ("https", "http") if may_be_http else ("https",)
    if redirect_origin(value) is None or urlsplit(value).scheme not in schemes or "#" in value:
        expected = "an https address" if not may_be_http else "an https or http address"
        raise InvalidField("url", f"{expected} in ASCII, without user name, password and fragment")
    return value


def parse_event_types(values: Iterable[str]) -> tuple[EventType, ...]:
    """Return the event types with these names, without duplicates. Raises InvalidField."""
    types = dict.fromkeys(values)
    if not types.keys() <= set(ENDPOINT_TYPES):
        raise InvalidField("type", f"one of {', '.join(ENDPOINT_TYPES)}")
    return tuple(map(EventType, types))


class EventEndpoints(Protocol):
    """Repository of endpoints."""

    def add(self, endpoint: EventEndpoint) -> None:
        """Store a new endpoint.

        Raises AlreadyStored if an endpoint that is not removed has the same URL.
        """
        ...

    def get(self, endpoint_id: EndpointId) -> EventEndpoint | None:
        """Return the endpoint, removed or not, or None if there is no such endpoint.

        In a write unit, this call locks the endpoint.
        """
        ...

    def all(self) -> Sequence[EventEndpoint]:
        """Return the endpoints that are not removed and can be decoded, oldest first."""
        ...

    def update(self, endpoint: EventEndpoint) -> None:
        """Replace a stored endpoint."""
        ...


class EventDeliveries(Protocol):
    """Repository of deliveries, both open and done."""

    def add(self, delivery: EventDelivery) -> None:
        """Store a new delivery.

        Raises AlreadyStored if the event already has a delivery to this endpoint.
        """
        ...

    def get(self, event_id: EventId, endpoint_id: EndpointId) -> EventDelivery | None:
        """Return the delivery of an event to an endpoint, or None if there is no such delivery.

        In a write unit, this call locks the delivery.
        """
        ...

    def of(self, event_id: EventId) -> Sequence[EventDelivery]:
        """Return the deliveries of an event. In a write unit, this call locks them."""
        ...

    def events_since(self, since: datetime) -> Sequence[EventId]:
        """Return the ids of the events that occurred at `since` or later and have a delivery.

        The oldest event comes first.
        """
        ...

    def about_guest(self, guest_id: GuestId) -> Sequence[EventDelivery]:
        """Return the deliveries of events about a guest, oldest first.

        This is slow, because every delivery is read.
        """
        ...

    def latest(self, *, limit: int, only_failed: bool) -> Sequence[EventDelivery]:
        """Return at most `limit` deliveries, those of the newest events first.

        With `only_failed`, only failed deliveries are returned. Deliveries that cannot be decoded
        are left out.
        """
        ...

    def counts(self) -> Mapping[EndpointId, DeliveryCounts]:
        """Return how many events each endpoint has not accepted.

        Endpoints that have accepted all their events are left out.
        """
        ...

    def last_successes(self) -> Mapping[EndpointId, datetime]:
        """Return when each endpoint last accepted an event.

        This is slow, because every delivery is read.
        """
        ...

    def of_session(self, token_id: TokenId, *, since: datetime) -> Sequence[EventDelivery]:
        """Return the deliveries of a session's events from the time `since` on, oldest first.

        Deliveries that cannot be decoded are left out. The deliveries are not locked.
        """
        ...

    def of_account(self, account_id: AccountId) -> Sequence[EventDelivery]:
        """Return the deliveries of events about a card on file, oldest first.

        Deliveries that cannot be decoded are left out.
        """
        ...

    def update(self, delivery: EventDelivery) -> None:
        """Replace a stored delivery."""
        ...

    def count_due(self, now: datetime) -> Waiting:
        """Count the deliveries that repeated calls of `take_due` could lease now."""
        ...

    def is_any_due(self, now: datetime, *, except_to: Collection[EndpointId] = ()) -> bool:
        """Return whether `take_due` would find a delivery; changes nothing."""
        ...

    def take_due(
        self, now: datetime, *, until: datetime, except_to: Collection[EndpointId] = ()
    ) -> DueDelivery | None:
        """Lease the delivery that has been due for the longest time, and return it.

        Return None if no delivery is due. A delivery is due from `due_at` on. If `due_at` is later
        than what `latest_due` returns for a wait of LONGEST_WAIT, a wrong clock has set it, and the
        delivery is due at once. Deliveries of `account.expiring` come last, because thousands of
        them are stored at once. Deliveries to the endpoints in `except_to` are left out.

        The lease ends at `until`. If the delivery was not updated by then, it is due once more,
        because the process that leased it may have died. The event itself is not read, so an event
        that cannot be decoded does not block the others.
        """
        ...

    def unmark_evidence(self, guest_id: GuestId) -> None:
        """Allow `forget` to delete deliveries that are kept for a guest's agreements.

        May be called more than once.
        """
        ...

    def forget(self, *, before: datetime) -> int:
        """Delete deliveries of old events, a limited number per call; return how many were deleted.

        A delivery is old if its event occurred earlier than `before`. A delivery that will be
        attempted again is kept. The deliveries of a session's events are kept while the session's
        agreement is stored, unless the guest was erased.
        """
        ...
