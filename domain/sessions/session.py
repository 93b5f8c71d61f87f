"""Card-addition sessions, their evidence and idempotency keys."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import ceil
from typing import Any, Final, NamedTuple, Protocol

from domain.agreements.click import (
    MAX_CLICKS,
    AgreementClick,
    BrowserOfClick,
    ShownAgreement,
    with_click,
)
from domain.agreements.terms import AgreementTerms
from domain.centers.payment_configuration import PaymentConfiguration
from domain.events.event import CardSummary
from domain.identifiers import (
    SHOWN_OF_TOKENS,
    AccountId,
    CallerName,
    CenterId,
    GuestId,
    LinkKey,
    MerchantAccount,
    ProviderName,
    PspAccount,
    TokenId,
)
from domain.outside import Trace
from domain.pagination import Page, PageRequest
from domain.psps.evidence import Evidence
from domain.psps.hosted_page import (
    Authentication,
    HostedPageRequest,
    PageAttempt,
    Prefill,
    PspGuest,
)
from domain.retries import WorkAtPsps
from domain.sessions.end import SessionStatus
from domain.sessions.polling import PolledSession, Progress
from domain.sessions.request import RequestedSession
from domain.sessions.result import CountedBy, CountedResult

MAX_ATTEMPTS: Final = 20
"""The number of pages that a session may have on each day of its link. The number is limited
because each page may prolong the session, and every session must end.
"""

DAY: Final = timedelta(days=1)
TIME_TO_TYPE: Final = timedelta(hours=1)
"""A new page may contain the guest's details only if the link is not old for at least this time."""

TELLS_OF_THE_GUEST: Final[dict[str, Any]] = {
    "billing_info": None,
    "reference": None,
    "agreement": None,
    "clicks": None,
    "browsers": None,
    "replaces": None,
}
"""The fields that an erasure clears at once, with their cleared values. Any: each field has its own
type.
"""
NEEDED_UNTIL_OVER: Final[dict[str, Any]] = {"redirect_uri": "", "link_key": None}
"""The fields that an erasure clears once the session is over, apart from `attempt`, whose consent
stays.
"""


def half_of_life(created_at: datetime, expires_at: datetime) -> datetime:
    """Return when half of a link's life is over. `expires_at` must be that of an unopened link."""
    return created_at + (expires_at - created_at) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """The card on file that a session's card replaces, as its guest wants it.

    `further` are the terms of the bookings that the card guarantees, beside those of the session's
    `agreement`. The guest agrees to all of them again.
    """

    account_id: AccountId
    further: tuple[AgreementTerms, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFilter:
    """The sessions to look for, among all guests and centers. None means no condition."""

    guest_id: GuestId | None = None
    center_id: CenterId | None = None
    status: SessionStatus | None = None
    created_since: datetime | None = None


class DueSession(NamedTuple):
    """A session that is due, and the merchant account to ask about it."""

    token_id: TokenId
    psp_account: PspAccount


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSession(PolledSession, RequestedSession):
    """One addition of a card: the request, the polled page, and the end.

    `configuration` is the center's payment configuration at the time of add-card. `shows_guest` is
    whether the page may show the guest's name and e-mail address, because the caller may read them.
    `link_key` opens the link. It is None in sessions of earlier releases, whose token opens the
    link. `clicks` are the clicks with which the guest agreed to the terms of `agreement`. `card` is
    the card that the session stored or renewed, as the PSP reported it at that time; None also if
    an earlier release stored the card. `browsers` are the browsers in which the guest clicked, if
    the operator has chosen to record browsers. `trace` is the trace of the add-card request.
    `unopened_at` is when `NoticeUnopened` checks whether the link was opened; None after that.
    `replaces` is the card that the guest replaces on the guest's own page.
    """

    token_id: TokenId
    caller: CallerName
    configuration: PaymentConfiguration
    created_at: datetime
    shows_guest: bool = False
    link_key: LinkKey | None = field(default=None, repr=False)
    clicks: tuple[AgreementClick, ...] | None = None
    card: CardSummary | None = None
    browsers: tuple[BrowserOfClick, ...] | None = None
    trace: Trace | None = None
    unopened_at: datetime | None = None
    replaces: Replacement | None = None

    @property
    def bookings(self) -> Sequence[AgreementTerms]:
        """The terms of all bookings that the session's card is to guarantee."""
        further = self.replaces.further if self.replaces else ()
        return (self.agreement, *further) if self.agreement else ()

    def clicked_in(self, browser: BrowserOfClick) -> CardSession:
        """Note the browser of a click. The first click and the latest ones are kept."""
        kept = self.browsers or ()
        latest = kept[1:][-MAX_CLICKS + 2 :]
        return replace(self, browsers=(*kept[:1], *latest, browser))

    def agreed_to(
        self, shown: ShownAgreement, *, keeps: bool, browser: str, now: datetime
    ) -> CardSession:
        """Note a click on the page that shows an agreement. `keeps` says whether the box is ticked."""
        attempt = self.current_attempt
        click = shown.clicked(
            attempt=attempt.request.attempt,
            browser=attempt.hash_of(browser),
            keeps=keeps,
            now=now,
        )
        return replace(self, clicks=with_click(self.clicks or (), click))

    def completed_with(
        self, account_id: AccountId, click: AgreementClick, now: datetime
    ) -> CardSession:
        """End the session, because the guest agreed to use a card on file.

        The returned session has no page. If this session has a page, the caller must keep that page
        as an earlier page, so that the PSP is still asked about it.
        """
        used = replace(
            self,
            attempt=None,
            progress=Progress.OPENED,
            opened_at=self.opened_at or now,
            clicks=with_click(self.clicks or (), click),
        )
        return used.completed(account_id, now)

    @property
    def prefix(self) -> str:
        """The beginning of the token, which is enough to find the session."""
        return self.token_id[:SHOWN_OF_TOKENS]

    def psp_guest(self, request: HostedPageRequest) -> PspGuest:
        """Return the guest at the PSP for whom the page of a request is made."""
        psp, account = self.configuration.provider, request.merchant_account
        return PspGuest(psp, account, self.guest_id, self.center_id, request.prefill)

    @property
    def required_authentication(self) -> Authentication:
        """Whether the bank must authenticate the guest, as the center or the client requires."""
        required = Authentication.REQUIRED
        is_required = required in (self.configuration.authentication, self.authentication)
        return required if is_required else Authentication.AUTOMATIC

    @property
    def old_at(self) -> datetime:
        """When the link becomes old: a person who opens it later may not be the guest."""
        return self.created_at + DAY

    def is_old(self, now: datetime) -> bool:
        """Return whether the session was started more than 24 hours ago."""
        return now > self.old_at

    def is_page_past_end(self, now: datetime) -> bool:
        """Return whether the page is past its end, or shows the guest's details on an old link.

        The PSP may create the page of an early attempt late, after an outage.
        """
        attempt = self.attempt
        shows_details = attempt is not None and attempt.request.prefill is not Prefill.NOTHING
        # `super()` does not work in a dataclass with slots.
        return PolledSession.is_page_past_end(self, now) or (shows_details and self.is_old(now))

    def may_have_details(self, now: datetime) -> bool:
        """Return whether a page that is made now may have the guest's details.

        A person who opens an old link may not be the guest. So a page with details must end before
        the link is old.
        """
        return not self.is_old(now + TIME_TO_TYPE)

    def needs_click(self, now: datetime) -> bool:
        """Return whether the guest must confirm by a click that the link is to be opened.

        Messengers open the links in messages to make previews. Links that live for days are often
        sent by messenger, so an old link alone opens no page.
        """
        return self.is_old(now) and self.has_link(now)

    def may_have_page(self, number: int, now: datetime) -> bool:
        """Return whether the session may have this number of pages at this time.

        The number is 20 for each started day of the link's life, so that one day cannot use up the
        pages of the next.
        """
        lifetime = self.configuration.link_lifetime(self.link_minutes)
        days = ceil(min(now - self.created_at, lifetime) / DAY)
        return number <= MAX_ATTEMPTS * max(days, 1)

    def without_personal_data(self) -> CardSession:
        """Return the session without the guest's data that its end does not need.

        Until the end, the PSP finds the page by the parameters with which it was made.
        """
        blank = replace(self, **TELLS_OF_THE_GUEST)
        if not self.is_over:
            return blank
        attempt = self.attempt and self.attempt.without_personal_data()
        return replace(blank, attempt=attempt, **NEEDED_UNTIL_OVER)

    def without_references(self) -> CardSession:
        """Return an ended session without the references to the guest and the page at the PSP."""
        attempt = self.attempt
        if attempt is not None:
            request = replace(attempt.request, guest_reference=None, redirect_origin="")
            attempt = PageAttempt(request=request, over=True)
        return replace(self, attempt=attempt)


IDEMPOTENCY_KEYS_LAST: Final = timedelta(hours=24)


class CardSessions(WorkAtPsps, Protocol):
    """Card-addition sessions."""

    def add(self, session: CardSession) -> None:
        """Store a new session."""
        ...

    def get(self, token_id: TokenId) -> CardSession | None:
        """Return the session, or None. A write unit locks it."""
        ...

    def with_link_key(self, link_key: LinkKey) -> CardSession | None:
        """Return the session whose link has this key, or None. Locks nothing."""
        ...

    def is_any_without_key(self, *, since: datetime, before: datetime) -> bool:
        """Return whether an earlier release started a session between two times. Locks nothing."""
        ...

    def with_page(
        self, provider: ProviderName, merchant_account: MerchantAccount, page_reference: str
    ) -> CardSession | None:
        """Return the session with this page at the PSP, or None.

        Earlier pages of a session count too.

        A write unit locks the session.
        """
        ...

    def update(self, session: CardSession) -> None:
        """Store a session that exists."""
        ...

    def make_pages_due(
        self, guest_id: GuestId, now: datetime, *, except_for: TokenId | None = None
    ) -> None:
        """Make the guest's open sessions with an open page due at `now`, except for one session.

        Waits for units that have locked one of the sessions, so the caller must hold no lock yet.
        Locks the sessions in the order of their ids.
        """
        ...

    def open_of(self, caller: CallerName) -> Sequence[TokenId]:
        """Return a caller's open sessions that are not cancelled. Locks nothing."""
        ...

    def without_agreement(self, *, since: datetime) -> Sequence[TokenId]:
        """Return the sessions about a booking that stored a card without an agreement.

        They ended after `since`, and come oldest first. Locks nothing.
        """
        ...

    def half_over(self, now: datetime, *, at_most: int, skip: int) -> Sequence[CardSession | None]:
        """Return sessions that have not ended, with an `unopened_at` up to `now`, oldest first.

        A session of an earlier release has such a time too, long ago. The first `skip` are left
        out. None stands for a session that cannot be decoded. Locks nothing.
        """
        ...

    def due_at_psp(self, psp_account: PspAccount) -> Sequence[TokenId]:
        """Return a merchant account's sessions whose outcome the PSP is still asked for.

        Locks nothing.
        """
        ...

    def forget(self, *, before: datetime) -> int:
        """Delete a limited number of sessions that ended before a time; return the number.

        Their evidence, earlier pages and refused cards are deleted too. A session stays if it is
        due, if its account has no consent of its own, or while its agreement is stored.
        """
        ...

    def forget_browsers(self, *, before: datetime) -> int:
        """Delete the `browsers` of a limited number of sessions that ended before a time.

        Returns the number of sessions.
        """
        ...

    def of_guest(self, guest_id: GuestId) -> Sequence[CardSession]:
        """Return every readable session of a guest. A write unit locks them."""
        ...

    def give(self, goes: GuestId, stays: GuestId) -> None:
        """Give every session of a guest to another. Attempts keep the guest they were made for."""
        ...

    def blank_unreadable(self, guest_id: GuestId, now: datetime) -> bool:
        """Delete the guest's data in those sessions of the guest that cannot be decoded.

        An open session keeps the data by which its page is found until its `expires_at`, for the
        release that can decode it; then it ends. Consents stay. Return True if no such session is
        open.
        """
        ...

    def page(
        self,
        guest_id: GuestId,
        centers: frozenset[CenterId] | None,
        request: PageRequest,
        *,
        status: SessionStatus | None = None,
        reference: str | None = None,
    ) -> Page[CardSession]:
        """Return a page of a guest's sessions, newest first. None means no condition."""
        ...

    def between(self, first: str, last: str, *, limit: int) -> Sequence[CardSession]:
        """Return the sessions whose tokens lie between two UUIDs, in the order of the tokens.

        Locks nothing.
        """
        ...

    def search(self, wanted: SessionFilter, *, limit: int) -> Sequence[CardSession]:
        """Return sessions of any guest, newest first, without those that cannot be decoded.

        Reads every session since `created_since` unless `wanted` names a guest or a center.
        """
        ...

    def count(
        self, by: CountedBy | None, *, since: datetime, overdue_before: datetime
    ) -> Sequence[CountedResult]:
        """Count the sessions created since a time, by group, with the most frequent result first.

        An open session that was due before `overdue_before` is overdue. A group is a center's id,
        or PSP and merchant account such as `fake/default`, or "" for all sessions. Reads each of
        these sessions.
        """
        ...

    def take_due(
        self, now: datetime, *, until: datetime, except_at: Collection[PspAccount] = ()
    ) -> DueSession | None:
        """Lease a session that is due; return None if no session is due.

        A session is due from `due_at` on. If that is later than `latest_due`, it is due earlier:
        after MAX_BACKOFF while its PSP does not respond, after POLL_EVERY if its page is open or
        its `expires_at` has passed, otherwise at its `expires_at`.

        Each merchant account has one queue for each of these three cases. The queues take turns, in
        an order that follows from `now`, and each queue begins with the session that has been due
        for the longest time. So a backlog at one account does not delay the others. Sessions of the
        merchant accounts in `except_at` are left out, and however many they are, they do not slow
        down the call.

        The lease ends at `until`. The session is then due again, in case the process that leased it
        has died. A row that cannot be decoded is leased like any other, so that it does not block
        the rest.
        """
        ...


class EvidenceLog(Protocol):
    """Reports of PSPs about sessions, by webhook or return address."""

    def add(self, token_id: TokenId, evidence: Evidence, *, at_most: int) -> None:
        """Store a piece of evidence once, however often it arrives.

        If the session already has `at_most` pieces of the same origin, nothing is stored.
        """
        ...

    def of(self, token_id: TokenId) -> Sequence[Evidence]:
        """Return the evidence about a session, oldest first."""
        ...

    def remove(self, token_id: TokenId) -> None:
        """Delete the evidence about a session."""
        ...


class IdempotencyKeys(Protocol):
    """The session that each caller's Idempotency-Key refers to."""

    def get(self, caller: CallerName, key: str, *, since: datetime) -> TokenId | None:
        """Return the session for which the key was used after `since`, or None."""
        ...

    def claim(
        self, caller: CallerName, key: str, token_id: TokenId, *, now: datetime, since: datetime
    ) -> TokenId:
        """Use the key for `token_id`, unless it was used after `since`.

        Return the session that the key now refers to. If several processes claim a key at once, one
        succeeds.
        """
        ...

    def forget(self, *, before: datetime) -> int:
        """Delete a limited number of keys that were used before a time; return the number."""
        ...
