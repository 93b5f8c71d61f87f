"""Switch a language and its consent text on or off for a center's guests."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from domain.audit.entry import Action
from domain.audit.note_act import NoteAct
from domain.centers.center import Center
from domain.centers.configure_payments import LoadedPsp
from domain.centers.find_centers import existing_center
from domain.consents.consent_text import ConsentText, consents_at
from domain.errors import InvalidField
from domain.identifiers import ProviderName
from domain.languages import parse_language
from domain.storage import Storage, WriteUnit


class NoTextShipped(LookupError):
    """The release contains no text in this language, so the operator must provide a text."""

    def __init__(self, language: str, shipped: Collection[str]) -> None:
        languages = ", ".join(sorted(shipped))
        super().__init__(
            f"cardonfile ships no text in {language}, only in {languages}: use one of these tags, such "
            "as de for German, or give a text of your own"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsentSet:
    """A center, and its new consent text in a language.

    `text` is None if the language was switched off. `not_shown_by` is the center's PSP if the PSP's
    page does not support the language, otherwise None.
    """

    center: Center
    text: ConsentText | None
    not_shown_by: ProviderName | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetConsent:
    """Use case: switch a language on or off for a center's guests.

    Existing pages do not change. `shipped` contains the release's text for each language. May be
    called more than once. Raises InvalidField, CenterNotFound or NoTextShipped. Raises
    ConsentTooLong if the text is too long for the page of the center's PSP.
    """

    storage: Storage
    psps: Mapping[ProviderName, LoadedPsp]
    shipped: Mapping[str, ConsentText]
    note_act: NoteAct

    def __call__(
        self, center_id: str, language: str, *, own: str | None = None, off: bool = False
    ) -> ConsentSet:
        """Switch on the language with the operator's `own` text.

        If `own` is None, the shipped text is used. `off` switches the language off. English cannot
        be switched off. For English, `off` restores the shipped text.
        """
        text = None if off else self._text(parse_given_language(language), own)

        def change(unit: WriteUnit) -> ConsentSet:
            center = existing_center(unit, center_id)
            tag = parse_given_language(language)
            before = {consent.language: consent for consent in unit.consent_texts.of(center.id)}
            if text is None:
                not_shown_by = None
                unit.consent_texts.remove(center.id, tag)
            else:
                not_shown_by = self._require_room(unit, center, text)
                unit.consent_texts.put(center.id, text)
            if text != before.get(tag):
                details = {"language": tag, "version": text.version if text else "none"}
                self.note_act(unit, Action.CONSENT_SET, center.id, details)
            unit.commit()
            return ConsentSet(center=center, text=text, not_shown_by=not_shown_by)

        return self.storage.transact(change)

    def _text(self, language: str, own: str | None) -> ConsentText:
        if own is not None:
            return ConsentText.own(language, own)
        if language not in self.shipped:
            raise NoTextShipped(language, self.shipped)
        return self.shipped[language]

    def _require_room(
        self, unit: WriteUnit, center: Center, text: ConsentText
    ) -> ProviderName | None:
        """Raise ConsentTooLong if the text is too long for the page of the center's PSP.

        Return the PSP's name if its page does not support the text's language, otherwise None.
        """
        configuration = unit.configurations.get(center.id)
        if configuration is None or configuration.provider not in self.psps:
            return None
        name, capabilities = configuration.provider, self.psps[configuration.provider].capabilities
        capabilities.require_room(text.at(center), name)
        shown = consents_at(center, [text], self.shipped, capabilities)
        return None if text.language in shown else name


def parse_given_language(language: str) -> str:
    """Parse a language tag that an operator typed. Raises InvalidField, also for an empty tag."""
    tag = parse_language("language", language)
    if tag is None:
        raise InvalidField("language", "given")
    return tag
