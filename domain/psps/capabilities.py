"""The capabilities of a PSP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from domain.errors import InvalidField
from domain.identifiers import ProviderName
from domain.languages import DEFAULT_LANGUAGE, look_up
from domain.psps.hosted_page import Authentication, Consent


class ConsentTooLong(ValueError):
    """The text, with the center's name filled in, is longer than the PSP's page allows."""

    def __init__(self, language: str, provider: ProviderName, *, length: int, longest: int) -> None:
        super().__init__(
            f"the consent text in {language} has {length} characters, including the center's name, "
            f"but {provider} shows at most {longest}: import the center with a shorter name, or "
            "set a shorter text"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The capabilities of a PSP, which its plugin states, and facts about its pages.

    - `shows_consent`: the PSP's page shows cardonfile's consent text. If it does not, cardonfile's
      own page asks for consent first.
    - `max_consent_length`: the maximum length of the text, in characters as `consent_length` counts
      them.
    - `checks_addresses`: the PSP reports the bank's check of a billing address.
    - `closes_pages`: the PSP can close a page early.
    - `forgets_guests`: the PSP can delete a guest.
    - `reads_cards`: the PSP reports the present state of a stored card.
    - `lists_cards`: the PSP lists the cards of a merchant account.
    - `tells_funding`: the PSP reports whether a collected card is a credit, debit or prepaid card.
    - `requires_authentication`: the PSP can require that the bank authenticates the guest, and
      reports whether the bank did.
    - `public_name`: the name by which guests know the PSP.
    - `page_host`: the host of the PSP's pages, or None if this service hosts them.
    - `locales`: the languages of the PSP's page (RFC 5646), including English.
    """

    shows_consent: bool = True
    max_consent_length: int = 0
    checks_addresses: bool = True
    closes_pages: bool = True
    forgets_guests: bool = False
    reads_cards: bool = False
    lists_cards: bool = False
    tells_funding: bool = False
    requires_authentication: bool = False
    public_name: str | None = None
    page_host: str | None = None
    locales: frozenset[str] = frozenset({DEFAULT_LANGUAGE})
    consent_length: Callable[[str], int] = len

    def has_page_in(self, language: str) -> bool:
        """Return whether the page supports a language, or a more general one (`de` for `de-AT`)."""
        return look_up(language, self.locales) is not None

    def shows(self, consent: Consent) -> bool:
        """Return whether the whole text can be shown to the guest.

        The PSP's page must support the language. If the PSP's page shows the text, the page must
        also have room for the text. Cardonfile's own page has room for any text.
        """
        return self.has_page_in(consent.language) and self.has_room_for(consent)

    def has_room_for(self, consent: Consent) -> bool:
        """Return whether the page that asks for consent has room for the whole text."""
        return (
            not self.shows_consent or self.consent_length(consent.text) <= self.max_consent_length
        )

    def require_authentication(self, wanted: Authentication | None, provider: ProviderName) -> None:
        """Raise InvalidField if `wanted` is REQUIRED but the PSP cannot require authentication."""
        if wanted is Authentication.REQUIRED and not self.requires_authentication:
            raise InvalidField(
                "authentication",
                f"automatic, because {provider} cannot require that the bank authenticates the guest",
            )

    def require_room(self, consent: Consent, provider: ProviderName) -> None:
        """Raise ConsentTooLong if the page supports the language but the text is too long for it."""
        if self.has_page_in(consent.language) and not self.has_room_for(consent):
            raise ConsentTooLong(
                consent.language,
                provider,
                length=self.consent_length(consent.text),
                longest=self.max_consent_length,
            )
