"""Delete records whose retention has ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from domain.agreements.agreement import EVIDENCE_KEPT_FOR
from domain.errors import ServiceUnavailable
from domain.outside import Clock, time_before
from domain.portal.portal_session import KEPT_FOR as PORTAL_SESSIONS_KEPT_FOR
from domain.sessions.session import IDEMPOTENCY_KEY_LIFETIME
from domain.storage import Storage, WriteUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long each kind of record is kept.

    - `sessions`: sessions with their evidence and refused cards, counted from the end of the
      session.
    - `deliveries`: deliveries of events, counted from the event.
    - `cards`: cards with their consents, counted from the removal of the card.
    - `audit`: entries of the audit trail, counted from the act.
    - `browsers`: the browsers in which guests clicked to agree, counted from the end of the
      session. If the time is zero, browsers are not recorded.
    """

    sessions: timedelta = timedelta(days=400)
    deliveries: timedelta = timedelta(days=30)
    cards: timedelta = timedelta(days=400)
    audit: timedelta = timedelta(days=3 * 365)
    browsers: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetOldRecords:
    """Use case: delete records whose retention has ended, a limited number of each kind per call.

    Idempotency keys are deleted after 24 hours, links to guests' own pages after a week, and other
    records according to `retention`. A session or an agreement that has not ended is never deleted.
    A record about which the worker still has something to do is not deleted either, for example a
    card that must be discarded at the PSP. An agreement is evidence until EVIDENCE_KEPT_FOR after
    its `kept_until`. Until then, its session, the events of the session, and the card are kept too.

    Each kind of record has a separate unit of work, so that other writers wait only briefly. May be
    called at any time. If one kind fails, the others are still tried, and then ServiceUnavailable
    is raised.
    """

    storage: Storage
    clock: Clock
    retention: Retention

    def __call__(self) -> bool:
        """Delete some records, and return whether more may be left.

        Does nothing while the clock is not steady, because a deletion cannot be undone.
        """
        if not self.clock.is_steady():
            return False
        now, kept = self.clock.now(), self.retention
        sessions, deliveries = time_before(now, kept.sessions), time_before(now, kept.deliveries)
        cards, audit = time_before(now, kept.cards), time_before(now, kept.audit)
        browsers, evidence = time_before(now, kept.browsers), now - EVIDENCE_KEPT_FOR
        forgotten, unavailable = 0, None
        for forget in (
            lambda unit: unit.idempotency_keys.forget(before=now - IDEMPOTENCY_KEY_LIFETIME),
            lambda unit: unit.portal_sessions.forget(before=now - PORTAL_SESSIONS_KEPT_FOR),
            lambda unit: unit.agreements.forget(before=evidence),
            lambda unit: unit.event_deliveries.forget(before=deliveries),
            # Only numbered events are deleted, so that a reader notices which events it has missed.
            lambda unit: unit.events.number(),
            lambda unit: unit.events.forget(before=deliveries, until=now + kept.deliveries),
            lambda unit: unit.sessions.forget(before=sessions),
            lambda unit: unit.accounts.forget(before=cards),
            lambda unit: unit.sessions.forget_browsers(before=browsers),
            lambda unit: unit.audit_trail.forget(before=audit),
        ):
            try:
                forgotten += self._some(forget)
            except ServiceUnavailable as error:
                # The other tables hold data about guests.
                unavailable = error
        if unavailable is not None:
            raise unavailable
        return forgotten > 0

    def _some(self, forget: Callable[[WriteUnit], int]) -> int:
        def some(unit: WriteUnit) -> int:
            forgotten = forget(unit)
            unit.commit()
            return forgotten

        return self.storage.transact(some)
