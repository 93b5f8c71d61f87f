"""Card-addition sessions, their evidence and idempotency keys."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import ceil
from typing import Any, Final, NamedTuple, Protocol

from domain.centers.payment_configuration import PaymentConfiguration
from domain.identifiers import (
    SHOWN_OF_TOKENS,
    CallerName,
    CenterId,
    GuestId,
    LinkKey,
    MerchantAccount,
    ProviderName,
    PspAccount,
    TokenId,
)
from domain.pagination import Page, PageRequest
from domain.psps.evidence import Evidence
from domain.psps.hosted_page import HostedPageRequest, PageAttempt, PspGuest
from domain.retries import WorkAtPsps
from domain.sessions.end import SessionStatus
from domain.sessions.polling import PolledSession
from domain.sessions.request import RequestedSession
from domain.sessions.result import CountedBy, CountedResult

MAX_ATTEMPTS: Final = 20
"""How many pages a session may have for each day of its link: each may prolong the session, and
every session must end."""

DAY: Final = timedelta(days=1)
TIME_TO_TYPE: Final = timedelta(hours=1)
"""How long a page lives at least, if it has to end before its link does."""

TELLS_OF_THE_GUEST: Final[dict[str, Any]] = {"billing_info": None, "reference": None}
"""Fields that an erasure blanks at once, and what it leaves there. Any: each field has its own type."""
NEEDED_UNTIL_OVER: Final[dict[str, Any]] = {"redirect_uri": "", "link_key": None}
"""Fields that it blanks once the session is over, beside `attempt`, of which the consent stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFilter:
    """Which sessions are looked for, of all guests and centers. None leaves a field open."""

    guest_id: GuestId | None = None
    center_id: CenterId | None = None
    status: SessionStatus | None = None
    created_since: datetime | None = None


class DueSession(NamedTuple):
    """A session that is due, and the merchant account that is asked about it."""

    token_id: TokenId
    psp_account: PspAccount


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSession(PolledSession, RequestedSession):
    """One addition of a card: what was asked, the page that is polled, and how it ends.

    `configuration` is the center's payment configuration at the time of add-card. `shows_guest` is
    whether the page may show the guest's name and e-mail address, because the caller may read them.
    `link_key` opens the link; None in sessions of earlier releases, whose token opens it.
    """

    token_id: TokenId
    caller: CallerName
    configuration: PaymentConfiguration
    created_at: datetime
    shows_guest: bool = False
    link_key: LinkKey | None = field(default=None, repr=False)

    @property
    def prefix(self) -> str:
        """What is shown of its token: enough to find it."""
        return self.token_id[:SHOWN_OF_TOKENS]

    def psp_guest(self, request: HostedPageRequest) -> PspGuest:
        """Return who the guest is at the PSP, for the page of a request."""
        psp, account = self.configuration.provider, request.merchant_account
        return PspGuest(psp, account, self.guest_id, self.center_id, request.prefill)

    @property
    def old_at(self) -> datetime:
        """When the link becomes old: whoever opens it later may not be the guest."""
        return self.created_at + DAY

    def is_old(self, now: datetime) -> bool:
        """Return whether the session was started more than 24 hours ago."""
        return now > self.old_at

    def may_have_details(self, now: datetime) -> bool:
        """Return whether a page that is made now may have the guest's details.

        The person who opens an old link may not be the guest for whom it was made. So such a page
        ends before the link is old.
        """
        return not self.is_old(now + TIME_TO_TYPE)

    def needs_click(self, now: datetime) -> bool:
        """Return whether a guest must confirm that the link is to be opened.

        Messengers open the links in their messages for previews. Links that live for days are sent
        by messenger, so an old one opens no page by itself.
        """
        return self.is_old(now) and self.has_link(now)

    def may_have_page(self, number: int, now: datetime) -> bool:
        """Return whether the session may have had this many pages at this time.

        They are 20 for each day of the link's life that has begun, so that one day cannot use up
        the pages of the next.
        """
        lifetime = self.configuration.link_lifetime(self.link_minutes)
        days = ceil(min(now - self.created_at, lifetime) / DAY)
        return number <= MAX_ATTEMPTS * max(days, 1)

    def without_personal_data(self) -> CardSession:
        """Return the session without what it tells of the guest, and is not needed to end it.

        Until then its page is found at the PSP by the parameters with which it was made.
        """
        blank = replace(self, **TELLS_OF_THE_GUEST)
        if not self.is_over:
            return blank
        attempt = self.attempt and self.attempt.without_personal_data()
        return replace(blank, attempt=attempt, **NEEDED_UNTIL_OVER)

    def without_references(self) -> CardSession:
        """Return a session that is over without what names the guest or the page at the PSP."""
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
        """Return whether an earlier release has started a session between two times. Locks nothing."""
        ...

    def with_page(
        self, provider: ProviderName, merchant_account: MerchantAccount, page_reference: str
    ) -> CardSession | None:
        """Return the session with a page that has this reference at the PSP, or None.

        Also with an earlier page, which another has followed. A write unit locks it.
        """
        ...

    def update(self, session: CardSession) -> None:
        """Store a session that exists."""
        ...

    def make_pages_due(
        self, guest_id: GuestId, now: datetime, *, except_for: TokenId | None = None
    ) -> None:
        """Make the open sessions of a guest with a page that is not over due at `now`, except for one.

        It waits for units that have locked one of them, so the caller must hold no lock yet. It locks
        them in the order of their ids.
        """
        ...

    def open_of(self, caller: CallerName) -> Sequence[TokenId]:
        """Return the open sessions of a caller that are not cancelled yet; locks nothing."""
        ...

    def due_at_psp(self, psp_account: PspAccount) -> Sequence[TokenId]:
        """Return the sessions about which a PSP is still asked at a merchant account; locks nothing."""
        ...

    def forget(self, *, before: datetime) -> int:
        """Delete a bounded number of sessions that ended before that time; return how many.

        Their evidence, earlier pages and refused cards go with them. One that is due stays, and one whose account
        keeps no consent of its own.
        """
        ...

    def of_guest(self, guest_id: GuestId) -> Sequence[CardSession]:
        """Return every session of a guest that can be decoded. A write unit locks them."""
        ...

    def blank_unreadable(self, guest_id: GuestId, now: datetime) -> bool:
        """Delete what the sessions of a guest that cannot be decoded tell of the guest.

        One that is open keeps what its page is found by until its `expires_at`, for the release that
        can decode it; then it ends. Consents stay. Return whether none is open.
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
        """Return a page of a guest's sessions, newest first; None leaves a condition open."""
        ...

    def between(self, first: str, last: str, *, limit: int) -> Sequence[CardSession]:
        """Return the sessions whose tokens are from one UUID to another, in their order.

        Locks nothing.
        """
        ...

    def search(self, wanted: SessionFilter, *, limit: int) -> Sequence[CardSession]:
        """Return sessions of any guest, newest first. Those that cannot be decoded are left out.

        Reads every session since `created_since` unless a guest or a center is wanted.
        """
        ...

    def count(
        self, by: CountedBy | None, *, since: datetime, overdue_before: datetime
    ) -> Sequence[CountedResult]:
        """Count the sessions created since then, by group, the most frequent result first.

        An open one that was due before `overdue_before` is overdue. A group is the id of a center, or
        PSP and merchant account as `fake/default`; or "" for all. Reads each of these sessions.
        """
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

    def remove(self, token_id: TokenId) -> None:
        """Delete the evidence on a session."""
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
