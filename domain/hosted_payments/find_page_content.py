"""Find the content of the pages that cardonfile shows to a guest about a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from domain.agreements.click import ShownAgreement
from domain.cards.account import Account
from domain.centers.center_settings import CenterSettings
from domain.centers.configure_payments import LoadedPsp
from domain.consents.choose_consent import ChooseConsent
from domain.hosted_payments.link import HostedLinks, LinkUnknown, session_of_link
from domain.hosted_payments.show_agreement import ShowAgreement, cards_to_offer, name_of
from domain.identifiers import ProviderName
from domain.languages import AUTO, DEFAULT_LANGUAGE
from domain.outside import Clock
from domain.psps.card import Funding
from domain.psps.hosted_page import Consent
from domain.sessions.end import NotAccepted
from domain.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class PageContent:
    """The content of cardonfile's own page for a session.

    The links back to the shop:

    - `redirect_uri` is the stored address of the shop. `cancel_uri` leads there too, and records
      that the guest left.
    - `center_name` is None if the center is no longer stored.

    The PSP's page, which the guest opens next:

    - `psp_name` and `psp_host` are the name and the host of the PSP's page. `psp_name` is None if
      the PSP does not state it.

    The page itself:

    - `language` is the language of the page. `negotiated` means that the languages of the browser
      determine it.
    - `consent` is the text to which the guest must agree before the PSP's page opens, or None. If
      the card guarantees a booking, the page shows `agreement`, and not `consent`.
    - `card` is the card on file that the guest may use for the booking, or None. `card_name` is the
      text by which the page's form identifies this card (`name_of`), or "". `another_card_uri`
      leads to the same page without this card.
    - If the page must not show the guest's name and email, `guest_name` is "" and `guest_email` is
      None.
    - `refuse_funding` are the kinds of cards that the center does not accept, sorted by name.
    - `not_accepted` is why the center did not accept the guest's last card, or None.
    - `replaces` is the card that the guest wants to replace, if the session was started on the
      guest's own page for that purpose, otherwise None.
    """

    redirect_uri: str
    cancel_uri: str
    center_name: str | None
    settings: CenterSettings
    logo_uri: str | None
    psp_name: str | None
    psp_host: str
    language: str
    negotiated: bool
    consent: Consent | None
    agreement: ShownAgreement | None
    card: Account | None
    card_name: str
    another_card_uri: str
    guest_name: str = ""
    guest_email: str | None = None
    refuse_funding: Sequence[Funding] = ()
    not_accepted: NotAccepted | None = None
    replaces: Account | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FindPageContent:
    """Use case: find the content of cardonfile's own page for a session.

    Changes nothing. Raises ServiceUnavailable.
    """

    storage: Storage
    links: HostedLinks
    psps: Mapping[ProviderName, LoadedPsp]
    choose_consent: ChooseConsent
    show_agreement: ShowAgreement
    clock: Clock

    def __call__(
        self,
        *,
        key: str | None,
        token_id: str = "",
        browser: str | None = None,
        another_card: bool = False,
        accepted: Sequence[str] = (),
    ) -> PageContent | None:
        """Return the content of the page, or None if no session has this link.

        `another_card` means that the guest does not want to use the card on file. The other
        parameters have the same meaning as in OpenHostedPage.
        """
        try:
            session = session_of_link(self.storage, key=key, token_id=token_id)
        except LinkUnknown:
            return None
        provider = session.configuration.provider
        with self.storage.read() as unit:
            center = unit.centers.get(session.center_id)
            settings = unit.center_settings.get(session.center_id)
            guest = unit.guests.get(session.guest_id)
            consent, now = None, self.clock.now()
            if session.attempt is not None and not session.attempt.over:
                consent = session.attempt.request.consent
            elif center is not None:
                consent = self.choose_consent(
                    unit, center, guest, provider, session.locale, accepted
                )
            if agreement := self.show_agreement(unit, session, accepted, now):
                consent = agreement.on_psp_page
            cards = [] if another_card else cards_to_offer(unit, session, now)
            replaces = session.replaces
            replaced = unit.accounts.get(replaces.account_id) if replaces else None
        is_on_our_page = self.choose_consent.is_on_our_page(provider) or agreement is not None
        is_asked_for = is_on_our_page and not session.has_agreed(browser)
        card = cards[0] if is_asked_for and agreement and cards else None
        is_shown = session.shows_guest and session.may_have_details(now)
        shown = guest if is_asked_for and is_shown else None
        psp = self.psps.get(provider)
        return PageContent(
            redirect_uri=session.redirect_uri,
            cancel_uri=self.links.cancel_uri(session.token_id),
            center_name=center.name if center else None,
            settings=settings,
            logo_uri=self.links.logo_uri(session.center_id, settings.logo),
            psp_name=psp.capabilities.public_name if psp else None,
            psp_host=(psp and psp.capabilities.page_host) or urlsplit(self.links.base_url).netloc,
            language=consent.language if consent else DEFAULT_LANGUAGE,
            negotiated=session.locale == AUTO and (not session.attempt or session.attempt.over),
            consent=consent if is_asked_for else None,
            agreement=agreement if is_asked_for else None,
            card=card,
            card_name=name_of(card) if card else "",
            another_card_uri=self.links.another_card_uri(session),
            guest_name=shown.full_name if shown else "",
            guest_email=shown.email if shown else None,
            refuse_funding=sorted(session.configuration.refuse_funding),
            not_accepted=session.not_accepted,
            replaces=replaced,
        )
