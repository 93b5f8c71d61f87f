"""Create the page of a stored attempt at the PSP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain.events.note_event import NoteEvent
from domain.identifiers import GuestReference
from domain.outside import Clock
from domain.psps.hosted_page import HostedPage
from domain.psps.payment_provider import (
    NotFound,
    ProviderRefused,
    Providers,
    ProviderUnavailable,
    is_confirmed,
)
from domain.sessions.session import CardSession
from domain.sessions.session_log import SessionLog, SessionStep, steps_between
from domain.settling.note_end_of_session import note_end_of_session
from domain.storage import Storage, WriteUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class ObtainPage:
    """Step: create the page of a session's current attempt.

    This step is part of opening a link and of settling a session. It may be repeated, also after a
    failure. The call to the PSP has the same idempotency key each time, so the PSP creates only one
    page. Raises ProviderUnavailable.
    """

    storage: Storage
    providers: Providers
    clock: Clock
    note_event: NoteEvent
    log: SessionLog

    def __call__(self, session: CardSession) -> CardSession:
        """Call the PSP, store the result, and return the updated session.

        The attempt of the updated session has a page, or the attempt is over because the PSP
        permanently refused to create a page. If another process has already stored a page or
        settled the session, return the session as that process stored it.
        """
        provider = self.providers[session.configuration.provider]
        request = session.current_attempt.request
        try:
            page = provider.start(request)
        except NotFound as unknown:
            if not is_confirmed(request.begun_at, self.clock.now()):
                raise ProviderUnavailable("the PSP may not know the guest yet") from unknown
            return self._keep(session, None, unknown.guest_reference)
        except ProviderRefused as refused:
            return self._keep(session, None, refused.guest_reference)
        return self._keep(session, page, page.guest_reference)

    def _keep(
        self, asked: CardSession, page: HostedPage | None, reference: GuestReference | None
    ) -> CardSession:
        def keep(unit: WriteUnit) -> tuple[CardSession, Sequence[SessionStep]]:
            session, now = unit.sessions.get(asked.token_id) or asked, self.clock.now()
            request = asked.current_attempt.request
            if session.is_settled or not session.waits_for_page_of(asked):
                # Another process stored the page, or settled the session. The PSP may still have
                # created the guest again, and an erasure must find the guest there.
                if reference is not None:
                    psp_account = session.configuration.psp_account
                    unit.guest_references.keep_former(session.guest_id, psp_account, reference)
                    unit.commit()
                return session, ()
            if page is None:
                changed = session.without_card(now)
                note_end_of_session(unit, self.note_event, session, changed, now=now)
            else:
                changed = session.with_page(page, now)
            if reference is not None and request.guest_id != session.guest_id:
                # The guest was merged. The PSP knows the former guest by this reference.
                psp_account = session.configuration.psp_account
                unit.guest_references.keep_former(session.guest_id, psp_account, reference)
            # An earlier release requested the page for a guest that all centers share.
            elif reference is not None and request.center_id is not None:
                unit.guest_references.keep(session.psp_guest(request), reference)
            unit.sessions.update(changed)
            unit.commit()
            return changed, steps_between(session, changed)

        kept, steps = self.storage.transact(keep)
        self.log(*steps)
        return kept
