"""Card-addition sessions: their states, and when each is looked at next."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from math import ceil
from typing import Final, NamedTuple, Protocol

from domain.audit.entry import Actor
from domain.centers.payment_configuration import PaymentConfiguration
from domain.errors import (
    GuestNotFound,
    IncorrectBillingAddress,
    InvalidCenterId,
    PaymentConfigurationNotDone,
    PaymentMethodAlreadyExists,
    Refusal,
)
from domain.identifiers import (
    SHOWN_OF_TOKENS,
    AccountId,
    CallerName,
    CenterId,
    GuestId,
    MerchantAccount,
    ProviderName,
    PspAccount,
    TokenId,
)
from domain.pagination import Page, PageRequest
from domain.psps.hosted_page import Evidence, HostedPage, HostedPageRequest, PageAttempt, PspGuest
from domain.retries import Waiting, WorkAtPsp
from domain.sessions.request import RequestedSession
from domain.sessions.result import CountedBy, CountedResult

MAX_ATTEMPTS: Final = 20
"""How many pages a session may have for each day of its link: each may prolong the session, and
every session must end."""

DAY: Final = timedelta(days=1)

POLL_AFTER: Final = (timedelta(seconds=30), timedelta(minutes=2), timedelta(minutes=10))
POLL_EVERY: Final = timedelta(minutes=10)

ASK_AGAIN_AFTER: Final = timedelta(seconds=2)
"""How long after the PSP's answer a browser may have it asked about the session again."""

ANSWERED_WITHIN: Final = timedelta(seconds=5)
"""How long a question may be under way. After that its process counts as dead."""

_REFUSALS_WITHOUT_TYPE: Final = (
    GuestNotFound,
    InvalidCenterId,
    PaymentConfigurationNotDone,
    IncorrectBillingAddress,
    PaymentMethodAlreadyExists,
)
"""What sessions could fail with before types were stored. No refusal is added to these."""


class SessionStatus(StrEnum):
    """The states of a card-addition session."""

    OPEN = "open"
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"


class Ending(StrEnum):
    """What ends a session."""

    CARD_STORED = "card stored"
    CARD_REFUSED = "card refused by our rules"
    NO_CARD = "no card by the end, or cancelled"


NEXT_STATUS: Final[Mapping[tuple[SessionStatus, Ending], SessionStatus]] = {
    (SessionStatus.OPEN, Ending.CARD_STORED): SessionStatus.COMPLETED,
    (SessionStatus.OPEN, Ending.CARD_REFUSED): SessionStatus.FAILED,
    (SessionStatus.OPEN, Ending.NO_CARD): SessionStatus.EXPIRED,
    # The PSP may turn out to have the card after all.
    (SessionStatus.EXPIRED, Ending.CARD_STORED): SessionStatus.COMPLETED,
}
"""Which state may follow which, and what by. Anything else leaves the state as it is."""

_SETTLED: Final = frozenset(SessionStatus) - {status for status, _ in NEXT_STATUS}


class Progress(StrEnum):
    """What the guest did last; `CANCELLED` also when the page ended without a card or the client cancelled."""

    CREATED = "created"
    OPENED = "opened"
    RETURNED = "returned"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a session failed: the code, message and type of the refusal.

    A session that failed before types were stored has none in its row: it is found by code and
    message. Raises ValueError if no session can have failed with these.
    """

    code: int
    message: str
    type: str = ""

    def __post_init__(self) -> None:
        if self.type:
            return
        for refusal in _REFUSALS_WITHOUT_TYPE:
            if (refusal.code, refusal.message) == (self.code, self.message):
                object.__setattr__(self, "type", refusal.type)
                return
        raise ValueError(f"no session can have failed with {self.code} {self.message!r}")


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
class CardSession(RequestedSession, WorkAtPsp):
    """One addition of a card, from the request to its end.

    `configuration` is the center's payment configuration at the time of add-card. `expires_at` is the
    end of the link, or of its page if that is later. `due_at` is when the session is processed next:
    a poll of the PSP, a retry, its expiry, or the end of a lease; None means not before a webhook
    comes.

    `cancelled_at` is set once the session is cancelled, `cancelled_by` unless that was because of an
    erasure, or by an earlier release. `ask_again_at` is when a browser may have the PSP asked next;
    None means now. `shows_guest` is whether the page may show the guest's name and e-mail address,
    because the caller may read them.
    `existing_account_id` is the account that holds the same card, if it failed because of that.
    `opened_at` is when the link first led to an attempt, and `returned_at` when the guest first came
    back from a page, with a card or without; None also for what an earlier release has noted.
    """

    token_id: TokenId
    caller: CallerName
    configuration: PaymentConfiguration
    created_at: datetime
    expires_at: datetime
    status: SessionStatus = SessionStatus.OPEN
    progress: Progress = Progress.CREATED
    attempt: PageAttempt | None = None
    account_id: AccountId | None = None
    existing_account_id: AccountId | None = None
    failure: Failure | None = None
    ended_at: datetime | None = None
    cancelled_at: datetime | None = None
    cancelled_by: Actor | None = None
    ask_again_at: datetime | None = None
    shows_guest: bool = False
    opened_at: datetime | None = None
    returned_at: datetime | None = None

    @property
    def prefix(self) -> str:
        """What is shown of its token: enough to find it, and no link can be made of it."""
        return self.token_id[:SHOWN_OF_TOKENS]

    @property
    def is_settled(self) -> bool:
        """Whether nothing can change any more: the card is stored or refused."""
        return self.status in _SETTLED

    @property
    def current_attempt(self) -> PageAttempt:
        """The latest attempt. Raises RuntimeError before the first."""
        if self.attempt is None:
            raise RuntimeError("the session has asked for no page yet")
        return self.attempt

    @property
    def has_page(self) -> bool:
        """Whether the latest attempt has a page."""
        return self.attempt is not None and self.attempt.page is not None

    @property
    def reason_of_end(self) -> str | None:
        """Why it ended without a card: the type of the refusal, `cancelled` or `not_finished`."""
        if self.failure is not None:
            return self.failure.type
        if self.status is SessionStatus.EXPIRED:
            return "cancelled" if self.cancelled_at else "not_finished"
        return None

    def psp_guest(self, request: HostedPageRequest) -> PspGuest:
        """Return who the guest is at the PSP, for the page of a request."""
        psp, account = self.configuration.provider, request.merchant_account
        return PspGuest(psp, account, self.guest_id, self.center_id, request.prefill)

    def has_page_of(self, earlier: CardSession) -> bool:
        """Return whether `earlier`, a former state of the session, has the same page."""
        # Not the whole requests: an earlier release drops the fields that it does not know.
        key = earlier.current_attempt.request.idempotency_key
        return self.current_attempt.request.idempotency_key == key

    def is_past_end(self, now: datetime) -> bool:
        """Return whether it is too late to open the link, or to use the page."""
        is_over = self.status is SessionStatus.EXPIRED or self.cancelled_at is not None
        return is_over or now >= self.expires_at

    def is_page_past_end(self, now: datetime) -> bool:
        """Return whether it is too late to use the page. The link may outlive it."""
        page = self.attempt.page if self.attempt else None
        return self.is_past_end(now) or (page is not None and now >= page.ends_at)

    @property
    def old_at(self) -> datetime:
        """When the link becomes old: whoever opens it later may not be the guest."""
        return self.created_at + DAY

    def is_old(self, now: datetime) -> bool:
        """Return whether the session was started more than 24 hours ago."""
        return now > self.old_at

    @property
    def is_over(self) -> bool:
        """Whether the session has ended: the PSP is not asked about it any more."""
        return self.status is not SessionStatus.OPEN

    @property
    def may_be_asked_about(self) -> bool:
        """Whether the PSP may still tell something of it: an expired session has a page for that."""
        return not self.is_settled and (not self.is_over or self.has_page)

    def has_link(self, now: datetime) -> bool:
        """Return whether the link may still lead to a page."""
        return not self.is_settled and not self.is_past_end(now)

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

    def asked(self, now: datetime) -> CardSession | None:
        """Note a question to the PSP that a browser causes; None if it may not be asked now.

        One question is under way at a time, and none within 2 seconds of an answer: a link that is
        opened in a loop must not take the places of other guests. A time that a wrong clock has
        left in the future does not count. There is no question about a settled session.
        """
        longest = now + ANSWERED_WITHIN * 2
        is_early = self.ask_again_at is not None and now < self.ask_again_at <= longest
        if is_early or self.is_settled:
            return None
        return replace(self, ask_again_at=now + ANSWERED_WITHIN)

    def asked_later(self) -> CardSession:
        """Make the session due when a browser might ask again, because one could not.

        The worker asks then, and browsers after it.
        """
        later = self.ask_again_at
        if later is None or self.is_settled:
            return self
        if self.due_at is not None and self.due_at + ANSWERED_WITHIN == later:
            # An earlier call has done it.
            return self
        # Also when it is due already: the question under way would set the time of the next poll.
        return replace(self, due_at=later, ask_again_at=later + ANSWERED_WITHIN)

    def answered(self, now: datetime) -> CardSession:
        """Note that a question is over, whether or not the PSP responded."""
        return replace(self, ask_again_at=self.ask_again_at and now + ASK_AGAIN_AFTER)

    def due_now(self, now: datetime) -> CardSession:
        """Make the session due at once, because a webhook came."""
        return replace(self, due_at=now)

    def nudged(self, now: datetime) -> CardSession:
        """Make the session due as soon as a browser could have the PSP asked about it.

        Whoever nudges may be anybody, so this must not cost more questions than a browser.
        """
        asked = self.asked(now)
        return asked.due_now(now) if asked else self.asked_later()

    def with_progress(self, progress: Progress, now: datetime) -> CardSession:
        """Note what the guest did, and when the guest first came back.

        A guest who returns from a page that is over without a card has none, as one who cancelled.
        Returns the session unchanged if it is settled or cancelled, or had no attempt: from that only
        our page that asks for consent can be left.
        """
        nowhere = self.attempt is None and progress is not Progress.CANCELLED
        if nowhere or self.is_settled or self.cancelled_at is not None:
            return self
        if progress is Progress.RETURNED and self.current_attempt.over:
            progress = Progress.CANCELLED
        came_back = progress is not Progress.OPENED and self.returned_at is None
        return replace(self, progress=progress, returned_at=now if came_back else self.returned_at)

    def cancelled(self, now: datetime, *, by: Actor | None = None) -> CardSession:
        """Note that the client, or an operator, has cancelled the session, which ends at once.

        It is settled next. A session that is not open, or is cancelled already, is returned
        unchanged.
        """
        if self.status is not SessionStatus.OPEN or self.cancelled_at is not None:
            return self
        return replace(
            self,
            progress=Progress.CANCELLED,
            cancelled_at=now,
            cancelled_by=by,
            expires_at=min(self.expires_at, now),
            due_at=now,
        )

    def without_personal_data(self) -> CardSession:
        """Return the session without what it tells of the guest, and is not needed to end it.

        Until then its page is found at the PSP by the parameters with which it was made.
        """
        blank = replace(self, billing_info=None, reference=None)
        if not self.is_over:
            return blank
        attempt = self.attempt
        if attempt is not None:
            attempt = replace(attempt, request=attempt.request.without_personal_data())
        return replace(blank, attempt=attempt, redirect_uri="")

    def without_references(self) -> CardSession:
        """Return a session that is over without what names the guest or the page at the PSP."""
        attempt = self.attempt
        if attempt is not None:
            request = replace(attempt.request, guest_reference=None, redirect_origin="")
            attempt = PageAttempt(request=request, over=True)
        return replace(self, attempt=attempt)

    def keeping_due_at(self, current: CardSession, *, since: CardSession) -> CardSession:
        """Keep the `due_at` of a webhook or a return that came between `since` and `current`.

        A settled session is not polled any more, so it is returned unchanged.
        """
        if self.is_settled or current.due_at in (None, since.due_at):
            return self
        return replace(self, due_at=current.due_at)

    def with_attempt(self, request: HostedPageRequest) -> CardSession:
        """Note an attempt, before the PSP is asked for its page."""
        attempt, now = PageAttempt(request=request), request.begun_at
        # An earlier release has kept no time but that of its latest attempt.
        opened_at = self.opened_at or (self.attempt or attempt).request.begun_at
        opened = replace(self, attempt=attempt, progress=Progress.OPENED, opened_at=opened_at)
        return _polled(replace(opened, ask_again_at=now + ANSWERED_WITHIN), now)

    def agreed(self, now: datetime) -> CardSession:
        """Note that the guest has agreed, on a page of ours, to the consent of the latest attempt."""
        return replace(self, attempt=replace(self.current_attempt, agreed_at=now))

    def with_page(self, page: HostedPage, now: datetime) -> CardSession:
        """Note the page that the PSP made. The session lives as long as its page, or longer.

        A session past its end does not become longer: its guest has already been told.
        """
        attempt = replace(self.current_attempt, page=page)
        is_past_end = self.is_past_end(now)
        expires_at = self.expires_at if is_past_end else max(self.expires_at, page.ends_at)
        with_page = replace(self, attempt=attempt, expires_at=expires_at, ask_again_at=None)
        polled = _polled(with_page, now)
        return polled.due_now(now) if is_past_end else polled

    def still_pending(self, now: datetime) -> CardSession:
        """Note that the guest is not done. The PSP is asked again on schedule."""
        return _polled(self, now)

    def completed(self, account_id: AccountId, now: datetime) -> CardSession:
        """End the session with its card stored."""
        return _ended(self, Ending.CARD_STORED, now, account_id=account_id)

    def failed(
        self, refusal: Refusal, now: datetime, *, existing: AccountId | None = None
    ) -> CardSession:
        """End the session: our rules refuse the card. `existing` is the account that holds the same."""
        failure = Failure(code=refusal.code, message=refusal.message, type=refusal.type)
        return _ended(self, Ending.CARD_REFUSED, now, failure=failure, existing=existing)

    def without_card(self, now: datetime) -> CardSession:
        """Note that there is no page, or that the page is over without a card.

        Past its end the session expires; before, its link may start another attempt.
        """
        attempt = self.attempt and replace(self.attempt, over=True)
        over = replace(self, attempt=attempt)
        if self.is_past_end(now):
            return _ended(over, Ending.NO_CARD, now)
        return over.with_progress(self.progress, now).postponed(self.expires_at)


def _ended(
    session: CardSession,
    ending: Ending,
    now: datetime,
    *,
    account_id: AccountId | None = None,
    failure: Failure | None = None,
    existing: AccountId | None = None,
) -> CardSession:
    """Go to the next state, if there is one, and stop polling in any case."""
    stopped = session.postponed(None)
    status = NEXT_STATUS.get((session.status, ending))
    if status is None:
        return stopped
    return replace(
        stopped,
        status=status,
        ended_at=now,
        account_id=account_id,
        existing_account_id=existing,
        failure=failure,
    )


def _polled(session: CardSession, now: datetime) -> CardSession:
    attempt, end = session.current_attempt, session.expires_at
    # A page may be pending after its end while the link lives on, and before it though the session
    # was cancelled, if the PSP cannot close it.
    if attempt.page is not None and attempt.page.ends_at > now:
        end = attempt.page.ends_at
    return session.postponed(min(next_poll_at(attempt.request.begun_at, now), end))


def next_poll_at(opened_at: datetime, now: datetime) -> datetime:
    """Return when the PSP is asked next about a page that was opened at `opened_at`.

    That is 30 seconds, 2 minutes and 10 minutes after the opening, then every 10 minutes.
    """
    for wait in POLL_AFTER:
        if opened_at + wait > now:
            # No later than this if the clock was ahead at the opening.
            return min(opened_at + wait, now + POLL_EVERY)
    rounds = (now - opened_at - POLL_AFTER[-1]) // POLL_EVERY + 1
    return opened_at + POLL_AFTER[-1] + POLL_EVERY * rounds


IDEMPOTENCY_KEYS_LAST: Final = timedelta(hours=24)


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

    def forget(self, *, before: datetime) -> int:
        """Delete a bounded number of sessions that ended before that time; return how many.

        Their evidence and refused cards go with them. One that is due stays, and one whose account
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

    def count_due(self, now: datetime) -> Waiting:
        """Count the sessions that `take_due` could take now, one after the other."""
        ...

    def unanswered(self) -> Mapping[PspAccount, Waiting]:
        """Count those whose PSP has not responded, and since when, by merchant account."""
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
