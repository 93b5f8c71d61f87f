"""A guest's browser comes back from the PSP's page, and is redirected to the stored redirect_uri.

That happens whatever became of the card.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from domain.card_sessions import CardSession
from domain.errors import ServiceUnavailable
from domain.hosted_pages import MAX_EVIDENCE, Evidence, EvidenceOrigin
from domain.open_hosted_page import find_session
from domain.ports import Clock, Providers, ProviderUnavailable, Storage, WriteUnit
from domain.settle_session import SettleSession

MAX_EVIDENCE_LENGTH: Final = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnFromHostedPage:
    """Use case: the guest has finished the page; settle the session if that is possible at once.

    The query parameters that the PSP's adapter needs are stored as evidence, and no others. If the
    session cannot be settled now, the reconciler settles it. Raises LinkUnknown.
    """

    storage: Storage
    providers: Providers
    settle: SettleSession
    clock: Clock

    def __call__(self, *, token_id: str, parameters: Mapping[str, str]) -> str:
        """Store the evidence and settle. Return the stored redirect_uri."""
        session = find_session(self.storage, token_id)
        if not session.is_settled:
            # The guest can do nothing about an outage, so the browser is redirected in any case.
            with suppress(ServiceUnavailable, ProviderUnavailable):
                self._keep_evidence(session, parameters)
            with suppress(ServiceUnavailable):
                self.settle(session.token_id)
        return session.redirect_uri

    def _keep_evidence(self, session: CardSession, parameters: Mapping[str, str]) -> None:
        needed = self.providers[session.configuration.provider].return_parameters
        kept = {name: value for name, value in parameters.items() if name in needed}
        content = json.dumps(kept, sort_keys=True)
        if not kept or len(content) > MAX_EVIDENCE_LENGTH:
            return
        evidence = Evidence(
            origin=EvidenceOrigin.RETURN, content=content, received_at=self.clock.now()
        )

        def keep(unit: WriteUnit) -> None:
            unit.evidence.add(session.token_id, evidence, at_most=MAX_EVIDENCE)
            unit.commit()

        self.storage.transact(keep)


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelHostedPage:
    """Use case: the guest leaves the page without a card. The session stays open until it expires.

    Raises LinkUnknown.
    """

    storage: Storage

    def __call__(self, *, token_id: str) -> str:
        """Return the stored redirect_uri; changes nothing."""
        return find_session(self.storage, token_id).redirect_uri
