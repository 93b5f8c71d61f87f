"""End agreements because the shop says so, or because the booking is over."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from domain.agreements.agreement import (
    Agreement,
    EndOfAgreement,
    last_kept_until,
    running_among,
)
from domain.agreements.terms import parse_time
from domain.audit.entry import Action
from domain.audit.note_act import NoteAct
from domain.cards.account import Account
from domain.cards.find_agreement import agreement_of_guest
from domain.cards.note_agreement_event import note_agreement_event
from domain.errors import AgreementNotFound, InvalidField
from domain.events.event import EventType
from domain.events.note_event import NoteEvent
from domain.outside import Clock
from domain.permissions import MAY_ADD_CARDS, Caller
from domain.storage import Storage, WriteUnit, do_due

STATED: Final = tuple(each for each in EndOfAgreement if each is not EndOfAgreement.REPLACED)
"""The reasons that a shop may state for the end of an agreement."""
EXPECTED_REASON: Final = f"one of {', '.join(STATED)}"
MAX_PER_CALL: Final = 100
"""The maximum number of agreements that one call ends. During a call, the worker's other tasks
wait.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndAgreement:
    """Use case: end an agreement, for a reason that the shop states.

    After the end, the card is still kept for the grace period that the guest read about, unless the
    guest removed the card or withdrew the consent. If the agreement has already ended because the
    booking was over, only the reason is recorded. A later call does not change the first reason, so
    the call may be repeated. The audit trail notes the caller. Raises UserNotAuthorized,
    InvalidField (reason, at), or AgreementNotFound if the guest has no such agreement at a center
    that the caller may see.
    """

    needs = MAY_ADD_CARDS

    storage: Storage
    clock: Clock
    note_event: NoteEvent
    note_act: NoteAct

    def __call__(
        self,
        caller: Caller,
        *,
        guest_id: str,
        agreement_id: str,
        reasons: Sequence[str],
        ats: Sequence[str],
    ) -> None:
        """End the agreement.

        `reasons` and `ats` contain the unparsed values of the query parameters `reason` and `at`.
        """
        caller.require(self.needs)
        if len(reasons) != 1 or reasons[0] not in STATED:
            raise InvalidField("reason", EXPECTED_REASON)
        if len(ats) > 1:
            raise InvalidField("at", "given once")
        stated_at = parse_time("at", ats[0]) if ats else None
        with self.storage.read() as unit:
            found = agreement_of_guest(unit, caller, guest_id=guest_id, agreement_id=agreement_id)
        reason, now = EndOfAgreement(reasons[0]), self.clock.now()

        def end(unit: WriteUnit) -> None:
            if end_agreement(unit, self.note_event, found, reason, now, stated_at=stated_at):
                # The end of an agreement may lead to the removal of the card.
                details = {"guest": found.guest_id, "reason": reason}
                about = found.agreement_id
                self.note_act(unit, Action.AGREEMENT_ENDED, about, details, caller=caller)
                unit.commit()

        self.storage.transact(end)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndAgreements:
    """Use case: end a limited number of agreements whose bookings are over.

    Each agreement ends in a separate commit, together with its event. If any card of a guest cannot
    be decoded, the guest's agreements do not end. May be called at any time, also by several
    processes at once. Raises ServiceUnavailable.
    """

    storage: Storage
    clock: Clock
    note_event: NoteEvent

    def __call__(self) -> bool:
        """End agreements, and return whether more agreements may be due.

        Does nothing while the clock is not steady. With a wrong time, this call could cause an
        event too early, and an event cannot be revoked.
        """
        if not self.clock.is_steady():
            return False
        now = self.clock.now()
        return do_due(
            self.storage,
            lambda unit, skip: unit.agreements.due(now, at_most=MAX_PER_CALL, skip=skip),
            self._end,
            at_most=MAX_PER_CALL,
        )

    def _end(self, agreement: Agreement, unit: WriteUnit) -> None:
        # The guest may have been merged or erased meanwhile.
        with suppress(AgreementNotFound):
            if end_agreement(unit, self.note_event, agreement, None, self.clock.now()):
                unit.commit()


def end_agreement(
    unit: WriteUnit,
    note_event: NoteEvent,
    found: Agreement,
    reason: EndOfAgreement | None,
    now: datetime,
    *,
    stated_at: datetime | None = None,
) -> bool:
    """End the agreement `found`, and shorten the time for which its card is kept.

    If the agreement has already ended because its booking was over, only `reason` and `stated_at`
    are recorded, and no event is noted. Return whether anything changed. The caller commits the
    unit. Raises AgreementNotFound if the guest was merged or erased meanwhile.
    """
    # Locks the guest's cards, as every change to an agreement must.
    accounts = unit.accounts.active_at(found.guest_id, found.center_id)
    agreement = unit.agreements.get(found.agreement_id)
    if agreement is None or agreement.guest_id != found.guest_id:
        raise AgreementNotFound
    if agreement.ended_at is not None:
        if reason is None or agreement.reason is not None:
            return False
        unit.agreements.update(replace(agreement, reason=reason, stated_at=stated_at))
        _keep_for_others(unit, accounts, agreement, now)
        return True
    # The card must be locked before the agreement, as in `Accounts.forget`.
    account_of = unit.accounts.get(agreement.account_id)
    ended = agreement.ended(reason, now, stated_at=stated_at)
    unit.agreements.update(ended)
    _keep_for_others(unit, accounts, ended, now)
    note_agreement_event(
        unit,
        note_event,
        EventType.AGREEMENT_ENDED,
        ended,
        psp_account=account_of.psp_account if account_of else None,
        now=now,
    )
    return True


def _keep_for_others(
    unit: WriteUnit, accounts: Sequence[Account], ended: Agreement, now: datetime
) -> None:
    """Shorten the time for which the card of the agreement `ended` is kept.

    The card is kept as long as any of its agreements requires. If the guest removed the card or
    withdrew the consent, agreements under which the card may no longer be charged are ignored.
    """
    for account in accounts:
        if account.account_id == ended.account_id and account.keep_until is not None:
            agreements = unit.agreements.of_account(account.account_id)
            kept = replace(account, keep_until=last_kept_until(agreements))
            if account.withdrawn_at is not None:
                kept = account.withdrawn(running_among(agreements, now), account.withdrawn_at)
            unit.accounts.update(kept)
