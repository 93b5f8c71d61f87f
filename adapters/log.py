"""The log of the life of sessions, of erasures, and of cards that PSPs lose."""

from __future__ import annotations

from contextlib import suppress

import structlog
from typing_extensions import override

from domain.cards.account import Account
from domain.identifiers import GuestId
from domain.personal_data.erasure import ErasureLog
from domain.sessions.session_log import SessionLog, SessionStep

log = structlog.get_logger()


class LinesOfSessions(SessionLog):
    """Logs one line per step, without the token of the session, which opens its link."""

    @override
    def __call__(self, *steps: SessionStep) -> None:
        # The step is committed, whatever becomes of its line.
        with suppress(Exception):
            for step, session, reason, _ in steps:
                log.info(
                    step.value,
                    session=session.prefix,
                    guest_id=session.guest_id,
                    center_id=session.center_id,
                    provider=session.configuration.provider,
                    **({} if reason is None else {"reason": reason}),
                )


def log_lost_card(account: Account, reason: str) -> None:
    """Log an account that was removed because of what its PSP says. Never raises."""
    with suppress(Exception):
        log.warning(
            "card_lost",
            reason=reason,
            guest_id=account.guest_id,
            account_id=account.account_id,
            provider=account.provider,
            account=account.merchant_account,
        )


class LinesOfErasures(ErasureLog):
    """Logs who was erased, by id alone."""

    @override
    def __call__(self, guest_id: GuestId, *, is_done: bool) -> None:
        with suppress(Exception):
            if is_done:
                log.info("guest_erased_everywhere", guest_id=guest_id)
            else:
                log.info("guest_erased", guest_id=guest_id)

    @override
    def not_done(self, guest_id: GuestId) -> None:
        with suppress(Exception):
            log.error("erasure_not_done", guest_id=guest_id)
