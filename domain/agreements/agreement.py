"""Agreements: in an agreement, a guest allows charges to one card for one booking."""

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
"""The maximum number of open agreements that a card may have."""

EVIDENCE_KEPT_FOR: Final = timedelta(days=600)
"""How long an agreement is stored as evidence, counted from its `kept_until`.

A dispute may take up to 540 days, and the evidence must outlast it.
"""


class EndOfAgreement(StrEnum):
    """Why an agreement ended before its booking was over."""

    FULFILLED = "fulfilled"
    CANCELLED = "cancelled"
    MOVED = "moved"
    NO_SHOW_CHARGED = "no_show_charged"
    REPLACED = "replaced"
    """The guest made another agreement in place of this agreement. The shop states all other
    reasons.
    """


class ChargeIndicator(StrEnum):
    """The reason for a charge under an agreement, which the bank receives with the charge."""

    UNSCHEDULED = "unscheduled"
    NO_SHOW = "no_show"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """A guest's agreement about one booking, with the text that the guest read (`shown`).

    The terms never change. The guest agreed at `agreed_at` in the session `token_id`. The text
    tells the guest that the card is kept until `kept_until`. After that, the card is removed unless
    there is another reason to keep it. `due_at` is when the worker will end the agreement; it is
    None once the agreement has ended.

    `ended_at` is when this service ended the agreement, or learned that it had ended. `stated_at`
    is when the agreement ended according to the shop. `reason` is the reason that the shop stated,
    or REPLACED if the guest replaced the agreement. In all other cases, `reason` is None: the
    agreement has not ended, its booking is over, or the guest was erased.
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
        """Return whether the agreement is open: it has not ended, and its booking is not over."""
        return self.ended_at is None and now < self.terms.ends_at

    def allows_charges(self, now: datetime) -> bool:
        """Return whether the card may be charged under the agreement.

        A no-show is charged after the booking. Charges are therefore allowed until `kept_until`,
        unless the shop ended the agreement or the guest replaced it.
        """
        return self.reason is None and now < self.kept_until

    @property
    def grace(self) -> timedelta:
        """How long the card is kept after the booking, so that the shop can charge a no-show."""
        return self.kept_until - self.terms.ends_at

    @property
    def keeps_card_until(self) -> datetime:
        """The time until which the card is kept on file for this agreement."""
        if self.ended_at is None:
            return self.kept_until
        return min(self.kept_until, self.ended_at + self.grace)

    def ended(
        self, reason: EndOfAgreement | None, now: datetime, *, stated_at: datetime | None = None
    ) -> Agreement:
        """Return a copy of this agreement that ended at `now`.

        `reason` is None if the agreement ends because its booking is over or the guest is erased.
        `stated_at` is when the agreement ended according to the shop.
        """
        # Even if the clock is behind, the card is kept for the whole grace period.
        ended_at = max(now, self.agreed_at)
        return replace(self, due_at=None, ended_at=ended_at, reason=reason, stated_at=stated_at)


def count_open(
    agreements: Iterable[Agreement], now: datetime, *, except_for: Collection[AgreementId | None]
) -> int:
    """Return the number of open agreements, without those whose ids are in `except_for`.

    The agreements in `except_for` are not counted because they are about to be replaced.
    """
    return sum(each.is_open(now) for each in agreements if each.agreement_id not in except_for)


def running_among(agreements: Iterable[Agreement], now: datetime) -> Sequence[Agreement]:
    """Return those of the `agreements` under which a card may be charged at the time `now`."""
    return [each for each in agreements if each.allows_charges(now)]


def last_kept_until(agreements: Iterable[Agreement]) -> datetime | None:
    """Return the latest time until which any of the agreements keeps its card on file.

    Return None if there are no agreements.
    """
    return max((each.keeps_card_until for each in agreements), default=None)


def general_among(
    consents: Iterable[GivenConsent], agreements: Iterable[Agreement]
) -> Sequence[GivenConsent]:
    """Return those of the `consents` that also allow charges unrelated to a booking.

    `consents` and `agreements` are about the same card. A page that asks for an agreement has a box
    for such charges. If the guest did not tick the box, the text of the agreement was stored as the
    consent. Such a consent is not returned.
    """
    of_bookings = {each.token_id: each.shown.version for each in agreements}
    return [each for each in consents if each.version != of_bookings.get(each.token_id)]


class Agreements(Protocol):
    """Repository of agreements.

    Before a unit changes an agreement, it must lock the guest's cards.
    """

    def add(self, agreement: Agreement) -> None:
        """Store a new agreement."""
        ...

    def get(self, agreement_id: AgreementId) -> Agreement | None:
        """Return the agreement, or None. The agreement is not locked."""
        ...

    def update(self, agreement: Agreement) -> None:
        """Replace a stored agreement."""
        ...

    def of_account(self, account_id: AccountId) -> Sequence[Agreement]:
        """Return all agreements that now belong to an account, oldest first."""
        ...

    def made_with(self, account_id: AccountId) -> Sequence[Agreement]:
        """Return the agreements that belong to an account or were moved from it, oldest first.

        An agreement that was moved no longer names the account. It is found because the session in
        which the guest agreed still names the account.
        """
        ...

    def page(self, account_id: AccountId, request: PageRequest) -> Page[Agreement]:
        """Return a page of a card's agreements, oldest first."""
        ...

    def move(self, of: AccountId, to: AccountId) -> None:
        """Move all agreements of an account to another account of the same card."""
        ...

    def reassign(self, merged: GuestId, remaining: GuestId) -> None:
        """Move all agreements of the guest `merged` to the guest `remaining`.

        The references of bookings are moved too. A reference that both guests have is not moved.
        """
        ...

    def due(self, now: datetime, *, at_most: int, skip: int = 0) -> Sequence[Agreement | None]:
        """Return at most `at_most` agreements that are due to end, earliest first.

        The first `skip` due agreements are left out. In the result, None stands for an agreement
        that cannot be decoded.
        """
        ...

    def session_of(self, guest_id: GuestId, center_id: CenterId, reference: str) -> TokenId | None:
        """Return the session recorded for a booking's reference, or None if no session is recorded.

        In a write unit, this call locks the reference until the unit ends.
        """
        ...

    def name_session(
        self, guest_id: GuestId, center_id: CenterId, reference: str, token_id: TokenId
    ) -> None:
        """Record the session for a booking's reference, in place of any recorded session."""
        ...

    def remove_references(self, guest_id: GuestId) -> None:
        """Delete all references of a guest's bookings, if any."""
        ...

    def blank_unreadable(self, guest_id: GuestId, now: datetime) -> None:
        """End a guest's agreements that cannot be decoded, and clear their `reference`.

        The other terms stay stored. May be called more than once.
        """
        ...

    def of_guest(self, guest_id: GuestId) -> Sequence[Agreement]:
        """Return a guest's agreements, oldest first, except those that cannot be decoded."""
        ...

    def forget(self, *, before: datetime) -> int:
        """Delete ended agreements, a limited number per call; return how many were deleted.

        Only agreements whose `kept_until` is earlier than `before` are deleted. If the text of an
        agreement is also stored as the consent of its session, that consent is deleted too.
        """
        ...
