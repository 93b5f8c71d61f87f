"""What a PSP can do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from domain.identifiers import ProviderName
from domain.languages import DEFAULT_LANGUAGE, look_up
from domain.psps.hosted_page import Consent


class ConsentTooLong(ValueError):
    """With the center's name, the text is longer than the PSP's page shows."""

    def __init__(self, language: str, provider: ProviderName, *, length: int, longest: int) -> None:
        super().__init__(
            f"the text that guests agree to in {language} has {length} characters with the center's "
            f"name; {provider} shows {longest} at most: import the center with a shorter name, or "
            "set a shorter text"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a PSP can do, as its plugin states it, and whose its pages are.

    `shows_consent` is whether its page shows our text of consent, `max_consent_length` the most
    characters of it, as `consent_length` counts them. If it shows none, a page of ours asks for
    consent before it. `checks_addresses` is whether it tells what the bank says of a billing address,
    `closes_pages` whether it can end a page early. `forgets_guests` is whether it can delete a guest,
    `reads_cards` whether it tells of a stored card as it is now, `lists_cards` whether it lists those
    of a merchant account. `public_name` is the name by which guests know it, and `page_host` the host
    of its pages, or None for this service's own. `locales` are the languages that its page has (RFC
    5646), English among them.
    """

    shows_consent: bool = True
    max_consent_length: int = 0
    checks_addresses: bool = True
    closes_pages: bool = True
    forgets_guests: bool = False
    reads_cards: bool = False
    lists_cards: bool = False
    public_name: str | None = None
    page_host: str | None = None
    locales: frozenset[str] = frozenset({DEFAULT_LANGUAGE})
    consent_length: Callable[[str], int] = len

    def has_page_in(self, language: str) -> bool:
        """Return whether the page has a language, or one that is nearest to it."""
        return look_up(language, self.locales) is not None

    def shows(self, consent: Consent) -> bool:
        """Return whether the page has the language of the text, and room for all of it.

        A page of ours has room for any text.
        """
        return self.has_page_in(consent.language) and self.has_room_for(consent)

    def has_room_for(self, consent: Consent) -> bool:
        """Return whether all of a text is shown, by the page of the PSP or by ours."""
        return (
            not self.shows_consent or self.consent_length(consent.text) <= self.max_consent_length
        )

    def require_room(self, consent: Consent, provider: ProviderName) -> None:
        """Raise ConsentTooLong if the page has the language of a text, and not room for all of it."""
        if self.has_page_in(consent.language) and not self.has_room_for(consent):
            raise ConsentTooLong(
                consent.language,
                provider,
                length=self.consent_length(consent.text),
                longest=self.max_consent_length,
            )
