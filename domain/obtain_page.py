"""Have the PSP make the page of an attempt that was written down before."""

from __future__ import annotations

from dataclasses import dataclass

from domain.card_sessions import CardSession
from domain.hosted_pages import HostedPage
from domain.ports import Clock, ProviderRefused, Providers, Storage, WriteUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class ObtainPage:
    """Step of opening and of settling: ask for the page of a session's current attempt.

    Repeated after a failure it repeats the same call with the same key, so that the PSP makes one
    page. Raises ProviderUnavailable when there was no answer.
    """

    storage: Storage
    providers: Providers
    clock: Clock

    def __call__(self, session: CardSession) -> CardSession:
        """Ask, keep the answer, and give the session as it is then.

        Its attempt has a page, or is over because the PSP will never make this one.
        """
        provider = self.providers[session.configuration.provider]
        try:
            return self._keep(session, provider.start(session.current_attempt.request))
        except ProviderRefused:
            return self._keep(session, None)

    def _keep(self, asked_for: CardSession, page: HostedPage | None) -> CardSession:
        def keep(unit: WriteUnit) -> CardSession:
            session = unit.sessions.get(asked_for.token_id) or asked_for
            if session.is_settled or session.attempt != asked_for.attempt:
                # Somebody else has kept the answer, or has settled the session by it.
                return session
            if page is None:
                session = session.without_card(self.clock.now())
            else:
                session = session.with_page(page, self.clock.now())
                unit.guest_references.keep(
                    session.configuration.provider,
                    session.configuration.merchant_account,
                    session.guest_id,
                    page.guest_reference,
                )
            unit.sessions.update(session)
            unit.commit()
            return session

        return self.storage.transact(keep)
