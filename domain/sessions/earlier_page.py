"""Earlier pages of a session, on which the PSP may still have collected a card."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from domain.identifiers import MerchantAccount, ProviderName, TokenId
from domain.psps.hosted_page import CardRefused, PageAttempt, PageUnknown, Pending, Reported
from domain.psps.payment_provider import is_confirmed
from domain.sessions.session import CardSession


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierPage:
    """An earlier page of a session.

    Either the page was over without a card when the session's next page was created, or the guest
    left it to use a card on file. The request of its `attempt` does not contain personal data.
    `number` is the number of the attempt. `told_at` is when the page became due for a check, for
    example because of a webhook. It is None if the PSP need not be asked about the page.
    """

    token_id: TokenId
    number: int
    provider: ProviderName
    merchant_account: MerchantAccount
    page_reference: str
    attempt: PageAttempt
    told_at: datetime | None = None

    @classmethod
    def of(cls, session: CardSession) -> EarlierPage:
        """Return the session's current page as an earlier page.

        Call this before another page replaces the current page. The session must have a page.
        """
        attempt = session.current_attempt.without_personal_data()
        return cls(
            token_id=session.token_id,
            number=attempt.request.attempt,
            provider=session.configuration.provider,
            merchant_account=attempt.request.merchant_account,
            page_reference=attempt.page.reference if attempt.page else "",
            attempt=attempt,
        )

    def due_for_check(self, now: datetime) -> EarlierPage:
        """Return a copy of this page that is due for a check, so that the PSP is asked about it."""
        return replace(self, told_at=now)

    def answered(self, reported: Reported, now: datetime) -> EarlierPage:
        """Return the new state of this page after the PSP was asked about it.

        The PSP is asked again unless its answer is final.
        """
        match reported:
            case None:
                return self
            case PageUnknown() if not is_confirmed(self.attempt.unknown_since, now):
                return replace(self, attempt=self.attempt.unknown(now))
            case Pending() | CardRefused():
                return replace(self, attempt=replace(self.attempt, unknown_since=None))
            case _:
                return replace(self, told_at=None)


class EarlierPages(Protocol):
    """Repository of earlier pages. Lock the session before you change one of its pages."""

    def keep(self, page: EarlierPage) -> None:
        """Store a page, or replace the stored one."""
        ...

    def of(self, token_id: TokenId) -> Sequence[EarlierPage]:
        """Return the earlier pages of a session, oldest first."""
        ...

    def remove(self, token_id: TokenId, number: int | None = None) -> None:
        """Delete the earlier page with this number, or all earlier pages of a session."""
        ...
