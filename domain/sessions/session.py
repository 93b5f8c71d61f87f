"""Card-addition sessions, the evidence about them, and idempotency keys."""

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
    TOKEN_PREFIX_LENGTH,
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
"""The maximum number of pages of a session on each day of its link. The number is limited because
each page may prolong the session, and every session must end.
"""

DAY: Final = timedelta(days=1)
TIME_TO_TYPE: Final = timedelta(hours=1)
"""The time that a guest needs to type in a card. A page contains the guest's details only if it is
created at least this long before the link is 24 hours old.
"""

CLEARED_BY_ERASURE: Final[dict[str, Any]] = {
    "billing_info": None,
    "reference": None,
    "agreement": None,
    "clicks": None,
    "browsers": None,
    "replaces": None,
}
"""The fields that an erasure clears at once, with their cleared values. The type is Any because
each field has its own type.
"""
CLEARED_WHEN_OVER: Final[dict[str, Any]] = {"redirect_uri": "", "link_key": None}
"""The fields that an erasure clears once the session is over. `attempt` is cleared separately,
because its consent is kept.
"""


def half_of_lifetime(created_at: datetime, expires_at: datetime) -> datetime:
    """Return the time at which half of a link's lifetime is over.

    The result is right only if the link has not been opened. Opening the link creates a page, and
    the page may prolong `expires_at`.
    """
    return created_at + (expires_at - created_at) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """The card on file that the session's card will replace.

    `further` are the terms of the bookings that the old card guarantees, in addition to those of
    the session's `agreement`. The guest agrees again to all of them.
    """

    account_id: AccountId
    further: tuple[AgreementTerms, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFilter:
    """The conditions of a search for sessions. A field that is None is not a condition."""

    guest_id: GuestId | None = None
    center_id: CenterId | None = None
    status: SessionStatus | None = None
    created_since: datetime | None = None


class DueSession(NamedTuple):
    """A session that is due, and the merchant account whose PSP is to be asked about it."""

    token_id: TokenId
    psp_account: PspAccount


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSession(PolledSession, RequestedSession):
    """A session in which a guest adds a card.

    The base classes contain the content of the request, the page about which the PSP is polled, and
    the end of the session. This class adds the following fields.

    The request:

    - `configuration` is the center's payment configuration at the time of add-card.
    - `shows_guest` is whether the page may show the guest's name and email address, because the
      caller may read them.
    - `link_key` is the secret of the link. It is None in sessions from earlier releases, whose
      links contain the session's token instead.
    - `trace` is the trace of the add-card request.
    - `replaces` is the card that the guest replaces on the guest's own page, or None.

    The guest's steps:

    - `unopened_at` is when `NoticeUnopened` will check whether the link was opened. It is None
      after the check.
    - `clicks` are the clicks with which the guest agreed to the terms of `agreement`.
    - `browsers` are the browsers in which the guest clicked, if the operator records browsers.
    - `card` is the card that the session stored or renewed, as the PSP reported it at that time. If
      an earlier release stored the card, `card` is None.
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
        """The terms of all bookings that the session's card will guarantee."""
        further = self.replaces.further if self.replaces else ()
        return (self.agreement, *further) if self.agreement else ()

    def clicked_in(self, browser: BrowserOfClick) -> CardSession:
        """Return a copy of this session to which the browser of a click is added.

        The browsers of the first click and of the latest clicks are kept.
        """
        kept = self.browsers or ()
        latest = kept[1:][-MAX_CLICKS + 2 :]
        return replace(self, browsers=(*kept[:1], *latest, browser))

    def agreed_to(
        self, shown: ShownAgreement, *, keeps: bool, browser: str, now: datetime
    ) -> CardSession:
        """Return a copy of this session with the guest's click on a page that shows an agreement.

        `shown` is what the page showed. `keeps` is whether the guest ticked the box for the general
        consent. `browser` is the secret in the browser's cookie.
        """
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
        """Return the new state of this session after the guest agreed to use a card on file.

        The session is completed with the account `account_id`, and no longer has a page. If this
        session has a page, the caller must store it as an earlier page, so that the PSP is still
        asked about it.
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
        """The beginning of the token, by which operators can find the session."""
        return self.token_id[:TOKEN_PREFIX_LENGTH]

    def psp_guest(self, request: HostedPageRequest) -> PspGuest:
        """Return the key under which the guest's reference at the PSP is stored.

        `request` is the request for the page. The key also states which details of the guest the
        page shows (`Prefill`).
        """
        psp, account = self.configuration.provider, request.merchant_account
        return PspGuest(psp, account, self.guest_id, self.center_id, request.prefill)

    @property
    def required_authentication(self) -> Authentication:
        """Whether the bank must authenticate the guest, because the center or the client requires it."""
        required = Authentication.REQUIRED
        is_required = required in (self.configuration.authentication, self.authentication)
        return required if is_required else Authentication.AUTOMATIC

    @property
    def old_at(self) -> datetime:
        """The time at which the link is 24 hours old.

        A person who opens the link after that might not be the guest.
        """
        return self.created_at + DAY

    def is_old(self, now: datetime) -> bool:
        """Return whether the session was started more than 24 hours ago."""
        return now > self.old_at

    def is_page_past_end(self, now: datetime) -> bool:
        """Return whether the page can no longer be used.

        Either the page is past its end, or the link is old and the page shows the guest's details.
        An old link can have such a page if the PSP created the page late, after an outage.
        """
        attempt = self.attempt
        shows_details = attempt is not None and attempt.request.prefill is not Prefill.NOTHING
        # `super()` does not work in a dataclass with slots.
        return PolledSession.is_page_past_end(self, now) or (shows_details and self.is_old(now))

    def may_have_details(self, now: datetime) -> bool:
        """Return whether a page that is created now may contain the guest's details.

        A person who opens an old link might not be the guest. A page with details must therefore
        end before the link is old.
        """
        return not self.is_old(now + TIME_TO_TYPE)

    def needs_click(self, now: datetime) -> bool:
        """Return whether the guest must click on a button before the link opens a page.

        A click is needed for an old link. Links that work for days are often sent by messenger, and
        messengers open the links in messages to make previews.
        """
        return self.is_old(now) and self.has_link(now)

    def may_have_page(self, number: int, now: datetime) -> bool:
        """Return whether a page with this number may be created for the session at `now`.

        Each day of the link's lifetime that has begun adds 20 pages to the maximum. The pages of
        one day therefore cannot use up those of the next day.
        """
        lifetime = self.configuration.link_lifetime(self.link_minutes)
        days = ceil(min(now - self.created_at, lifetime) / DAY)
        return number <= MAX_ATTEMPTS * max(days, 1)

    def without_personal_data(self) -> CardSession:
        """Return a copy of this session without the guest's personal data.

        If the session is not over, the parameters of its page are kept, because the PSP can be
        asked about the page only with them.
        """
        blank = replace(self, **CLEARED_BY_ERASURE)
        if not self.is_over:
            return blank
        attempt = self.attempt and self.attempt.without_personal_data()
        return replace(blank, attempt=attempt, **CLEARED_WHEN_OVER)

    def without_references(self) -> CardSession:
        """Return a copy of this session without the PSP's references for the guest and the page.

        The session must have ended.
        """
        attempt = self.attempt
        if attempt is not None:
            request = replace(attempt.request, guest_reference=None, redirect_origin="")
            attempt = PageAttempt(request=request, over=True)
        return replace(self, attempt=attempt)


IDEMPOTENCY_KEY_LIFETIME: Final = timedelta(hours=24)


class CardSessions(WorkAtPsps, Protocol):
    """Repository of card-addition sessions."""

    def add(self, session: CardSession) -> None:
        """Store a new session."""
        ...

    def get(self, token_id: TokenId) -> CardSession | None:
        """Return the session, or None. In a write unit, this call also locks the session."""
        ...

    def with_link_key(self, link_key: LinkKey) -> CardSession | None:
        """Return the session whose link has this key, or None. The session is not locked."""
        ...

    def is_any_without_key(self, *, since: datetime, before: datetime) -> bool:
        """Return whether a session without a link key was started between two times.

        Only earlier releases start such sessions. The sessions are not locked.
        """
        ...

    def with_page(
        self, provider: ProviderName, merchant_account: MerchantAccount, page_reference: str
    ) -> CardSession | None:
        """Return the session that has or had this page at the PSP, or None.

        In a write unit, this call also locks the session.
        """
        ...

    def update(self, session: CardSession) -> None:
        """Replace a stored session."""
        ...

    def make_pages_due(
        self, guest_id: GuestId, now: datetime, *, except_for: TokenId | None = None
    ) -> None:
        """Set `due_at` to `now` in all open sessions of the guest that have an open page.

        The session `except_for` is left out. The sessions are locked in the order of their ids.
        This call may wait for other units, so the caller must not hold any lock yet.
        """
        ...

    def open_of(self, caller: CallerName) -> Sequence[TokenId]:
        """Return a caller's open sessions that are not cancelled. The sessions are not locked."""
        ...

    def without_agreement(self, *, since: datetime) -> Sequence[TokenId]:
        """Return the sessions that have stored a card but not the agreement, oldest first.

        Only sessions that were started for a booking and ended after `since` are returned. The
        sessions are not locked.
        """
        ...

    def with_unopened_notice_due(
        self, now: datetime, *, at_most: int, skip: int
    ) -> Sequence[CardSession | None]:
        """Return at most `at_most` open sessions whose `unopened_at` has come, oldest first.

        Sessions that an earlier release started are included, because their `unopened_at` is a time
        long ago. The first `skip` sessions are left out. In place of a session that cannot be
        decoded, the result contains None. The sessions are not locked.
        """
        ...

    def due_at_psp(self, psp_account: PspAccount) -> Sequence[TokenId]:
        """Return those sessions of a merchant account about which the PSP is still asked.

        The sessions are not locked.
        """
        ...

    def forget(self, *, before: datetime) -> int:
        """Delete sessions that ended before the given time, a limited number per call.

        Return how many were deleted. Their evidence, earlier pages, refused cards and desk links
        are deleted too. A session is kept in three cases: while it is due, while its agreement is
        stored, and while the consent for its account is stored only in the session.
        """
        ...

    def forget_browsers(self, *, before: datetime) -> int:
        """Delete the `browsers` of sessions that ended before the given time.

        Each call changes a limited number of sessions, and returns this number.
        """
        ...

    def of_guest(self, guest_id: GuestId) -> Sequence[CardSession]:
        """Return all sessions of a guest, except those that cannot be decoded.

        In a write unit, this call also locks the sessions.
        """
        ...

    def reassign(self, merged: GuestId, remaining: GuestId) -> None:
        """Move all sessions of the guest `merged` to the guest `remaining`.

        The requests for the sessions' pages still contain the id `merged`.
        """
        ...

    def blank_unreadable(self, guest_id: GuestId, now: datetime) -> bool:
        """Clear the guest's data in those sessions of the guest that cannot be decoded.

        Until `expires_at`, an open session keeps the data with which the PSP can be asked about its
        page, because a release that can decode the session may still settle it. After `expires_at`,
        the session is ended, and that data is cleared too. Consents are kept. Return True if none
        of these sessions is open any longer.
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
        """Return a page of a guest's sessions, newest first.

        If `centers`, `status` or `reference` is None, sessions with any value are included.
        """
        ...

    def between(self, first: str, last: str, *, limit: int) -> Sequence[CardSession]:
        """Return at most `limit` sessions whose tokens are between two UUIDs, sorted by token.

        The sessions are not locked.
        """
        ...

    def search(self, wanted: SessionFilter, *, limit: int) -> Sequence[CardSession]:
        """Return at most `limit` sessions that meet the conditions in `wanted`, newest first.

        Sessions that cannot be decoded are left out. Unless `wanted` names a guest or a center,
        this reads every session since `created_since`.
        """
        ...

    def count(
        self, by: CountedBy | None, *, since: datetime, overdue_before: datetime
    ) -> Sequence[CountedResult]:
        """Count the sessions created since the given time by their result and its reason.

        Depending on `by`, the sessions are grouped by the center's id or by PSP and merchant
        account, such as `fake/default`. If `by` is None, all sessions are in the group "". In each
        group, the most frequent results come first. An open session that was due before
        `overdue_before` counts as overdue, unless its PSP does not respond. This reads every
        session since the given time.
        """
        ...

    def take_due(
        self, now: datetime, *, until: datetime, except_at: Collection[PspAccount] = ()
    ) -> DueSession | None:
        """Lease a session that is due and return it, or return None if no session is due.

        A session is due from `due_at` on. If `due_at` is later than is possible, a wrong clock has
        set it, and the session is due at once. The latest possible time is what `latest_due`
        returns for the longest wait that the session's state allows:

        - MAX_BACKOFF while the PSP does not respond,
        - POLL_EVERY if the page is open or `expires_at` has passed,
        - the time until `expires_at` in all other cases.

        Each merchant account has one queue for each of these three cases. The queues take turns, in
        an order that depends on `now`, so that a backlog at one account does not delay the others.
        In each queue, the session that has been due longest comes first. Sessions of the merchant
        accounts in `except_at` are left out. They do not slow down the call, even if there are
        many.

        The lease ends at `until`. Then the session is due again, because the process that leased it
        may have died. A session that cannot be decoded is leased like any other, so that it does
        not block the others.
        """
        ...


class EvidenceLog(Protocol):
    """Repository of the evidence about sessions."""

    def add(self, token_id: TokenId, evidence: Evidence, *, at_most: int) -> None:
        """Store a piece of evidence. If it arrives several times, it is stored once.

        Nothing is stored if the session already has `at_most` pieces of the same origin.
        """
        ...

    def of(self, token_id: TokenId) -> Sequence[Evidence]:
        """Return the evidence about a session, oldest first."""
        ...

    def remove(self, token_id: TokenId) -> None:
        """Delete all evidence about a session, if any."""
        ...


class IdempotencyKeys(Protocol):
    """Repository of idempotency keys. Each key of a caller refers to a session."""

    def get(self, caller: CallerName, key: str, *, since: datetime) -> TokenId | None:
        """Return the session for which the key was used after `since`, or None."""
        ...

    def claim(
        self, caller: CallerName, key: str, token_id: TokenId, *, now: datetime, since: datetime
    ) -> TokenId:
        """Let the key refer to the session `token_id`, unless the key was used after `since`.

        Return the session to which the key now refers. If several processes claim a key at once,
        the first wins.
        """
        ...

    def forget(self, *, before: datetime) -> int:
        """Delete keys that were used before the given time, a limited number per call.

        Return how many were deleted.
        """
        ...
