"""Settle a session: ask the PSP for the outcome of its page, and apply the outcome once.

A session is settled when its link is opened, when the browser returns, after a cancellation, and by
the worker, for example after a webhook. The first of these calls stores the card, and the others
find it stored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, NamedTuple

from domain.agreements.agreement import count_open
from domain.audit.note_act import NoteAct
from domain.cards.account import Account
from domain.cards.discard_tokens import note_discard
from domain.cards.note_account_event import note_account_event
from domain.centers.card_limit import CardLimit
from domain.events.note_event import NoteEvent
from domain.identifiers import AccountId, AgreementId, PspAccount, TokenId
from domain.outside import Clock, Ids, Traces
from domain.psps.evidence import Evidence
from domain.psps.hosted_page import (
    CardCollected,
    NoCardCollected,
    Outcome,
    PageClosed,
    PageUnknown,
    Pending,
    Reported,
)
from domain.psps.payment_provider import (
    NotFound,
    ProviderRefused,
    Providers,
    ProviderUnavailable,
)
from domain.retries import LEASE
from domain.sessions.card_testing import must_close_page
from domain.sessions.earlier_page import EarlierPage
from domain.sessions.session import CardSession, DueSession
from domain.sessions.session_log import SessionLog, SessionStep, Step, steps_between
from domain.settling.judge import OnFile, Verdict, judge, judge_card, judge_token
from domain.settling.note_end_of_session import note_end_of_session
from domain.settling.note_refused_cards import ask_about_open_pages, note_refused_cards
from domain.settling.obtain_page import ObtainPage
from domain.settling.store_agreement import store_agreement
from domain.settling.take_replaced import may_agree_again, take_replaced
from domain.storage import Storage, WriteUnit, take_due

_COLLECTED: Final = (CardCollected, NoCardCollected)
"""The outcomes with a token that the PSP can charge. The token is stored or discarded."""


class _Applied(NamedTuple):
    """A session after an outcome was applied, and the steps that this caused.

    `taken_back` is the old card that the session's card has replaced, or None.
    """

    session: CardSession
    steps: Sequence[SessionStep]
    taken_back: Account | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleSession:
    """Use case: ask the PSP about a session, and store its card or end the session.

    May be called any number of times, also by several processes at once, because the session is
    read under lock before the outcome is applied. If the PSP does not respond, the session becomes
    due later. If too many cards of the guest were refused, according to `limits`, the page is
    closed, but the session stays open. A session at a closed merchant account ends without a call
    to the PSP.

    If the session's card has replaced a card, `log_taken_back` is called with the old card after
    the commit. Raises ServiceUnavailable.
    """

    storage: Storage
    limits: Sequence[CardLimit]
    providers: Providers
    obtain_page: ObtainPage
    clock: Clock
    ids: Ids
    traces: Traces
    note_event: NoteEvent
    note_act: NoteAct
    log: SessionLog
    log_taken_back: Callable[[Account], None]

    def take(self, *, except_at: Collection[PspAccount] = ()) -> DueSession | None:
        """Lease a session that is due and return it, or return None if no session is due.

        The lease lasts one minute. Merchant accounts take turns, and those in `except_at` are left
        out. If no session is due, nothing is written.
        """
        now = self.clock.now()
        return take_due(
            self.storage,
            lambda unit: unit.sessions.is_any_due(now, except_at=except_at),
            lambda unit: unit.sessions.take_due(now, until=now + LEASE, except_at=except_at),
        )

    def __call__(self, token_id: TokenId) -> CardSession | None:
        """Ask the PSP and apply the outcome.

        Return the updated session, or None if it does not exist.
        """
        with self.storage.read() as unit:
            session = unit.sessions.get(token_id)
            if session is None:
                return None
            is_closed = unit.merchant_standings.of(session.configuration.psp_account).is_closed
            to_check = [
                page for page in unit.earlier_pages.of(token_id) if page.told_at is not None
            ]
        with self.traces.following(session.trace):
            return self._settle(session, to_check, is_closed=is_closed)

    def _settle(
        self, session: CardSession, to_check: Sequence[EarlierPage], *, is_closed: bool
    ) -> CardSession:
        if is_closed:
            return self._end_unasked(session)
        for page in to_check:
            session = self._settle_earlier(session, page)
        if session.is_settled:
            return session
        asked, outcome = self._reported(session)
        now = self.clock.now()
        applied = self.storage.transact(lambda unit: self._apply(unit, asked, outcome, now))
        return self._follow(applied, now)

    def _settle_earlier(self, session: CardSession, page: EarlierPage) -> CardSession:
        """Ask the PSP about an earlier page, because a webhook reported something about it.

        The card of the page is stored if the session has neither a card nor an open page, and the
        token was not discarded after the card was collected. In all other cases, the token is
        discarded.
        """
        asked, outcome = self._reported(replace(session, attempt=page.attempt))
        now = self.clock.now()

        def apply(unit: WriteUnit) -> _Applied:
            current = unit.sessions.get(session.token_id) or session
            if page in unit.earlier_pages.of(session.token_id):
                # If the stored page differs, another webhook arrived in the meantime. The stored
                # page then stays, so that the PSP is asked again.
                unit.earlier_pages.keep(page.answered(outcome, now))
            if isinstance(outcome, CardCollected) and _may_go_back(unit, current, outcome):
                unit.earlier_pages.remove(session.token_id, page.number)
                if current.has_page:
                    unit.earlier_pages.keep(EarlierPage.of(current))
                unit.sessions.update(replace(current, attempt=page.attempt, not_accepted=None))
            return self._apply(unit, asked, outcome, now)

        return self._follow(self.storage.transact(apply), now)

    def _follow(self, applied: _Applied, now: datetime) -> CardSession:
        """Do what follows the commit: log the steps, and make the guest's other pages due."""
        settled, steps, taken_back = applied
        self.log(*steps)
        if taken_back is not None:
            self.log_taken_back(taken_back)
        refusals = (Step.DECLINED, Step.NOT_ACCEPTED, Step.REFUSED)
        if any(each.step in refusals for each in steps):
            ask_about_open_pages(self.storage, self.limits, settled, now)
        return settled

    def _reported(self, session: CardSession) -> tuple[CardSession, Reported]:
        """Ask the PSP about the session, and return the session and the report.

        If the session's page is not created yet, it is created first.
        """
        try:
            if session.attempt is not None and session.attempt.is_unanswered:
                session = self.obtain_page(session)
            return session, self._ask(session)
        except NotFound:
            return session, PageUnknown()
        except (ProviderUnavailable, ProviderRefused):
            return session, None

    def _end_unasked(self, session: CardSession) -> CardSession:
        """End a session at a closed merchant account, as if its client had cancelled it."""
        now = self.clock.now()

        def end(unit: WriteUnit) -> tuple[CardSession, CardSession]:
            current = unit.sessions.get(session.token_id) or session
            ended = current.cancelled(now).expired(now)
            if ended != current:
                unit.sessions.update(ended)
                unit.earlier_pages.remove(current.token_id)
                unit.erasures.reopen(current.guest_id, now)
                note_end_of_session(unit, self.note_event, current, ended, now=now)
                unit.commit()
            return current, ended

        current, ended = self.storage.transact(end)
        self.log(*steps_between(current, ended))
        return ended

    def _ask(self, session: CardSession) -> Outcome:
        attempt = session.attempt
        if attempt is None or attempt.page is None:
            return PageClosed()
        provider = self.providers[session.configuration.provider]
        outcome = provider.outcome(attempt.request, attempt.page, self._evidence(session))
        if isinstance(outcome, _COLLECTED) or not self._must_close(session):
            return outcome
        # Close the page before the last question, so that no card can be collected after the
        # question.
        provider.close(attempt.request, attempt.page)
        last = provider.outcome(attempt.request, attempt.page, self._evidence(session))
        if isinstance(last, _COLLECTED):
            return last
        # A PSP may report a card late, or may be unable to close a page. While the link lives, no
        # other page is made until the PSP says that this page has no card, because nobody would ask
        # about this page again.
        now = self.clock.now()
        takes_cards = now < attempt.page.ends_at and not isinstance(last, PageClosed)
        if takes_cards or (isinstance(last, Pending) and not session.is_past_end(now)):
            return last
        return PageClosed(
            refused_cards=max(outcome.refused_cards, last.refused_cards),
            refusal_code=last.refusal_code or outcome.refusal_code,
        )

    def _must_close(self, session: CardSession) -> bool:
        now = self.clock.now()
        if session.is_settled or session.is_page_past_end(now):
            return True
        with self.storage.read() as unit:
            return must_close_page(unit, self.limits, session, now)

    def _evidence(self, session: CardSession) -> Sequence[Evidence]:
        with self.storage.read() as unit:
            return unit.evidence.of(session.token_id)

    def _apply(
        self, unit: WriteUnit, asked: CardSession, outcome: Reported, now: datetime
    ) -> _Applied:
        """Judge the outcome by the records stored now, and store the verdict."""
        current = unit.sessions.get(asked.token_id) or asked
        if (
            isinstance(outcome, CardCollected)
            and not current.is_settled
            and current.has_page_of(asked)
        ):
            verdict = self._judge_card(unit, current, outcome, now)
        else:
            verdict = judge(asked, current, outcome, now) or Verdict(session=current)
        if verdict.added is not None:
            unit.accounts.add(verdict.added)
        for account in filter(None, (verdict.renewed, verdict.doubted, verdict.kept)):
            unit.accounts.update(account)
        unkept = verdict.unkept
        is_discarded = unkept is not None and note_discard(unit, unkept, now=now)
        if verdict.withdrawn is not None:
            unit.discards.remove(verdict.withdrawn)
        changed = verdict.session.keeping_due_at(current, since=asked).answered(now)
        changed = _due_for_earlier_pages(unit, changed, now, since=asked)
        unit.sessions.update(changed)
        if current.is_over:
            # If the guest was erased, the PSP's evidence is deleted too.
            unit.erasures.reopen(current.guest_id, now)
        declined = note_refused_cards(unit, self.note_event, asked, outcome, changed, now=now)
        token_id = current.token_id
        for event_type, account in verdict.account_events:
            note_account_event(
                unit,
                self.note_event,
                event_type,
                account,
                token_id=token_id,
                language=verdict.consent.language if verdict.consent else None,
                reference=current.reference,
                now=now,
            )
        for agreement in verdict.agreements:
            store_agreement(
                unit,
                self.note_event,
                agreement,
                psp_account=current.configuration.psp_account,
                now=now,
            )
        taken_back = None
        if not current.is_settled:
            taken_back = take_replaced(unit, self.note_event, self.note_act, changed, now)
        note_end_of_session(unit, self.note_event, current, changed, now=now)
        if verdict.consent is not None:
            unit.consents.add(verdict.consent)
        unit.commit()
        steps = _steps(current, changed, outcome, verdict, declined, is_discarded)
        return _Applied(changed, steps, taken_back)

    def _judge_card(
        self, unit: WriteUnit, session: CardSession, collected: CardCollected, now: datetime
    ) -> Verdict:
        """Judge a card by the records stored now.

        The guest is locked before the token, as everywhere else.
        """
        accounts = unit.accounts.active_at(session.guest_id, session.center_id)
        discard = unit.discards.get(*session.configuration.psp_account, collected.token)
        # The token is checked first, because a token that must not be kept is discarded in any
        # case.
        verdict = judge_token(session, collected, discard, now)
        if verdict is not None:
            return verdict
        replaced = [each.replaces for each in session.bookings]
        on_file = OnFile(
            accounts=accounts,
            open_agreements={
                each.account_id: count_open(
                    unit.agreements.of_account(each.account_id), now, except_for=replaced
                )
                for each in accounts
            }
            if session.bookings
            else {},
            discard=discard,
            has_guest=unit.guests.get(session.guest_id) is not None,
            has_center=unit.centers.get(session.center_id) is not None,
            has_configuration=unit.configurations.get(session.center_id) is not None,
            has_bookings=session.replaces is None or may_agree_again(unit, session),
            removed_by_guest=unit.accounts.removed_by_guest(session.guest_id, session.center_id),
        )
        account_id = AccountId(self.ids.uuid())
        agreement_ids = [AgreementId(self.ids.uuid()) for _ in session.bookings]
        return judge_card(
            session,
            collected,
            on_file,
            account_id=account_id,
            agreement_ids=agreement_ids,
            now=now,
        )


def _may_go_back(unit: WriteUnit, session: CardSession, collected: CardCollected) -> bool:
    """Return whether the card of an earlier page may be stored.

    The guest is locked before the token, as everywhere else.
    """
    unit.accounts.active_at(session.guest_id, session.center_id)
    discard = unit.discards.get(*session.configuration.psp_account, collected.token)
    is_dead = discard is not None and discard.invalidates(collected.collected_at)
    return session.may_go_back and not is_dead


def _due_for_earlier_pages(
    unit: WriteUnit, session: CardSession, now: datetime, *, since: CardSession
) -> CardSession:
    """Return a copy of the session that is due soon, if an earlier page must still be checked.

    Otherwise, return a settled session as no longer due, and any other session unchanged. `since`
    is the state of the session when the PSP was asked.
    """
    if any(page.told_at is not None for page in unit.earlier_pages.of(session.token_id)):
        return session.waiting_for_earlier_page(now, since=since)
    return session.postponed(None) if session.is_settled else session


def _steps(
    current: CardSession,
    changed: CardSession,
    outcome: Reported,
    verdict: Verdict,
    declined: int,
    is_discarded: bool,
) -> Sequence[SessionStep]:
    """Return the steps of the session and its cards, in the order in which they are logged.

    `current` and `changed` are the session before and after the outcome. `declined` is how many
    cards the PSP has newly refused. `is_discarded` is whether the discard of a token was scheduled.
    """
    steps = [SessionStep(Step.DECLINED, changed) for _ in range(declined)]
    if steps and outcome is not None:
        # The PSP gives a reason for the last refused card only.
        steps[-1] = SessionStep(Step.DECLINED, changed, outcome.refusal_code)
    collected_at = outcome.collected_at if isinstance(outcome, CardCollected) else None
    ended: list[SessionStep] = []
    if verdict.added is not None:
        ended.append(SessionStep(Step.STORED, changed, None, collected_at))
    if verdict.renewed is not None:
        ended.append(SessionStep(Step.RENEWED, changed, None, collected_at))
    ended.extend(steps_between(current, changed))
    if is_discarded:
        ended.append(SessionStep(Step.DISCARD_SCHEDULED, changed))
    # A card that was not accepted was logged when its page was over.
    if ended and collected_at is not None and current.not_accepted is None:
        steps.append(SessionStep(Step.COLLECTED, changed))
    return [*steps, *ended]
