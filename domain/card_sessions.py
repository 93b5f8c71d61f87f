"""Card-addition sessions: their states, and when each is looked at next.

A session is `open`, then `completed`, `failed` or `expired`. The one way out of an end is
`expired` → `completed`, when the PSP turns out to have the card after all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from domain.billing import BillingInfo
from domain.errors import Refusal
from domain.hosted_pages import HostedPage, HostedPageRequest, PageAttempt
from domain.identifiers import AccountId, CallerName, CenterId, GuestId, PspAccount, TokenId
from domain.patience import next_try
from domain.payment_configuration import PaymentConfiguration
from domain.sources import Source

MAX_ATTEMPTS: Final = 20
"""How many pages one session may ask for; each may prolong it, and every session must end."""

ASK_AFTER: Final = (timedelta(seconds=30), timedelta(minutes=2), timedelta(minutes=10))
ASK_EVERY: Final = timedelta(minutes=10)


class SessionStatus(StrEnum):
    """The states of a card-addition session."""

    OPEN = "open"
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"


class Asked(NamedTuple):
    """What a client asked for, as read: two requests that are the same give the same.

    `guest_id` is None where it was no UUID.
    """

    guest_id: str | None
    center_id: CenterId
    redirect_uri: str
    source: Source
    billing_info: BillingInfo | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a session failed: the code and message of the refusal."""

    code: int
    message: str


class DueSession(NamedTuple):
    """A session that is due, and where its PSP is asked."""

    token_id: TokenId
    psp_account: PspAccount


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSession:
    """One addition of a card, from the request to its end.

    `configuration` is the center's payment configuration as it was at add-card. `expires_at` is
    when the link must be opened, then when its page ends. `due_at` is when the reconciler looks
    at the session next, None for not until a webhook says so. `unanswered_since` is set while the
    PSP leaves our questions without an answer.
    """

    token_id: TokenId
    guest_id: GuestId
    center_id: CenterId
    caller: CallerName
    source: Source
    redirect_uri: str
    billing_info: BillingInfo | None
    configuration: PaymentConfiguration
    created_at: datetime
    expires_at: datetime
    due_at: datetime | None
    status: SessionStatus = SessionStatus.OPEN
    attempt: PageAttempt | None = None
    unanswered_since: datetime | None = None
    account_id: AccountId | None = None
    failure: Failure | None = None
    ended_at: datetime | None = None

    @property
    def asked_for(self) -> Asked:
        """What the client asked for, to compare another request under the same key with."""
        return Asked(
            guest_id=self.guest_id,
            center_id=self.center_id,
            redirect_uri=self.redirect_uri,
            source=self.source,
            billing_info=self.billing_info,
        )

    @property
    def is_settled(self) -> bool:
        """Tell whether nothing can change any more: the card is stored, or was refused."""
        return self.status in (SessionStatus.COMPLETED, SessionStatus.FAILED)

    @property
    def current_attempt(self) -> PageAttempt:
        """The attempt that is under way, or was the last. Raises RuntimeError before the first."""
        if self.attempt is None:
            raise RuntimeError("the session has asked for no page yet")
        return self.attempt

    def has_page_of(self, earlier: CardSession) -> bool:
        """Tell whether its page is still the one that it had earlier, and no later one."""
        return self.current_attempt.request == earlier.current_attempt.request

    def is_past_end(self, now: datetime) -> bool:
        """Tell whether the time to open the link, or to use its page, is over."""
        return self.status is SessionStatus.EXPIRED or now >= self.expires_at

    def due_now(self, now: datetime) -> CardSession:
        """Note that there is news of the session at the PSP."""
        return replace(self, due_at=now)

    def with_attempt(self, request: HostedPageRequest) -> CardSession:
        """Note an attempt before the PSP is asked for its page."""
        return _due_on_schedule(
            replace(self, attempt=PageAttempt(request=request)), request.begun_at
        )

    def with_page(self, page: HostedPage, now: datetime) -> CardSession:
        """Note the page that the PSP made; the session now ends with it.

        A session that is past its end stays so: its guest has been told.
        """
        attempt = replace(self.current_attempt, page=page)
        expires_at = self.expires_at if self.is_past_end(now) else page.ends_at
        return _due_on_schedule(replace(self, attempt=attempt, expires_at=expires_at), now)

    def nothing_new(self, now: datetime) -> CardSession:
        """Note that the PSP had nothing to tell; it is asked again when the schedule says so."""
        return _due_on_schedule(self, now)

    def asked_in_vain(self, now: datetime) -> CardSession:
        """Note that the PSP did not answer; it is asked less and less often."""
        since = self.unanswered_since or now
        return replace(self, unanswered_since=since, due_at=next_try(since, now))

    def completed(self, account_id: AccountId, now: datetime) -> CardSession:
        """End the session with its card stored."""
        return replace(_ended(self, SessionStatus.COMPLETED, now), account_id=account_id)

    def failed(self, refusal: Refusal, now: datetime) -> CardSession:
        """End the session because our rules refuse the card that the PSP collected.

        An expired session stays expired.
        """
        if self.status is SessionStatus.EXPIRED:
            return _answered(replace(self, due_at=None))
        failure = Failure(code=refusal.code, message=refusal.message)
        return replace(_ended(self, SessionStatus.FAILED, now), failure=failure)

    def without_card(self, now: datetime) -> CardSession:
        """Note that there is no page, or that it has died without a card and never will have one.

        Past its end the session expires; before, its link may start another attempt.
        """
        attempt = self.attempt and replace(self.attempt, over=True)
        over = _answered(replace(self, attempt=attempt))
        if self.status is SessionStatus.EXPIRED:
            return replace(over, due_at=None)
        if self.is_past_end(now):
            return _ended(over, SessionStatus.EXPIRED, now)
        return replace(over, due_at=self.expires_at)

    def waiting_until(self, due_at: datetime) -> CardSession:
        """Note that the answer cannot be applied before something else is done."""
        return _answered(replace(self, due_at=due_at))


def _ended(session: CardSession, status: SessionStatus, now: datetime) -> CardSession:
    return _answered(replace(session, status=status, ended_at=now, due_at=None))


def _answered(session: CardSession) -> CardSession:
    return replace(session, unanswered_since=None)


def _due_on_schedule(session: CardSession, now: datetime) -> CardSession:
    next_question = next_question_at(session.current_attempt.request.begun_at, now)
    return _answered(replace(session, due_at=min(next_question, session.expires_at)))


def next_question_at(opened_at: datetime, now: datetime) -> datetime:
    """Give when the PSP is asked next about a page that was opened at `opened_at`.

    30 seconds, 2 minutes and 10 minutes after the opening, and every 10 minutes from then on.
    """
    for wait in ASK_AFTER:
        if opened_at + wait > now:
            return opened_at + wait
    rounds = (now - opened_at - ASK_AFTER[-1]) // ASK_EVERY + 1
    return opened_at + ASK_AFTER[-1] + ASK_EVERY * rounds
