"""The polled part of a session: its latest page, and when the PSP is asked about the page."""

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
"""How much time must pass after the PSP's answer before a browser's request may ask again."""

ANSWERED_WITHIN: Final = timedelta(seconds=5)
"""How long a call that asks the PSP about a session may take.

After this time, the process that made the call is presumed to have been killed.
"""


class Progress(StrEnum):
    """The latest step of the guest in a session.

    CANCELLED means that the guest left the page without adding a card, that the browser came back
    from a page that had ended without a card, or that the session was cancelled.
    """

    CREATED = "created"
    OPENED = "opened"
    RETURNED = "returned"
    CANCELLED = "cancelled"


@dataclass(frozen=True, kw_only=True)
class PolledSession(EndingSession):
    """A session with its latest page, about which the PSP is polled until the page ends.

    `due_at` is the time of the next poll or retry, of the session's expiry, or of the end of a
    lease. If it is None, only a webhook makes the session due. `ask_again_at` is the earliest time
    at which a browser's request may ask the PSP again. If it is None, a request may do so now.

    `opened_at` is when the link first led to an attempt. `returned_at` is when the guest first came
    back from a page, with or without a card. Both are None if an earlier release did not store
    them.
    """

    progress: Progress = Progress.CREATED
    attempt: PageAttempt | None = None
    ask_again_at: datetime | None = None
    opened_at: datetime | None = None
    returned_at: datetime | None = None

    @property
    def current_attempt(self) -> PageAttempt:
        """The latest attempt. Raises RuntimeError if there was no attempt yet."""
        if self.attempt is None:
            raise RuntimeError("no page has been requested for the session yet")
        return self.attempt

    @property
    def has_page(self) -> bool:
        """Whether the latest attempt has a page."""
        return self.attempt is not None and self.attempt.page is not None

    def has_page_of(self, earlier: Self) -> bool:
        """Return whether the page is still the same as in `earlier`, a former state of the session."""
        # The whole requests are not compared, because an earlier release drops fields that it does
        # not know.
        key = earlier.current_attempt.request.idempotency_key
        return self.attempt is not None and self.attempt.request.idempotency_key == key

    def waits_for_page_of(self, earlier: Self) -> bool:
        """Return whether the page that was requested in `earlier` has still not been created.

        `earlier` is a former state of the session. It does not matter whether the guest has agreed
        in another browser since then.
        """
        return bool(self.attempt and self.attempt.is_unanswered and self.has_page_of(earlier))

    def has_attempt_of(self, earlier: Self) -> bool:
        """Return whether the attempt is still the same as in `earlier`, a former state of the session.

        `unknown_since` and the guest's agreement are not compared.
        """
        ours, theirs = (
            each.attempt
            and replace(
                each.attempt,
                unknown_since=None,
                agreed_at=None,
                agreed_in=None,
                first_agreed_at=None,
            )
            for each in (self, earlier)
        )
        return ours == theirs

    def is_page_past_end(self, now: datetime) -> bool:
        """Return whether the session or the latest attempt's page is past its end.

        If only the page is past its end, the session's link may still lead to a new page.
        """
        page = self.attempt.page if self.attempt else None
        return self.is_past_end(now) or (page is not None and now >= page.ends_at)

    @property
    def may_be_asked_about(self) -> bool:
        """Whether it is useful to ask the PSP about the session.

        It is useful for an open session, and for an expired session that still has a page.
        """
        return not self.is_settled and (not self.is_over or self.has_page)

    @property
    def may_go_back(self) -> bool:
        """Whether the card of an earlier page may be stored.

        It may be stored if the session has neither a card nor an open page.
        """
        attempt = self.attempt
        return not self.is_settled and (attempt is None or attempt.over)

    def with_attempt(self, request: HostedPageRequest) -> Self:
        """Return a copy of this session with a new attempt. The PSP has yet to create its page."""
        attempt, now = PageAttempt(request=request), request.begun_at
        # An earlier release kept only the time of its latest attempt.
        opened_at = self.opened_at or (self.attempt or attempt).request.begun_at
        opened = replace(
            self,
            attempt=attempt,
            progress=Progress.OPENED,
            opened_at=opened_at,
            not_accepted=None,
        )
        return replace(opened, ask_again_at=now + ANSWERED_WITHIN).still_pending(now)

    def has_agreed(self, browser: str | None) -> bool:
        """Return whether the guest agreed to the latest attempt's consent in this browser.

        `browser` is the secret in the browser's cookie, or None.
        """
        return bool(self.attempt and not self.attempt.over and self.attempt.has_agreed(browser))

    def agreed(self, browser: str, now: datetime) -> Self:
        """Return a copy of this session that records that the guest agreed to the consent text.

        `browser` is the secret in the cookie of the browser in which the guest agreed.
        """
        return replace(self, attempt=self.current_attempt.agreed(browser, now))

    def with_page(self, page: HostedPage, now: datetime) -> Self:
        """Return a copy of this session with the page that the PSP created.

        If the page ends later than the session, the session is prolonged until the end of the page.
        A session that is past its end is not prolonged, because the guest may have read that the
        link has expired.
        """
        attempt = replace(self.current_attempt, page=page)
        is_past_end = self.is_past_end(now)
        expires_at = self.expires_at if is_past_end else max(self.expires_at, page.ends_at)
        with_page = replace(self, attempt=attempt, expires_at=expires_at, ask_again_at=None)
        polled = with_page.still_pending(now)
        return polled.due_now(now) if is_past_end else polled

    def still_pending(self, now: datetime) -> Self:
        """Return the new state of this session after the PSP reported the page as pending.

        The PSP is asked again on schedule.
        """
        attempt, end = replace(self.current_attempt, unknown_since=None), self.expires_at
        # A page may still be pending after its end while the link lives, or after a cancellation if
        # the PSP cannot close the page.
        if attempt.page is not None and attempt.page.ends_at > now:
            end = attempt.page.ends_at
        pending = replace(self, attempt=attempt)
        return pending.postponed(min(next_poll_at(attempt.request.begun_at, now), end))

    def page_unknown(self, now: datetime) -> Self:
        """Return the new state of this session after the PSP reported the page as unknown.

        If this answer is final (`is_confirmed`), the page is over without a card. If the answer is
        not final yet, the PSP is asked again on schedule, even past the end of the session.
        """
        attempt = self.current_attempt
        if is_confirmed(attempt.unknown_since, now):
            return self.without_card(now)
        unknown = attempt.unknown(now)
        next_poll = next_poll_at(attempt.request.begun_at, now)
        confirmed_at = (unknown.unknown_since or now) + UNKNOWN_FOR
        return replace(self, attempt=unknown).postponed(min(next_poll, confirmed_at))

    def without_card(self, now: datetime) -> Self:
        """Return the new state of this session after its latest attempt did not collect a card.

        Either the PSP refused to create the page, or the page has ended without a card. If the
        session is past its end, it expires. If it is not, its link may start another attempt.
        """
        attempt = self.attempt and replace(self.attempt, over=True)
        over = replace(self, attempt=attempt)
        if self.is_past_end(now):
            return over.expired(now)
        return over.with_progress(self.progress, now).postponed(self.expires_at)

    def cancelled(self, now: datetime, *, by: Actor | None = None) -> Self:
        """Return the new state of this session after it was cancelled. Its link ends at once.

        `by` is the client or operator who cancelled the session. It is None for an erasure, and
        for a session that is found at a closed merchant account.

        The session is due, so that the worker settles it. A session that is not open, or that was
        cancelled already, is returned unchanged.
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
        """Return a copy of this session with the guest's last step.

        If the guest has come back for the first time, the time of this return is set too. If the
        guest returns from a page that is over without a card, the step is CANCELLED.

        A session that is settled or cancelled is returned unchanged. A session without an attempt
        accepts only CANCELLED, because the guest can only have left cardonfile's own consent page.
        """
        nowhere = self.attempt is None and progress is not Progress.CANCELLED
        if nowhere or self.is_settled or self.cancelled_at is not None:
            return self
        if progress is Progress.RETURNED and self.current_attempt.over:
            progress = Progress.CANCELLED
        came_back = progress is not Progress.OPENED and self.returned_at is None
        return replace(self, progress=progress, returned_at=now if came_back else self.returned_at)

    def asked(self, now: datetime) -> Self | None:
        """Return the new state of this session just before a browser's request asks the PSP.

        Return None if the request must not ask the PSP now, or if the session is settled. Only one
        request at a time may ask the PSP about the session. After an answer, 2 seconds must pass
        before the PSP is asked again. A link that is opened in a loop therefore does not use up
        the capacity for other guests.

        An `ask_again_at` far in the future comes from a wrong clock and is ignored.
        """
        if self._is_early(now) or self.is_settled:
            return None
        return replace(self, ask_again_at=now + ANSWERED_WITHIN)

    def _is_early(self, now: datetime) -> bool:
        longest = now + ANSWERED_WITHIN * 2
        return self.ask_again_at is not None and now < self.ask_again_at <= longest

    def answered(self, now: datetime) -> Self:
        """Return the new state of this session after the PSP was asked about it.

        The new state is the same whether or not the PSP responded.
        """
        return replace(self, ask_again_at=self.ask_again_at and now + ASK_AGAIN_AFTER)

    def asked_later(self) -> Self:
        """Return a copy of this session that is due when the PSP may next be asked about it.

        At that time, the worker asks the PSP in place of the browser's request, which came too
        early. A settled session is returned unchanged.
        """
        later = self.ask_again_at
        if later is None or self.is_settled:
            return self
        if self.due_at is not None and self.due_at + ANSWERED_WITHIN == later:
            # An earlier call has already done this.
            return self
        # `due_at` is set even if the session is already due, because the running question will set
        # the time of the next poll.
        return replace(self, due_at=later, ask_again_at=later + ANSWERED_WITHIN)

    def due_now(self, now: datetime) -> Self:
        """Return a copy of this session that is due at once, for example after a webhook."""
        return replace(self, due_at=now)

    def due_when_allowed(self, now: datetime) -> Self:
        """Return a copy of this session that is due as soon as a browser's request may ask the PSP.

        Anybody can cause a call of this method, for example by an unsigned webhook. Such calls must
        therefore not make the worker ask the PSP more often than a browser's requests could.
        """
        asked = self.asked(now)
        return asked.due_now(now) if asked else self.asked_later()

    def due_for_earlier_page(self, now: datetime) -> Self:
        """Return a copy of this session that is scheduled to check an earlier page.

        The copy is due at the earliest time at which a browser's request may again cause a question
        to the PSP, or at the present `due_at` if that is earlier. Settled sessions are scheduled
        too.
        """
        if not self._is_early(now):
            return replace(self, due_at=now, ask_again_at=now + ANSWERED_WITHIN)
        return replace(self, due_at=min(filter(None, (self.due_at, self.ask_again_at))))

    def waiting_for_earlier_page(self, now: datetime, *, since: Self) -> Self:
        """Return a copy of this session that is due soon for one of its earlier pages.

        The PSP has not reported the outcome of that page yet. The session is due in POLL_EVERY, or
        at its present `due_at` if that is earlier.

        `since` is the state of the session when it was leased. If a settled session still has the
        same `due_at` as `since`, that `due_at` is only the end of the lease. In this case, the
        session is due in POLL_EVERY, even if the lease ends earlier.
        """
        later = now + POLL_EVERY
        is_lease = self.is_settled and self.due_at == since.due_at
        return replace(
            self, due_at=later if self.due_at is None or is_lease else min(self.due_at, later)
        )

    def keeping_due_at(self, current: Self, *, since: Self) -> Self:
        """Return a copy of this session with any `due_at` that was set during the call to the PSP.

        `since` is the state of the session when the PSP was asked, and `current` is the state that
        is stored now. If their `due_at` differs, a webhook or a guest's return has made the session
        due meanwhile, and the result has the `due_at` of `current`. A settled session is returned
        unchanged, because it is not polled.
        """
        if self.is_settled or current.due_at in (None, since.due_at):
            return self
        return replace(self, due_at=current.due_at)


def next_poll_at(opened_at: datetime, now: datetime) -> datetime:
    """Return the next time at which to ask the PSP about a page that was opened at `opened_at`.

    The PSP is asked 30 seconds, 2 minutes and 10 minutes after `opened_at`, then every 10 minutes.
    """
    for wait in POLL_AFTER:
        if opened_at + wait > now:
            # The time is limited, in case the clock was ahead when the page was opened.
            return min(opened_at + wait, now + POLL_EVERY)
    rounds = (now - opened_at - POLL_AFTER[-1]) // POLL_EVERY + 1
    return opened_at + POLL_AFTER[-1] + POLL_EVERY * rounds
