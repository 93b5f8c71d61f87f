"""The consent texts of centers, in several languages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Protocol

from domain.centers.center import Center
from domain.errors import InvalidField
from domain.fields import is_clean, without_card_number
from domain.identifiers import CenterId
from domain.languages import DEFAULT_LANGUAGE, look_up
from domain.psps.capabilities import Capabilities
from domain.psps.hosted_page import Consent

CENTER: Final = "{center}"
"""The placeholder for the center's name in a text."""

MAX_TEXT_LENGTH: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsentText:
    """A consent text before the center's name is filled in."""

    language: str
    version: str
    text: str

    @classmethod
    def own(cls, language: str, text: str) -> ConsentText:
        """Parse a text that an operator wrote.

        The text becomes one paragraph. Its version is computed from its content. Raises
        InvalidField.
        """
        line = " ".join(text.split())
        is_valid = 0 < len(line) <= MAX_TEXT_LENGTH and is_clean(line)
        if not is_valid or any(brace in line.replace(CENTER, "") for brace in "{}"):
            raise InvalidField(
                "text",
                f"1 to {MAX_TEXT_LENGTH} characters without control characters, in which {CENTER} "
                "stands for the name of the center",
            )
        digest = sha256(without_card_number("text", line).encode()).hexdigest()
        return cls(language=language, version=f"own-{digest[:12]}", text=line)

    def at(self, center: Center) -> Consent:
        """Return the consent with the center's name filled in."""
        text = self.text.replace(CENTER, center.name)
        return Consent(version=self.version, text=text, language=self.language)


class ConsentTexts(Protocol):
    """Repository of the centers' texts, one for each language that an operator has switched on."""

    def of(self, center_id: CenterId) -> Sequence[ConsentText]:
        """Return the texts of a center, sorted by language."""
        ...

    def put(self, center_id: CenterId, text: ConsentText) -> None:
        """Store a text. It replaces the center's text in the same language."""
        ...

    def remove(self, center_id: CenterId, language: str) -> None:
        """Remove the center's text in a language, if there is one."""
        ...


def consents_at(
    center: Center,
    texts: Sequence[ConsentText],
    shipped: Mapping[str, ConsentText],
    capabilities: Capabilities,
) -> Mapping[str, Consent]:
    """Return the consents that a page can show to the center's guests, by language.

    `texts` are the center's texts. English is always included. If the center has no English text
    that the page can show, the English text in `shipped` is used. A text in another language is
    included under these conditions:

    - The PSP's page supports the language.
    - If the PSP's page shows the text, the page has room for the whole text.
    - If cardonfile's own page shows the text, `shipped` contains the language, or a more general
      language (`de` for `de-AT`).
    """
    consents = [text.at(center) for text in texts]
    shown = {
        consent.language: consent
        for consent in consents
        if capabilities.shows(consent)
        and (capabilities.shows_consent or look_up(consent.language, shipped))
    }
    return {DEFAULT_LANGUAGE: shipped[DEFAULT_LANGUAGE].at(center), **shown}
