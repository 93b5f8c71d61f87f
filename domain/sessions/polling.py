"""The hosted page of a card-addition session, and when the PSP is asked what became of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Self

from domain.audit.entry import Actor
from domain.psps.hosted_page import HostedPage, HostedPageRequest, PageAttempt
from domain.psps.payment_provider import UNKNOWN_FOR, is_confirmed
from domain.sessions.end import EndingSession, SessionStatus

POLL_AFTER: Final = (timedelta(seconds=30), timedelta(minutes=2), timedelta(minutes=10))
POLL_EVERY: Final = timedelta(minutes=10)

ASK_AGAIN_AFTER: Final = timedelta(seconds=2)
"""How long after the PSP's answer a browser may have it asked about the session again."""

ANSWERED_WITHIN: Final = timedelta(seconds=5)
"""How long a question may be under way. After that its process counts as dead."""


class Progress(StrEnum):
    """What the guest did last; `CANCELLED` also when the page ended without a card or the client cancelled."""

    CREATED = "created"
    OPENED = "opened"
    RETURNED = "returned"
    CANCELLED = "cancelled"


@dataclass(frozen=True, kw_only=True)
class PolledSession(EndingSession):
    """A session and its latest page, about which the PSP is asked until it ends.

    `due_at` is the next poll, a retry, the expiry of the session, or the end of a lease; None means
    not before a webhook comes. `ask_again_at` is when a browser may have the PSP asked next; None
    means now. `opened_at` is when the link first led to an attempt, and `returned_at` when the guest
    first came back from a page, with a card or without; None also for what an earlier release has
    noted.
    """

    progress: Progress = Progress.CREATED
    attempt: PageAttempt | None = None
    ask_again_at: datetime | None = None
    opened_at: datetime | None = None
    returned_at: datetime | None = None

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

    def has_page_of(self, earlier: Self) -> bool:
        """Return whether `earlier`, a former state of the session, has the same page."""
        # Not the whole requests: an earlier release drops the fields that it does not know.
        key = earlier.current_attempt.request.idempotency_key
        return self.current_attempt.request.idempotency_key == key

    def waits_for_page_of(self, earlier: Self) -> bool:
        """Return whether the page is not there that the PSP was asked for in `earlier`.

        A guest may have agreed in another browser since.
        """
        return bool(self.attempt and self.attempt.is_unanswered and self.has_page_of(earlier))

    def has_attempt_of(self, earlier: Self) -> bool:
        """Return whether the attempt is what it was in `earlier`.

        What the PSP has said of it since does not count, nor where the guest has agreed.
        """
        ours, theirs = (
            each.attempt
            and replace(each.attempt, unknown_since=None, agreed_at=None, agreed_in=None)
            for each in (self, earlier)
        )
        return ours == theirs

    def is_page_past_end(self, now: datetime) -> bool:
        """Return whether it is too late to use the page. The link may outlive it."""
        page = self.attempt.page if self.attempt else None
        return self.is_past_end(now) or (page is not None and now >= page.ends_at)

    @property
    def may_be_asked_about(self) -> bool:
        """Whether the PSP may still tell something of it: an expired session has a page for that."""
        return not self.is_settled and (not self.is_over or self.has_page)

    @property
    def may_go_back(self) -> bool:
        """Whether a card of an earlier page may be stored: there is none yet, nor a page in use."""
        attempt = self.attempt
        return not self.is_settled and (attempt is None or attempt.over)

    def with_attempt(self, request: HostedPageRequest) -> Self:
        """Note an attempt, before the PSP is asked for its page."""
        attempt, now = PageAttempt(request=request), request.begun_at
        # An earlier release has kept no time but that of its latest attempt.
        opened_at = self.opened_at or (self.attempt or attempt).request.begun_at
        opened = replace(self, attempt=attempt, progress=Progress.OPENED, opened_at=opened_at)
        return replace(opened, ask_again_at=now + ANSWERED_WITHIN).still_pending(now)

    def has_agreed(self, browser: str | None) -> bool:
        """Return whether the guest has agreed to the consent of the latest attempt in this browser."""
        return bool(self.attempt and not self.attempt.over and self.attempt.has_agreed(browser))

    def agreed(self, browser: str, now: datetime) -> Self:
        """Note that the guest has agreed to the consent of the latest attempt in this browser."""
        return replace(self, attempt=self.current_attempt.agreed(browser, now))

    def with_page(self, page: HostedPage, now: datetime) -> Self:
        """Note the page that the PSP made. The session lives as long as its page, or longer.

        A session past its end does not become longer: its guest has already been told.
        """
        attempt = replace(self.current_attempt, page=page)
        is_past_end = self.is_past_end(now)
        expires_at = self.expires_at if is_past_end else max(self.expires_at, page.ends_at)
        with_page = replace(self, attempt=attempt, expires_at=expires_at, ask_again_at=None)
        polled = with_page.still_pending(now)
        return polled.due_now(now) if is_past_end else polled

    def still_pending(self, now: datetime) -> Self:
        """Note that the guest is not done. The PSP is asked again on schedule."""
        attempt, end = replace(self.current_attempt, unknown_since=None), self.expires_at
        # A page may be pending after its end while the link lives on, and before it though the
        # session was cancelled, if the PSP cannot close it.
        if attempt.page is not None and attempt.page.ends_at > now:
            end = attempt.page.ends_at
        pending = replace(self, attempt=attempt)
        return pending.postponed(min(next_poll_at(attempt.request.begun_at, now), end))

    def page_unknown(self, now: datetime) -> Self:
        """Note that the PSP does not know the page. Once that is confirmed, it is over without a card.

        Until then the PSP is asked again on schedule, also past the end of the session.
        """
        attempt = self.current_attempt
        if is_confirmed(attempt.unknown_since, now):
            return self.without_card(now)
        unknown = attempt.unknown(now)
        next_poll = next_poll_at(attempt.request.begun_at, now)
        confirmed_at = (unknown.unknown_since or now) + UNKNOWN_FOR
        return replace(self, attempt=unknown).postponed(min(next_poll, confirmed_at))

    def without_card(self, now: datetime) -> Self:
        """Note that there is no page, or that the page is over without a card.

        Past its end the session expires; before, its link may start another attempt.
        """
        attempt = self.attempt and replace(self.attempt, over=True)
        over = replace(self, attempt=attempt)
        if self.is_past_end(now):
            return over.expired(now)
        return over.with_progress(self.progress, now).postponed(self.expires_at)

    def cancelled(self, now: datetime, *, by: Actor | None = None) -> Self:
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

    def with_progress(self, progress: Progress, now: datetime) -> Self:
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

    def asked(self, now: datetime) -> Self | None:
        """Note a question to the PSP that a browser causes; None if it may not be asked now.

        One question is under way at a time, and none within 2 seconds of an answer: a link that is
        opened in a loop must not take the places of other guests. A time that a wrong clock has
        left in the future does not count. There is no question about a settled session.
        """
        if self._is_early(now) or self.is_settled:
            return None
        return replace(self, ask_again_at=now + ANSWERED_WITHIN)

    def _is_early(self, now: datetime) -> bool:
        longest = now + ANSWERED_WITHIN * 2
        return self.ask_again_at is not None and now < self.ask_again_at <= longest

    def answered(self, now: datetime) -> Self:
        """Note that a question is over, whether or not the PSP responded."""
        return replace(self, ask_again_at=self.ask_again_at and now + ASK_AGAIN_AFTER)

    def asked_later(self) -> Self:
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

    def due_now(self, now: datetime) -> Self:
        """Make the session due at once, because a webhook came."""
        return replace(self, due_at=now)

    def nudged(self, now: datetime) -> Self:
        """Make the session due as soon as a browser could have the PSP asked about it.

        Whoever nudges may be anybody, so this must not cost more questions than a browser.
        """
        asked = self.asked(now)
        return asked.due_now(now) if asked else self.asked_later()

    def nudged_about_earlier_page(self, now: datetime) -> Self:
        """Do the same because of an earlier page, also if the session is settled."""
        if not self._is_early(now):
            return replace(self, due_at=now, ask_again_at=now + ANSWERED_WITHIN)
        return replace(self, due_at=min(filter(None, (self.due_at, self.ask_again_at))))

    def waiting_for_earlier_page(self, now: datetime, *, since: Self) -> Self:
        """Make it due soon, because the PSP has not said yet what became of an earlier page.

        A settled session is due for no other reason, unless a webhook came after `since`.
        """
        later = now + POLL_EVERY
        is_lease = self.is_settled and self.due_at == since.due_at
        return replace(
            self, due_at=later if self.due_at is None or is_lease else min(self.due_at, later)
        )

    def keeping_due_at(self, current: Self, *, since: Self) -> Self:
        """Keep the `due_at` of a webhook or a return that came between `since` and `current`.

        A settled session is not polled any more, so it is returned unchanged.
        """
        if self.is_settled or current.due_at in (None, since.due_at):
            return self
        return replace(self, due_at=current.due_at)


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
