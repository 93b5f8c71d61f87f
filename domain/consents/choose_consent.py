"""Choose the language of a page for a guest, and the center's consent text in that language."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from domain.centers.center import Center
from domain.centers.center_settings import CenterSettings
from domain.centers.configure_payments import LoadedPsp
from domain.consents.consent_text import ConsentText, consents_at
from domain.guests.guest import Guest
from domain.identifiers import ProviderName
from domain.languages import AUTO, DEFAULT_LANGUAGE, first_of
from domain.psps.capabilities import Capabilities
from domain.psps.hosted_page import Consent
from domain.storage import UnitOfWork

_ENGLISH_ONLY: Final = Capabilities()


def language_for(
    guest: Guest | None,
    settings: CenterSettings,
    locale: str | None,
    accepted: Sequence[str],
    *,
    available: Collection[str],
) -> str:
    """Return the available language that suits a guest best.

    The order of preference is:

    1. the language that add-card requested (`locale`), or the browser's languages (`accepted`) if
       `locale` is `auto`
    2. the guest's language
    3. the center's language
    4. English
    """
    asked = accepted if locale == AUTO else (locale,)
    return first_of((*asked, guest.language if guest else None, settings.language), available)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsentsOf:
    """Step: return a center's consent texts in all its languages. English is always included."""

    shipped: Mapping[str, ConsentText]

    def __call__(self, unit: UnitOfWork, center: Center) -> Sequence[Consent]:
        texts = self.shipped[DEFAULT_LANGUAGE], *unit.consent_texts.of(center.id)
        return [text.at(center) for text in texts]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChooseConsent:
    """Step: choose the consent text for a guest. The page is shown in the same language.

    `language_for` chooses from the languages that the operator has switched on for the center and
    that the PSP's page supports.
    """

    psps: Mapping[ProviderName, LoadedPsp]
    shipped: Mapping[str, ConsentText]

    def __call__(
        self,
        unit: UnitOfWork,
        center: Center,
        guest: Guest | None,
        provider: ProviderName,
        locale: str | None,
        accepted: Sequence[str],
    ) -> Consent:
        """Return the text and its language.

        `provider` is the PSP that shows the page. `locale` is the language that add-card requested,
        and `accepted` are the browser's languages, most preferred first.
        """
        psp = self.psps.get(provider)
        capabilities = psp.capabilities if psp else _ENGLISH_ONLY
        consents = consents_at(center, unit.consent_texts.of(center.id), self.shipped, capabilities)
        language = language_for(
            guest, unit.center_settings.get(center.id), locale, accepted, available=consents
        )
        return consents[language]

    def is_on_our_page(self, provider: ProviderName) -> bool:
        """Return whether guests give their consent on cardonfile's own page.

        They do so if the PSP's page cannot show the consent text, or if this process has not loaded
        the PSP.
        """
        psp = self.psps.get(provider)
        return psp is None or not psp.capabilities.shows_consent
