"""Guests' agreements: each allows charges to one card for one booking."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Protocol

from domain.agreements.reservation_text import ShownText
from domain.agreements.terms import AgreementTerms
from domain.consents.given_consent import GivenConsent
from domain.identifiers import AccountId, AgreementId, CenterId, GuestId, TokenId
from domain.pagination import Page, PageRequest

MAX_OPEN_AGREEMENTS: Final = 20
"""The most open agreements of one card."""

EVIDENCE_KEPT_FOR: Final = timedelta(days=600)
"""How long an agreement is kept as evidence after its `kept_until`. A dispute may take 540 days."""


class EndOfAgreement(StrEnum):
    """Why an agreement ended, apart from the end of the booking."""

    FULFILLED = "fulfilled"
    CANCELLED = "cancelled"
    MOVED = "moved"
    NO_SHOW_CHARGED = "no_show_charged"
    REPLACED = "replaced"
    """The guest agreed to another agreement in its place. The other reasons come from the shop."""


class ChargeIndicator(StrEnum):
    """What a charge under an agreement says to the bank about its reason."""

    UNSCHEDULED = "unscheduled"
    NO_SHOW = "no_show"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """What a guest agreed to for one booking, at `agreed_at`, with the text as it was shown.

    The terms never change. `token_id` is the session in which the guest agreed. `kept_until` is the
    time that the text names: the card is removed after it, unless something else keeps the card.
    `due_at` is when the worker ends the agreement; None once it has ended. `ended_at` is when this
    service ended it or learned that it had ended. `reason` is None if the booking was over and the
    shop has stated nothing else. `stated_at` is when it ended, as the shop states.
    """

    agreement_id: AgreementId
    account_id: AccountId
    guest_id: GuestId
    center_id: CenterId
    token_id: TokenId
    terms: AgreementTerms
    shown: ShownText
    agreed_at: datetime
    kept_until: datetime
    due_at: datetime | None
    ended_at: datetime | None = None
    reason: EndOfAgreement | None = None
    stated_at: datetime | None = None

    def is_open(self, now: datetime) -> bool:
        """Return whether the booking is not over, and the agreement has not ended earlier."""
        return self.ended_at is None and now < self.terms.ends_at

    def allows_charges(self, now: datetime) -> bool:
        """Return whether the card may be charged under the agreement.

        A no-show is charged after the booking, so charges are allowed until `kept_until`, unless
        the shop ended the agreement or the guest replaced it.
        """
        return self.reason is None and now < self.kept_until

    @property
    def grace(self) -> timedelta:
        """How long the card is kept after the end, because a no-show is charged after the booking."""
        return self.kept_until - self.terms.ends_at

    @property
    def keeps_card_until(self) -> datetime:
        """The time after which this agreement no longer keeps the card."""
        if self.ended_at is None:
            return self.kept_until
        return min(self.kept_until, self.ended_at + self.grace)

    def ended(
        self, reason: EndOfAgreement | None, now: datetime, *, stated_at: datetime | None = None
    ) -> Agreement:
        """Return the agreement as ended. A `reason` of None means that the booking is over."""
        # If the clock is behind, the card must still be kept for the whole grace.
        ended_at = max(now, self.agreed_at)
        return replace(self, due_at=None, ended_at=ended_at, reason=reason, stated_at=stated_at)


def count_open(
    agreements: Iterable[Agreement], now: datetime, *, beside: Collection[AgreementId | None]
) -> int:
    """Return how many agreements are open, without those in `beside`, which are to be replaced."""
    return sum(each.is_open(now) for each in agreements if each.agreement_id not in beside)


def running_among(agreements: Iterable[Agreement], now: datetime) -> Sequence[Agreement]:
    """Return the agreements under which a card may be charged now."""
    return [each for each in agreements if each.allows_charges(now)]


def last_kept_until(agreements: Iterable[Agreement]) -> datetime | None:
    """Return until when the agreements keep their card; None without agreements."""
    return max((each.keeps_card_until for each in agreements), default=None)


def general_among(
    consents: Iterable[GivenConsent], agreements: Iterable[Agreement]
) -> Sequence[GivenConsent]:
    """Return those consents of a card that allow more than charges for a booking.

    If the guest did not tick the box, the text of the agreement is the consent too.
    """
    of_bookings = {each.token_id: each.shown.version for each in agreements}
    return [each for each in consents if each.version != of_bookings.get(each.token_id)]


class Agreements(Protocol):
    """The agreements of cards. To change an agreement, a unit must lock the guest's cards."""

    def add(self, agreement: Agreement) -> None:
        """Store a new agreement."""
        ...

    def get(self, agreement_id: AgreementId) -> Agreement | None:
        """Return the agreement, or None. Locks nothing."""
        ...

    def update(self, agreement: Agreement) -> None:
        """Store an agreement that exists."""
        ...

    def of_account(self, account_id: AccountId) -> Sequence[Agreement]:
        """Return all agreements of a card, oldest first."""
        ...

    def given_with(self, account_id: AccountId) -> Sequence[Agreement]:
        """Return all agreements of a card, and those that have moved from it, oldest first.

        An agreement that moved is found by the session in which the card was typed or used.
        """
        ...

    def page(self, account_id: AccountId, request: PageRequest) -> Page[Agreement]:
        """Return a page of a card's agreements, oldest first."""
        ...

    def move(self, of: AccountId, to: AccountId) -> None:
        """Give all agreements of an account to another account of the same card."""
        ...

    def give(self, goes: GuestId, stays: GuestId) -> None:
        """Give a guest's agreements to another guest, with the references that guest lacks."""
        ...

    def due(self, now: datetime, *, at_most: int, skip: int = 0) -> Sequence[Agreement | None]:
        """Return agreements that are due to end, earliest first, after the first `skip` of them.

        None stands for an agreement that cannot be decoded.
        """
        ...

    def session_of(self, guest_id: GuestId, center_id: CenterId, reference: str) -> TokenId | None:
        """Return the session of a booking, or None. A write unit locks the reference."""
        ...

    def name_session(
        self, guest_id: GuestId, center_id: CenterId, reference: str, token_id: TokenId
    ) -> None:
        """Note the session of a booking. It replaces the former one."""
        ...

    def remove_references(self, guest_id: GuestId) -> None:
        """Remove the references of a guest's bookings. May be called again."""
        ...

    def blank_unreadable(self, guest_id: GuestId, now: datetime) -> None:
        """End a guest's agreements that cannot be decoded, and clear their references.

        The rest of the terms stays. May be called again.
        """
        ...

    def of_guest(self, guest_id: GuestId) -> Sequence[Agreement]:
        """Return a guest's agreements that can be decoded, oldest first."""
        ...

    def forget(self, *, before: datetime) -> int:
        """Delete a limited number of ended agreements; return the number.

        Only agreements whose `kept_until` is before the time are deleted. If the text of an
        agreement is also the consent of its session, that consent is deleted too.
        """
        ...
