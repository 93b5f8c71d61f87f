"""The evidence about a card on file: what this service recorded, and what the shop stated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol

from domain.agreements.click import BrowserOfClick
from domain.agreements.terms import AgreementTerms
from domain.errors import EvidenceKeyMissing
from domain.events.event import CardSummary
from domain.identifiers import AccountId, AgreementId, CenterId, EventId, GuestId

ABOUT_THE_DOCUMENT: Final = (
    "This document says what the service saw that put the card on file. The service charges no "
    "card. It did not see whether a guest came, cancelled or was charged, or what was delivered: "
    "everything under stated_by_the_shop is the shop's own statement."
)


class ClockSource(StrEnum):
    """The clock by which a time was measured."""

    SERVICE = "service"
    PSP = "psp"


class EndCause(StrEnum):
    """The cause of the end of an agreement."""

    BOOKING_OVER = "booking_over"
    REPLACED = "replaced"
    SHOP = "shop"
    ERASURE = "erasure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A time, and the clock by which it was measured.

    `clock` is null if the clock is not known. This is the case if the session to which the time
    belongs is no longer stored, or if the card was imported and the time comes from the imported
    file. It can also be the case for the time of a consent after the guest was erased.
    """

    at: datetime
    clock: ClockSource | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CardHolder:
    """The guest, with the name and email address that are on file now.

    Both are null after an erasure, or if the caller may not read the guest.
    """

    guest_id: GuestId
    name: str | None
    email: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CardNow:
    """The card on file, as this service now stores it.

    `details` are the details that the PSP last reported, and `reported` is when it did so.
    `withdrawn` is when the guest last withdrew the consent to charges other than those for
    bookings.
    """

    account_id: AccountId
    center_id: CenterId
    center_name: str | None
    provider: str
    merchant_account: str
    details: CardSummary
    reported: Moment
    stored: Moment
    removed: Moment | None
    withdrawn: Moment | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A text as the guest read it, and its language (RFC 5646).

    `page` is the address of the page, or the name of the PSP's page. `button` is the label of the
    button that the guest clicked, and `box` is the label of the box that the guest ticked. A label
    is null if there was no such button or box, or if the label is not known.
    """

    version: str
    language: str | None
    text: str | None
    page: str | None
    button: str | None
    box: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedEnd:
    """How and when an agreement ended according to the shop.

    `at` is null if the shop gave no time.
    """

    reason: str
    at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAgreement:
    """An agreement to charges for one booking.

    `session` is the beginning of the id of the session in which the guest agreed. `booking`
    contains the terms as the shop sent them; the guest read them in the text. `ended` is when this
    service ended the agreement or learned of its end, and `ended_by` is the cause of its end.
    """

    agreement_id: AgreementId
    session: str
    booking: AgreementTerms
    shown: Shown
    agreed: Moment
    kept_until: datetime
    ended: Moment | None
    ended_by: EndCause | None
    stated_by_the_shop: StatedEnd | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedConsent:
    """A consent to keep the card for later charges, given in a session."""

    session: str
    shown: Shown
    agreed: Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStep:
    """A step of a session. `at` is its time by the clock of this service."""

    at: datetime
    step: str
    details: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSession:
    """A session in which the guest agreed.

    `card_then` contains the details of the card that the guest typed in. It is null if the guest
    used a card that was already on file, or if an earlier release stored the card. `browsers` are
    the browsers in which the guest clicked, if the operator records browsers.
    """

    session: str
    status: str
    card_then: CardSummary | None
    steps: Sequence[RecordedStep]
    browsers: Sequence[BrowserOfClick]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvent:
    """An event about the card, as it was sent to one of the shop's endpoints, `to`.

    `delivery` is `delivered` if the endpoint accepted the event. `attempted_at` is the time of the
    last attempt.
    """

    event_id: EventId
    type: str
    occurred_at: datetime
    to: str | None
    delivery: str
    attempted_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DisputeEvidence:
    """Everything that this service recorded about a card on file.

    `service` is the address of this service.
    """

    about: str = ABOUT_THE_DOCUMENT
    service: str
    made: Moment
    guest: CardHolder
    card: CardNow
    agreements: Sequence[RecordedAgreement]
    consents: Sequence[RecordedConsent]
    sessions: Sequence[RecordedSession]
    events: Sequence[RecordedEvent]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedEvidence:
    """Evidence, and a compact JWS (RFC 7515) whose payload is the evidence in JSON.

    `key_id` is the id of the key that made the signature.
    """

    document: DisputeEvidence
    jws: str
    key_id: str


class EvidenceSigner(Protocol):
    """Signs evidence. The private keys are never stored in the database."""

    def sign(self, document: DisputeEvidence) -> SignedEvidence:
        """Sign the evidence with the newest key.

        Raises EvidenceKeyMissing if there is no key, because unsigned evidence proves nothing.
        """
        ...

    def public_keys(self) -> Sequence[Mapping[str, str]]:
        """Return the public keys as JSON Web Keys (RFC 7517), including former keys."""
        ...


class NoEvidenceKey(EvidenceSigner):
    """The signer of an installation that has no key."""

    def sign(self, document: DisputeEvidence) -> SignedEvidence:  # noqa: ARG002 - as the port has it
        """Raise EvidenceKeyMissing."""
        raise EvidenceKeyMissing

    def public_keys(self) -> Sequence[Mapping[str, str]]:
        """Return an empty sequence."""
        return ()
