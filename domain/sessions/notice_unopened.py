"""Send events about links that nobody has opened."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from domain.events.event import EventType
from domain.events.note_event import NoteEvent
from domain.outside import Clock
from domain.sessions.note_session_event import note_session_event
from domain.sessions.session import CardSession, half_of_lifetime
from domain.storage import Storage, WriteUnit, do_due

MAX_PER_CALL: Final = 100
"""The maximum number of sessions examined by one call. Meanwhile, the worker's other tasks wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeUnopened:
    """Use case: note `session.unopened` for links that are unopened after half of their lifetime.

    The event is noted at most once for each session, because the same commit clears its
    `unopened_at`. A late call still notes the event, unless the link has ended. In sessions that an
    earlier release started, `unopened_at` is a time long ago, so the right time is computed. May be
    called at any time, also by several processes at once. Raises ServiceUnavailable.
    """

    storage: Storage
    clock: Clock
    note_event: NoteEvent

    def __call__(self) -> bool:
        """Examine a limited number of sessions, and return whether more may be due.

        Does nothing while the clock is not steady. With a wrong time, this call could cause an
        event too early, and an event cannot be revoked.
        """
        if not self.clock.is_steady():
            return False
        now = self.clock.now()
        return do_due(
            self.storage,
            lambda unit, skip: unit.sessions.with_unopened_notice_due(
                now, at_most=MAX_PER_CALL, skip=skip
            ),
            self._notice,
            at_most=MAX_PER_CALL,
        )

    def _notice(self, found: CardSession, unit: WriteUnit) -> None:
        session, now = unit.sessions.get(found.token_id), self.clock.now()
        if session is None or session.unopened_at != found.unopened_at:
            # Another process noted the event.
            return
        half = half_of_lifetime(session.created_at, session.expires_at)
        is_unopened = session.attempt is None and session.has_link(now)
        if is_unopened and now >= half:
            note_session_event(unit, self.note_event, EventType.SESSION_UNOPENED, session, now=now)
        is_early = is_unopened and now < half
        unit.sessions.update(replace(session, unopened_at=half if is_early else None))
        unit.commit()
