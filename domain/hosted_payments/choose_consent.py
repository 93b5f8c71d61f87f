"""Choose the language of a guest's page, with the text that the guest agrees to in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from domain.centers.center import Center
from domain.centers.configure_payments import LoadedPsp
from domain.centers.consent_text import ConsentText, consents_at
from domain.guests.guest import Guest
from domain.identifiers import ProviderName
from domain.languages import AUTO, first_of
from domain.psps.capabilities import Capabilities
from domain.psps.hosted_page import Consent
from domain.sessions.session import CardSession
from domain.storage import UnitOfWork

_ENGLISH_ONLY: Final = Capabilities()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChooseConsent:
    """Step: choose what the guest of a session agrees to. The page is in the same language.

    The wish of add-card comes first, or with `auto` what the browser accepts; then the guest's
    language, the center's, and English. Of these the first counts that an operator has switched on
    for the center, and that the page of its PSP has.
    """

    psps: Mapping[ProviderName, LoadedPsp]
    shipped: Mapping[str, ConsentText]

    def __call__(
        self,
        unit: UnitOfWork,
        session: CardSession,
        center: Center,
        guest: Guest | None,
        accepted: Sequence[str],
    ) -> Consent:
        """Return the text with its language; `accepted` has what the browser accepts, best first."""
        psp = self.psps.get(session.configuration.provider)
        capabilities = psp.capabilities if psp else _ENGLISH_ONLY
        consents = consents_at(center, unit.consent_texts.of(center.id), self.shipped, capabilities)
        asked = accepted if session.locale == AUTO else (session.locale,)
        of_center = unit.center_settings.get(center.id).language
        wishes = (*asked, guest.language if guest else None, of_center)
        return consents[first_of(wishes, consents)]

    def is_wanting(self, session: CardSession) -> bool:
        """Return whether the guest has yet to agree on a page of ours, for the latest attempt.

        That is only so where the PSP's page cannot show the text, or nobody here knows whether it can.
        """
        psp, attempt = self.psps.get(session.configuration.provider), session.attempt
        is_given = attempt is not None and not attempt.over and attempt.agreed_at is not None
        return not is_given and (psp is None or not psp.capabilities.shows_consent)
