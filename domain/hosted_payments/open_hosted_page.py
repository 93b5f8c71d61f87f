"""Open the link of a session: create the PSP's page, and return its address for the redirect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from domain.centers.card_limit import CardLimit
from domain.consents.choose_consent import ChooseConsent
from domain.errors import CardLimitReached
from domain.hosted_payments.click_on_page import Browser, ClickOnPage
from domain.hosted_payments.link import (
    ClickNeeded,
    FormNeeded,
    HostedLinks,
    LinkExpired,
    LinkPaused,
    LinkUnknown,
    require_open,
    session_of_link,
)
from domain.hosted_payments.show_agreement import ShowAgreement, cards_to_offer
from domain.hosted_payments.store_change import store_change
from domain.hosted_payments.use_card_on_file import UseCardOnFile
from domain.outside import Clock, Traces
from domain.psps.hosted_page import MAX_PAGE_LIFETIME, HostedPageRequest
from domain.psps.payment_provider import ProviderUnavailable
from domain.redirects import redirect_origin
from domain.sessions.address_verification import PostalCodes, with_usual_postal_code
from domain.sessions.card_testing import on_refused_cards, require_below_limits
from domain.sessions.earlier_page import EarlierPage
from domain.sessions.polling import Progress
from domain.sessions.session import CardSession
from domain.sessions.session_log import SessionLog, SessionStep, steps_between
from domain.settling.obtain_page import ObtainPage
from domain.settling.settle_session import SettleSession
from domain.storage import Storage, WriteUnit


class PageUnderWay(ProviderUnavailable):
    """Another request is asking the PSP for the page, or did so less than 2 seconds ago."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenHostedPage:
    """Use case: return the address to which the link of a session leads.

    The first call starts an attempt, which gets a page of the PSP. From then on, the session does
    not expire before its page. Later calls lead to the same page, or to a new page if the first
    page is over. The link of a settled session leads to the stored redirect_uri.

    The `limits` on refused cards also apply here. When a limit is reached, even sessions that were
    started in advance do not get a page. If `notes_browsers` is set, the guest's browser is
    recorded when the guest agrees on cardonfile's own page.

    Raises LinkUnknown, LinkCancelled, LinkExpired, ClickNeeded or LinkPaused. Raises FormNeeded if
    a redirect cannot open the page. Raises PageUnderWay, or ProviderUnavailable if the PSP does not
    create a page; the next call then tries to get the page.
    """

    storage: Storage
    limits: Sequence[CardLimit]
    settle: SettleSession
    obtain_page: ObtainPage
    choose_consent: ChooseConsent
    show_agreement: ShowAgreement
    use_card_on_file: UseCardOnFile
    postal_codes: PostalCodes
    links: HostedLinks
    clock: Clock
    traces: Traces
    log: SessionLog
    notes_browsers: bool

    def __call__(
        self,
        *,
        key: str | None,
        token_id: str = "",
        by_click: bool = False,
        agreed: str | None = None,
        keeps: bool = False,
        card: str | None = None,
        browser: str | None = None,
        address: str = "",
        user_agent: str = "",
        accepted: Sequence[str] = (),
    ) -> str:
        """Ensure that the session has a page, and return the address for the redirect.

        `key` is the link's key. Without a key, `token_id` identifies a session from an earlier
        release.

        `by_click` is whether the guest clicked the button on cardonfile's page. `agreed` is the
        digest of the consent or agreement to which the guest agreed there. `keeps` is whether the
        guest also ticked the box that allows the center to keep the card. `card` names the card on
        file that the guest uses instead of typing in a card.

        `browser` is the secret in the browser's cookie, or None. `address` and `user_agent` are the
        browser's IP address and User-Agent. `accepted` are its languages, most preferred first.

        If ClickNeeded is raised, neither a page nor an attempt was created.
        """
        session = session_of_link(self.storage, key=key, token_id=token_id)
        now = self.clock.now()
        if not by_click and session.needs_click(now):
            raise ClickNeeded
        # The address is read first, because an erasure may clear it at the same time.
        redirect_uri = session.redirect_uri
        noted = Browser(address, user_agent) if self.notes_browsers else None
        click = ClickOnPage(agreed=agreed, keeps=keeps, secret=browser, noted=noted)
        with self.traces.following(session.trace):
            if self._begin_question(session, now):
                self.settle(session.token_id)
            if card:
                self.use_card_on_file(session, card, click, accepted)
                return redirect_uri
            session = self._with_page(self._with_attempt(session, by_click, click, accepted))
        return redirect_uri if session.is_settled else self._page_of(session)

    def _begin_question(self, session: CardSession, now: datetime) -> bool:
        """Record that the PSP will be asked about the page.

        Return False if there is no need to ask the PSP. Also return False if the PSP was asked so
        recently that another call must wait.
        """
        return (
            session.attempt is not None
            and session.attempt.has_live_page
            and not session.is_past_end(now)
            and store_change(self.storage, session, lambda it: it.asked(self.clock.now()))
        )

    def _with_page(self, session: CardSession) -> CardSession:
        """Return the session with a page for its attempt.

        The returned session has no page if the PSP refuses to create a page. Raises
        ProviderUnavailable.
        """
        if session.is_settled or not session.current_attempt.is_unanswered:
            return session
        try:
            return self.obtain_page(session)
        except ProviderUnavailable:
            store_change(self.storage, session, lambda it: it.answered(self.clock.now()))
            raise

    def _page_of(self, session: CardSession) -> str:
        """Return the address of the session's page.

        Raises LinkCancelled, LinkExpired or FormNeeded. Raises ProviderUnavailable if there is no
        page that can be used.
        """
        now, attempt = self.clock.now(), session.current_attempt
        require_open(session, now)
        if attempt.page is None or attempt.over:
            raise ProviderUnavailable("the PSP refused to make a page")
        if session.is_page_past_end(now):
            raise ProviderUnavailable("the page has ended, and the PSP does not report its outcome")
        if attempt.page.fields:
            raise FormNeeded(attempt.page)
        return attempt.page.address

    def _with_attempt(
        self,
        seen: CardSession,
        by_click: bool,
        click: ClickOnPage,
        accepted: Sequence[str],
    ) -> CardSession:
        """Return the session with an unfinished attempt, which is stored before the PSP is called.

        If cardonfile's own page asks for consent, the guest's click is stored with the attempt. The
        guest must agree in each browser, and the latest click applies. If the PSP has not responded
        about the attempt yet, this method records that the PSP will be asked. `_with_page` then
        asks the PSP. A session that another process has settled in the meantime is returned
        unchanged.

        Raises PageUnderWay while another request is asking the PSP. The click is stored before
        PageUnderWay is raised, because after a double click the browser keeps the cookie of the
        second request.
        """

        def note(unit: WriteUnit) -> tuple[CardSession, Sequence[SessionStep], bool]:
            session, now = unit.sessions.get(seen.token_id) or seen, self.clock.now()
            if session.is_settled:
                return session, (), False
            require_open(session, now)
            opened, is_under_way = session.with_progress(Progress.OPENED, now), False
            if session.attempt is None or session.attempt.over:
                opened = self._with_next_attempt(unit, session, now, by_click, accepted)
            elif session.attempt.is_unanswered:
                asked = opened.asked(now)
                is_under_way = asked is None
                if asked is not None:
                    # Cards may have been refused on other pages in the meantime.
                    self._require_below_limits(unit, session, now, by_click)
                    opened = asked
            opened = self._with_agreement(unit, opened, click, now)
            if opened != session:
                unit.sessions.update(opened)
                unit.commit()
            return opened, steps_between(session, opened), is_under_way

        opened, steps, is_under_way = self.storage.transact(note)
        self.log(*steps)
        if is_under_way:
            raise PageUnderWay
        return opened

    def _with_next_attempt(
        self,
        unit: WriteUnit,
        session: CardSession,
        now: datetime,
        by_click: bool,
        accepted: Sequence[str],
    ) -> CardSession:
        """Return a copy of the session with a new attempt.

        The former page is stored, so that webhooks about it can still be processed.
        """
        if not by_click and cards_to_offer(unit, session, now):
            # The limits on refused cards apply only to cards that are typed in.
            raise ClickNeeded
        opened = session.with_attempt(self._next_request(unit, session, now, by_click, accepted))
        if session.has_page:
            page = EarlierPage.of(session)
            if session.due_at is not None and session.due_at <= now:
                # A webhook about the page has arrived, and the PSP has not been asked yet.
                page, opened = page.due_for_check(now), opened.due_now(now)
            unit.earlier_pages.keep(page)
        return opened

    def _with_agreement(
        self, unit: WriteUnit, session: CardSession, click: ClickOnPage, now: datetime
    ) -> CardSession:
        """Return a copy of the session that records the guest's click in this browser.

        Return the session unchanged if cardonfile's page does not have to ask for consent, or if
        the guest has already agreed in this browser. There is one exception: if the guest agrees
        with `click` to the current text about a booking, the click is recorded in any case.

        Raises ClickNeeded if the guest has not agreed in this browser before, and does not agree to
        the current text with `click`.
        """
        is_on_our_page = self.choose_consent.is_on_our_page(session.configuration.provider)
        is_asked_for = is_on_our_page or session.agreement is not None
        is_repeated = click.agreed is None or session.agreement is None
        if not is_asked_for or (session.has_agreed(click.secret) and is_repeated):
            return session
        request = session.current_attempt.request
        shown = self.show_agreement(unit, session, (), now)
        digest = request.consent.digest if shown is None else shown.digest
        if click.secret is None or click.agreed != digest:
            if session.has_agreed(click.secret):
                # The form shows an earlier text, and the guest has already agreed in this browser.
                return session
            raise ClickNeeded
        if shown is not None:
            # The click is recorded even if the guest has already agreed in this browser, because
            # the guest may have changed the box.
            session = session.agreed_to(shown, keeps=click.keeps, browser=click.secret, now=now)
        return click.noted_in(session, now).agreed(click.secret, now)

    def _require_below_limits(
        self, unit: WriteUnit, session: CardSession, now: datetime, by_click: bool
    ) -> None:
        """Apply the limits on refused cards.

        Raises LinkPaused if a limit is reached, or ClickNeeded if a program may be testing cards.
        """
        try:
            limits = on_refused_cards(session.configuration.card_limits(self.limits))
            needs_click = require_below_limits(unit, limits, session, now)
        except CardLimitReached as reached:
            raise LinkPaused(reached) from reached
        if needs_click and not by_click:
            raise ClickNeeded

    def _next_request(
        self,
        unit: WriteUnit,
        session: CardSession,
        now: datetime,
        by_click: bool,
        accepted: Sequence[str],
    ) -> HostedPageRequest:
        number = 1
        if session.attempt is not None:
            # The session may have gone back to an earlier page.
            pages = unit.earlier_pages.of(session.token_id)
            number += max([session.attempt.request.attempt, *(page.number for page in pages)])
        if not session.may_have_page(number, now):
            raise LinkExpired
        self._require_below_limits(unit, session, now, by_click)
        if session.not_accepted is not None and not by_click:
            # The guest must first read why the center did not accept the last card.
            raise ClickNeeded
        guest = unit.guests.get(session.guest_id)
        center = unit.centers.get(session.center_id)
        if guest is None or center is None:
            raise LinkUnknown
        configuration, settings = session.configuration, unit.center_settings.get(center.id)
        has_details = session.may_have_details(now)
        latest = now + MAX_PAGE_LIFETIME
        if has_details:
            latest = min(latest, session.old_at)
        shows_guest = session.shows_guest and has_details
        shown = self.show_agreement(unit, session, accepted, now)
        request = HostedPageRequest(
            token_id=session.token_id,
            attempt=number,
            merchant_account=configuration.merchant_account,
            guest_id=guest.id,
            guest_reference=None,
            guest_name=guest.full_name if shows_guest else "",
            guest_email=guest.email if shows_guest else None,
            center_name=center.name,
            billing_info=with_usual_postal_code(session.billing_info, self.postal_codes)
            if has_details
            else None,
            avs=configuration.avs,
            return_uri=self.links.return_uri(session.token_id),
            cancel_uri=self.links.cancel_uri(session.token_id),
            redirect_origin=redirect_origin(session.redirect_uri) or "",
            consent=self.choose_consent(
                unit, center, guest, session.configuration.provider, session.locale, accepted
            )
            if shown is None
            else shown.on_psp_page,
            begun_at=now,
            live_until=min(session.expires_at, latest),
            center_id=center.id,
            color=settings.color,
            logo_uri=self.links.logo_uri(center.id, settings.logo),
            refuse_funding=configuration.refuse_funding,
            authentication=session.required_authentication,
        )
        reference = unit.guest_references.get(session.psp_guest(request))
        return replace(request, guest_reference=reference)
