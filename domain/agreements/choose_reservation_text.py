"""Choose the text about a booking in a guest's language, and fill in the values of the booking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from domain.agreements.click import ShownAgreement
from domain.agreements.locale_formats import LocaleFormats
from domain.agreements.reservation_text import ReservationText, values_of
from domain.agreements.terms import AgreementTerms
from domain.centers.center import Center
from domain.centers.configure_payments import LoadedPsp
from domain.centers.payment_configuration import PaymentConfiguration
from domain.consents.choose_consent import ChooseConsent, language_for
from domain.guests.guest import Guest
from domain.identifiers import ProviderName
from domain.languages import DEFAULT_LANGUAGE, look_up
from domain.storage import UnitOfWork


@dataclass(frozen=True, slots=True, kw_only=True)
class ChooseReservationText:
    """Step: choose the text about a booking in the guest's language, and fill in its placeholders.

    The language is chosen as in `ChooseConsent`. If the center removed its English text after the
    session was created, the shipped English text is used.
    """

    psps: Mapping[ProviderName, LoadedPsp]
    shipped: Mapping[str, ReservationText]
    formats: LocaleFormats
    choose_consent: ChooseConsent

    def __call__(
        self,
        unit: UnitOfWork,
        center: Center,
        guest: Guest | None,
        terms: AgreementTerms,
        configuration: PaymentConfiguration,
        locale: str | None,
        accepted: Sequence[str],
        now: datetime,
    ) -> ShownAgreement:
        """Return the texts that the page shows at `now`.

        `locale` and `accepted` have the same meaning as in `ChooseConsent`.
        """
        provider, settings = configuration.provider, unit.center_settings.get(center.id)
        psp = self.psps.get(provider)
        texts = {
            text.language: text
            for text in unit.reservation_texts.of(center.id)
            # The PSP's page and the page on which the guest agrees must both support the language.
            if (psp is None or psp.capabilities.has_page_in(text.language))
            and look_up(text.language, self.shipped)
        }
        texts = {DEFAULT_LANGUAGE: self.shipped[DEFAULT_LANGUAGE], **texts}
        text = texts[language_for(guest, settings, locale, accepted, available=texts)]
        kept_until = terms.ends_at + timedelta(days=configuration.keep_after_end_days)
        values = values_of(
            terms,
            center,
            settings,
            self.formats,
            language=text.language,
            kept_until=kept_until,
            now=now,
        )
        general = self.choose_consent(unit, center, guest, provider, text.language, ())
        return ShownAgreement(text=text.shown(values), general=general, kept_until=kept_until)
