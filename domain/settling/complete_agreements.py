"""Add the agreements that are missing because an earlier release stored the card.

The earlier release does not support agreements.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Final

from domain.agreements.agreement import general_among, last_kept_until
from domain.agreements.click import click_for
from domain.cards.account import longest_kept
from domain.events.note_event import NoteEvent
from domain.identifiers import AgreementId, TokenId
from domain.outside import Clock, Ids
from domain.sessions.session import CardSession
from domain.settling.judge import agreed_to
from domain.settling.store_agreement import store_agreement
from domain.storage import RecordUnreadable, Storage, WriteUnit

COMPLETED_WITHIN: Final = timedelta(days=7)
"""The time after the end of a session within which a missing agreement is added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteAgreements:
    """Use case: add agreements that are missing because an earlier release settled the sessions.

    During an upgrade, a process from an earlier release may store a card without its agreement, its
    `keep_until` and the consent that the guest read. Each session is completed in a separate
    commit, with the event `agreement.added`. Cards that were removed, and sessions that ended more
    than COMPLETED_WITHIN ago, do not change. May be called at any time, also by several processes
    at once. Raises ServiceUnavailable.
    """

    storage: Storage
    clock: Clock
    ids: Ids
    note_event: NoteEvent

    def __call__(self) -> Sequence[CardSession]:
        """Add the agreement to each session whose guest agreed, and return the other sessions.

        In the returned sessions, an earlier release showed the page without the text about the
        booking, so the guest did not agree to it.
        """
        now = self.clock.now()
        with self.storage.read() as unit:
            found = unit.sessions.without_agreement(since=now - COMPLETED_WITHIN)
        not_agreed: list[CardSession] = []
        for token_id in found:
            with suppress(RecordUnreadable):
                session = self.storage.transact(partial(self._complete, token_id=token_id))
                not_agreed.extend(filter(None, [session]))
        return not_agreed

    def _complete(self, unit: WriteUnit, token_id: TokenId) -> CardSession | None:
        """Add the agreement of one session. Return the session if its guest did not agree."""
        session = unit.sessions.get(token_id)
        # The guest may have been erased meanwhile, or another process may have completed the
        # session.
        if session is None or session.agreement is None or session.ended_at is None:
            return None
        on_file = unit.accounts.active_at(session.guest_id, session.center_id)
        account = next((each for each in on_file if each.account_id == session.account_id), None)
        of_guest = unit.agreements.of_guest(session.guest_id)
        if account is None or any(each.token_id == token_id for each in of_guest):
            return None
        consents = unit.consents.of(account)
        latest = max(consents, key=lambda each: each.agreed_at, default=None)
        is_latest = latest is not None and latest.token_id == token_id
        collected_at = account.consented_at if is_latest else session.ended_at
        number = session.current_attempt.request.attempt
        agreed = agreed_to(
            session,
            click_for(session.clicks or (), number, collected_at),
            collected_at,
            account_id=account.account_id,
            agreement_ids=[AgreementId(self.ids.uuid()) for _ in session.bookings],
        )
        if not agreed.agreements:
            # The earlier release does not store the consent in the account's consents.
            unit.consents.add(agreed.consent)
            unit.commit()
            return session
        agreements = [*unit.agreements.of_account(account.account_id), *agreed.agreements]
        general = general_among(consents, agreements)
        before = account.keep_until
        if not general and account.token_id in {each.token_id for each in agreements}:
            # The earlier release kept the card without an end date, although the guest agreed only
            # to charges for bookings.
            before = last_kept_until(agreements)
        version, keeps_until = account.consent_version, agreed.keep_until
        if account.has_withdrawn(agreed.consent.agreed_at):
            keeps_until = agreed.bookings_until
        if keeps_until is None:
            version = agreed.consent.version
        elif is_latest and before is None and general:
            # The general consent still holds, but the earlier release stored the version of the
            # text about the booking.
            version = general[0].version
        keep_until = longest_kept(keeps_until, before)
        unit.accounts.update(replace(account, keep_until=keep_until, consent_version=version))
        for agreement in agreed.agreements:
            store_agreement(
                unit,
                self.note_event,
                agreement,
                psp_account=account.psp_account,
                now=self.clock.now(),
            )
        # This comes last in the unit, as `add` requires.
        unit.consents.add(agreed.consent)
        unit.commit()
        return None
