"""Log lines about sessions, erasures, and cards that guests remove or PSPs lose."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

import structlog
from typing_extensions import override

from domain.cards.account import Account
from domain.cards.take_back import BY_GUEST
from domain.identifiers import GuestId, PspAccount
from domain.personal_data.erasure import ErasureLog
from domain.sessions.session_log import SessionLog, SessionStep

log = structlog.get_logger()


class LinesOfSessions(SessionLog):
    """Logs one line for each step of a session.

    A line contains only a prefix of the session's token, because the whole token is enough to open
    the page of a session from an earlier release.
    """

    @override
    def __call__(self, *steps: SessionStep) -> None:
        # The step is committed already, so a failure to log it must not matter.
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
    """Log that an account was removed after its card was read at the PSP. Never raises.

    `reason` is `gone_at_psp` if the PSP no longer has the card, or `replaced` if the guest has the
    same card in another account.
    """
    with suppress(Exception):
        log.warning(
            "card_lost",
            reason=reason,
            guest_id=account.guest_id,
            account_id=account.account_id,
            provider=account.provider,
            account=account.merchant_account,
        )


def log_taken_back(account: Account) -> None:
    """Log that a guest removed an account, or withdrew the consent to it. Never raises.

    After a backup was restored, these lines show what guests have done since the backup.
    """
    with suppress(Exception):
        named = {"account_id": account.account_id, "guest_id": account.guest_id}
        if account.removed_at is None:
            log.info("consent_withdrawn", **named)
        else:
            log.info("card_removed", **named, caller=BY_GUEST)


def log_stopped_removal(psp_account: PspAccount) -> None:
    """Log that cards unknown to the PSP are no longer removed. Never raises.

    Too many cards of the merchant account are unknown to the PSP, so the keys may be wrong.
    """
    with suppress(Exception):
        provider, account = psp_account
        log.error(
            "unknown_cards_kept",
            provider=provider,
            account=account,
            do=f"check the keys (cardonfile psp check {provider}); if they are right, confirm them: "
            f"cardonfile psp confirm-keys {provider} --account {account}",
        )


class LinesOfErasures(ErasureLog):
    """Logs erasures. The lines contain only the id of the guest."""

    @override
    def __call__(
        self, guest_id: GuestId, *, is_done: bool, out_of_reach: Collection[PspAccount] = ()
    ) -> None:
        with suppress(Exception):
            if out_of_reach:
                log.warning(
                    "erasure_out_of_reach", guest_id=guest_id, accounts=_names(out_of_reach)
                )
            elif is_done:
                log.info("guest_erased_everywhere", guest_id=guest_id)
            else:
                log.info("guest_erased", guest_id=guest_id)

    @override
    def not_done(self, guest_id: GuestId, waits_for: Collection[PspAccount]) -> None:
        with suppress(Exception):
            log.error(
                "erasure_not_done",
                guest_id=guest_id,
                waits_for=_names(waits_for),
                do="check that the PSP is set up and responds (cardonfile doctor); if the merchant "
                "account is permanently closed: cardonfile psp close-account",
            )


def _names(accounts: Collection[PspAccount]) -> list[str]:
    return ["/".join(account) for account in accounts]
