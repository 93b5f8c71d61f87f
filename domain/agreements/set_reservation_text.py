"""Set the text to which a center's guests agree when a card guarantees a booking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from domain.agreements.locale_formats import LocaleFormats
from domain.agreements.reservation_text import ReservationText, ShownText, values_of
from domain.agreements.terms import AgreementTerms, Money
from domain.audit.entry import Action
from domain.audit.note_act import NoteAct
from domain.centers.center import Center
from domain.centers.find_centers import existing_center
from domain.consents.set_consent import NoTextShipped, parse_given_language
from domain.errors import InvalidField
from domain.outside import Clock
from domain.storage import Storage, WriteUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationTextSet:
    """A center, its new text, and that text filled in for an example booking.

    `text` and `example` are None if the text was removed.
    """

    center: Center
    text: ReservationText | None
    example: ShownText | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetReservationText:
    """Use case: set or remove a center's text about bookings in a language.

    `shipped` contains the release's text for each language. May be called more than once. Raises
    InvalidField for an invalid language or text, or if the center has no time zone. Raises
    CenterNotFound or NoTextShipped.
    """

    storage: Storage
    shipped: Mapping[str, ReservationText]
    formats: LocaleFormats
    clock: Clock
    note_act: NoteAct

    def __call__(
        self, center_id: str, language: str, *, own: str | None = None, off: bool = False
    ) -> ReservationTextSet:
        """Set the operator's `own` text, or the shipped text if `own` is None.

        `off` removes the text.
        """
        tag = parse_given_language(language)
        text = None if off else self._text(tag, own)

        def change(unit: WriteUnit) -> ReservationTextSet:
            center = existing_center(unit, center_id)
            before = {each.language: each for each in unit.reservation_texts.of(center.id)}
            if text is None:
                unit.reservation_texts.remove(center.id, tag)
            else:
                unit.reservation_texts.put(center.id, text)
            example = None if text is None else self._example(unit, center, text)
            if text != before.get(tag):
                version = text.version if text else "none"
                details = {"language": tag, "version": version, "for": "reservation"}
                self.note_act(unit, Action.CONSENT_SET, center.id, details)
            unit.commit()
            return ReservationTextSet(center=center, text=text, example=example)

        return self.storage.transact(change)

    def _text(self, language: str, own: str | None) -> ReservationText:
        if own is not None:
            return ReservationText.own(language, own)
        if language not in self.shipped:
            raise NoTextShipped(language, self.shipped)
        return self.shipped[language]

    def _example(self, unit: WriteUnit, center: Center, text: ReservationText) -> ShownText:
        """Return the text filled in for an example booking that starts in a week."""
        settings = unit.center_settings.get(center.id)
        if settings.time_zone is None:
            raise InvalidField(
                "center_id",
                "a center with a time zone: set it with `cardonfile center set --time-zone`",
            )
        now = self.clock.now()
        starts_at = now + timedelta(days=7)
        terms = AgreementTerms(
            reference="booking-1",
            description="2 × massage, 3 guests",
            starts_at=starts_at,
            ends_at=starts_at + timedelta(hours=1),
            no_show=Money(amount=Decimal("80.00"), currency="EUR"),
            late_cancellation=Money(amount=Decimal("40.00"), currency="EUR"),
            cancel_by=starts_at - timedelta(days=1),
            policy_uri="https://shop.example/terms",
        )
        values = values_of(
            terms,
            center,
            settings,
            self.formats,
            language=text.language,
            kept_until=terms.ends_at + timedelta(days=7),
            now=now,
        )
        return text.shown(values)
