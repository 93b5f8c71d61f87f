"""Ask the PSP what has become of a session, and apply the answer once.

The browser's return, a verified webhook and the reconciler all end here. Whoever comes first
stores the card; whoever comes later finds it stored.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from domain.billing import AvsResult
from domain.card_sessions import CardSession, DueSession
from domain.discard_tokens import note_discard, note_discard_of
from domain.errors import (
    GuestNotFound,
    IncorrectBillingAddress,
    InvalidCenterId,
    PaymentConfigurationNotDone,
    PaymentMethodAlreadyExists,
    Refusal,
    ServiceUnavailable,
)
from domain.hosted_pages import CardCollected, Evidence, NoCardCollected, Outcome, PageClosed
from domain.identifiers import AccountId, PspAccount, TokenId
from domain.obtain_page import ObtainPage
from domain.patience import GIVEN_BACK_AFTER
from domain.payment_accounts import PaymentAccount
from domain.payment_configuration import CardsPerGuest
from domain.ports import (
    Clock,
    Ids,
    ProviderRefused,
    Providers,
    ProviderUnavailable,
    Storage,
    WriteUnit,
)

WAIT_FOR_DISCARD: Final = timedelta(seconds=5)

_COLLECTED: Final = (CardCollected, NoCardCollected)
"""The outcomes with a token that the PSP can charge: it is stored, or discarded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleSession:
    """Use case: bring a session as far as the PSP's answer allows.

    May be called any number of times, by several at once: the answer is applied to the session as
    it is when read again under the write lock. A PSP that does not answer is asked again later.
    Raises ServiceUnavailable.
    """

    storage: Storage
    providers: Providers
    obtain_page: ObtainPage
    clock: Clock
    ids: Ids

    def take(self, *, except_at: Collection[PspAccount] = ()) -> DueSession | None:
        """Take the session that has been due the longest, for a minute; None when none is due.

        Sessions of the merchant accounts `except_at` are left where they are. Nothing is written
        when none is due.
        """
        now = self.clock.now()
        with self.storage.read() as unit:
            if not unit.sessions.is_any_due(now, except_at=except_at):
                return None

        def take(unit: WriteUnit) -> DueSession | None:
            session = unit.sessions.take_due(now, until=now + GIVEN_BACK_AFTER, except_at=except_at)
            unit.commit()
            return session

        return self.storage.transact(take)

    def __call__(self, token_id: TokenId) -> CardSession | None:
        """Ask and apply; gives the session as it is then, None when there is none."""
        with self.storage.read() as unit:
            session = unit.sessions.get(token_id)
        if session is None or session.is_settled:
            return session
        outcome: Outcome | None
        try:
            if session.attempt is not None and session.attempt.is_unanswered:
                session = self.obtain_page(session)
            outcome = self._ask(session)
        except (ProviderUnavailable, ProviderRefused):
            outcome = None
        return self._apply(session, outcome)

    def _ask(self, session: CardSession) -> Outcome:
        attempt = session.attempt
        if attempt is None or attempt.page is None:
            return PageClosed()
        provider = self.providers[session.configuration.provider]
        evidence = self._evidence_on(session.token_id)
        outcome = provider.outcome(attempt.request, attempt.page, evidence)
        if isinstance(outcome, _COLLECTED) or not session.is_past_end(self.clock.now()):
            return outcome
        # A guest may be typing to the last second. Only a closed page cannot bring a card any more.
        provider.close(attempt.request, attempt.page)
        last = provider.outcome(attempt.request, attempt.page, self._evidence_on(session.token_id))
        return last if isinstance(last, _COLLECTED) else PageClosed()

    def _evidence_on(self, token_id: TokenId) -> Sequence[Evidence]:
        with self.storage.read() as unit:
            return unit.evidence.of(token_id)

    def _apply(self, seen: CardSession, outcome: Outcome | None) -> CardSession:
        now = self.clock.now()

        def apply(unit: WriteUnit) -> CardSession:
            session = unit.sessions.get(seen.token_id) or seen
            if isinstance(outcome, _COLLECTED) and not session.has_page_of(seen):
                # It was typed on an earlier page. If it ended the session, nobody would ask about
                # the page that the guest is typing on.
                _give_up(unit, session, outcome, now)
                unit.commit()
                return session
            if session.is_settled:
                return session
            if isinstance(outcome, CardCollected):
                changed = self._judge(unit, session, outcome, now)
            elif isinstance(outcome, NoCardCollected):
                _give_up(unit, session, outcome, now)
                changed = session.without_card(now)
            elif session.attempt != seen.attempt:
                # The answer is about an attempt that has been followed by another.
                return session
            elif outcome is None:
                changed = session.asked_in_vain(now)
            elif isinstance(outcome, PageClosed):
                changed = session.without_card(now)
            else:
                changed = session.nothing_new(now)
            if not changed.is_settled and session.due_at not in (None, seen.due_at):
                # A webhook has marked the session due since the PSP was asked.
                changed = replace(changed, due_at=session.due_at)
            unit.sessions.update(changed)
            unit.commit()
            return changed

        return self.storage.transact(apply)

    def _judge(
        self, unit: WriteUnit, session: CardSession, collected: CardCollected, now: datetime
    ) -> CardSession:
        """Store the card, or refuse it and note that its token is to be discarded."""
        configuration = session.configuration
        discard = unit.discards.get(
            configuration.provider, configuration.merchant_account, collected.card.token
        )
        if discard is not None and discard.begun_at is not None:
            if discard.due_at is not None:
                return session.waiting_until(max(discard.due_at, now + WAIT_FOR_DISCARD))
            if discard.outlasts(collected.collected_at):
                _give_up(unit, session, collected, now)
                return session.without_card(now)
        try:
            account = self._store(unit, session, collected, now)
        except ServiceUnavailable:
            # It says nothing of the card, which is judged when the storage is back.
            raise
        except Refusal as refusal:
            _give_up(unit, session, collected, now)
            return session.failed(refusal, now)
        if discard is not None:
            unit.discards.remove(discard)
        return session.completed(account.account_id, now)

    def _store(
        self, unit: WriteUnit, session: CardSession, collected: CardCollected, now: datetime
    ) -> PaymentAccount:
        """Store the card as an account, or renew the account of the same card.

        Raises the refusal that the session fails with.
        """
        configuration, card = session.configuration, collected.card
        _require_still_wanted(unit, session, collected)
        consent_version = session.current_attempt.request.consent.version
        stored = unit.accounts.active_at(session.guest_id, session.center_id)
        for account in stored:
            if account.is_same_card(card, configuration):
                is_old_news = collected.collected_at < account.consented_at
                if account.expires_with(card) or is_old_news:
                    raise PaymentMethodAlreadyExists
                renewed = account.renewed(
                    card, consent_version=consent_version, consented_at=collected.collected_at
                )
                unit.accounts.update(renewed)
                note_discard_of(unit, account, now=now)
                return renewed
        if stored and configuration.cards_per_guest is CardsPerGuest.ONE:
            raise PaymentMethodAlreadyExists
        account = PaymentAccount(
            **asdict(card),
            account_id=AccountId(self.ids.uuid()),
            token_id=session.token_id,
            guest_id=session.guest_id,
            center_id=session.center_id,
            provider=configuration.provider,
            merchant_account=configuration.merchant_account,
            source=session.source,
            consent_version=consent_version,
            consented_at=collected.collected_at,
            created_at=now,
        )
        unit.accounts.add(account)
        return account


def _give_up(
    unit: WriteUnit,
    session: CardSession,
    collected: CardCollected | NoCardCollected,
    now: datetime,
) -> None:
    """Have what was collected discarded, because it is not stored."""
    held = collected.card if isinstance(collected, CardCollected) else collected
    note_discard(
        unit,
        session.configuration.provider,
        session.configuration.merchant_account,
        held.guest_reference,
        held.token,
        collected_at=collected.collected_at,
        now=now,
    )


def _require_still_wanted(unit: WriteUnit, session: CardSession, collected: CardCollected) -> None:
    """Raise the refusal of a card whose address is wrong, or whose place is gone meanwhile."""
    if unit.guests.get(session.guest_id) is None:
        raise GuestNotFound
    if unit.centers.get(session.center_id) is None:
        raise InvalidCenterId
    if unit.configurations.get(session.center_id) is None:
        raise PaymentConfigurationNotDone
    if session.configuration.avs and collected.avs is AvsResult.MISMATCH:
        raise IncorrectBillingAddress
