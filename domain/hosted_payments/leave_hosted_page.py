"""When a guest's browser leaves the PSP's page, redirect it to the stored redirect_uri.

The outcome makes no difference, with one exception: if the center did not accept the card, the
browser may be redirected to the link instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from domain.errors import ServiceUnavailable
from domain.hosted_payments.link import HostedLinks, session_of_return
from domain.hosted_payments.store_change import store_change
from domain.outside import Clock
from domain.psps.evidence import MAX_EVIDENCE, Evidence, EvidenceOrigin
from domain.psps.payment_provider import Providers, ProviderUnavailable
from domain.sessions.polling import Progress
from domain.sessions.session import CardSession
from domain.settling.settle_session import SettleSession
from domain.storage import Storage, WriteUnit

MAX_EVIDENCE_LENGTH: Final = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnFromHostedPage:
    """Use case: settle the session of a guest who has finished the PSP's page, at once if possible.

    First, the return is stored, together with the query parameters that the PSP's adapter needs;
    other parameters are ignored. Then the PSP is asked about the session, unless another browser
    request is asking it or did so less than 2 seconds ago. If the session cannot be settled now,
    the worker settles it later.

    If the center did not accept the card, a browser that opened the link is redirected to the link,
    where the guest reads the reason. Any other browser is redirected to the stored redirect_uri.
    Raises LinkUnknown.
    """

    storage: Storage
    providers: Providers
    settle: SettleSession
    links: HostedLinks
    clock: Clock

    def __call__(
        self, *, token_id: str, parameters: Mapping[str, str], key: str | None = None
    ) -> str:
        """Store the return, settle the session, and return the address for the redirect.

        `parameters` are the parameters of the query. `key` is the key of the last link that this
        browser opened, or None. The session's link is returned only if `key` is the key of that
        link, because other people may know `token_id`. A link from an earlier release has no key,
        so `key` is not checked.
        """
        session = session_of_return(self.storage, token_id)
        if not session.is_settled or session.due_at is not None:
            evidence = self._evidence(session, parameters)
            # The guest cannot do anything about an outage, so the browser is redirected even then.
            with suppress(ServiceUnavailable):
                current, may_ask = self._note(session, evidence)
                if may_ask:
                    current = self.settle(session.token_id) or current
                if self._is_to_read_why(current, key):
                    return self.links.hosted_payment_uri(current)
        return session.redirect_uri

    def _is_to_read_why(self, session: CardSession, key: str | None) -> bool:
        """Return whether this browser must show the guest why the card was not accepted."""
        has_opened = session.link_key in (None, key)
        is_told = session.not_accepted is not None and session.has_link(self.clock.now())
        return has_opened and is_told

    def _note(self, seen: CardSession, evidence: Evidence | None) -> tuple[CardSession, bool]:
        """Store the return and the evidence.

        Return the stored session, which a webhook may have settled since `seen` was read. Also
        return whether the PSP may be asked about the session.
        """

        def note(unit: WriteUnit) -> tuple[CardSession, bool]:
            session = unit.sessions.get(seen.token_id) or seen
            now = self.clock.now()
            returned = session.with_progress(Progress.RETURNED, now)
            asked = returned.asked(now)
            changed = asked or returned.asked_later()
            if changed != session:
                unit.sessions.update(changed)
            # A settled session is due only if the PSP is asked about an earlier page.
            is_needed = session.may_be_asked_about or session.due_at is not None
            if evidence is not None and is_needed:
                unit.evidence.add(session.token_id, evidence, at_most=MAX_EVIDENCE)
            unit.commit()
            return changed, asked is not None

        return self.storage.transact(note)

    def _evidence(self, session: CardSession, parameters: Mapping[str, str]) -> Evidence | None:
        """Return the parameters that the PSP's adapter needs, as evidence.

        Return None if none of these parameters is in `parameters`, if their values are too long, or
        if the PSP is not set up.
        """
        try:
            needed = self.providers[session.configuration.provider].return_parameters
        except ProviderUnavailable:
            return None
        kept = {name: value for name, value in parameters.items() if name in needed}
        content = json.dumps(kept, sort_keys=True)
        if not kept or len(content) > MAX_EVIDENCE_LENGTH:
            return None
        return Evidence(origin=EvidenceOrigin.RETURN, content=content, received_at=self.clock.now())


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelHostedPage:
    """Use case: note that the guest left the page without a card. The link still works.

    Raises LinkUnknown.
    """

    storage: Storage
    clock: Clock

    def __call__(self, *, token_id: str) -> str:
        """Return the redirect_uri of the session, and record that the guest left.

        If the storage cannot be written now, this is not recorded.
        """
        session, now = session_of_return(self.storage, token_id), self.clock.now()
        with suppress(ServiceUnavailable):
            store_change(
                self.storage, session, lambda it: it.with_progress(Progress.CANCELLED, now)
            )
        return session.redirect_uri
