"""Complete a session with a card on file that the guest uses to guarantee a booking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain.agreements.click import WITH_CARD_ON_FILE
from domain.events.note_event import NoteEvent
from domain.hosted_payments.click_on_page import ClickOnPage
from domain.hosted_payments.link import ClickNeeded, require_open
from domain.hosted_payments.show_agreement import ShowAgreement, cards_to_offer, name_of
from domain.identifiers import AgreementId
from domain.outside import Clock, Ids
from domain.sessions.earlier_page import EarlierPage
from domain.sessions.session import CardSession
from domain.sessions.session_log import SessionLog, SessionStep, Step
from domain.settling.judge import agreed_to
from domain.settling.store_agreement import store_agreement
from domain.storage import Storage, WriteUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class UseCardOnFile:
    """Step: complete a session with one of the guest's cards on file, without a call to the PSP.

    The consent, the agreement and its event are stored in one commit. If the session has a page,
    the worker closes the page, and discards any card that was typed in there. A settled session
    does not change, so this may be called more than once.
    """

    storage: Storage
    show_agreement: ShowAgreement
    note_event: NoteEvent
    clock: Clock
    ids: Ids
    log: SessionLog

    def __call__(
        self, seen: CardSession, card: str, click: ClickOnPage, accepted: Sequence[str]
    ) -> None:
        """Use the card on file whose name in the page's form (`name_of`) is `card`.

        `accepted` are the browser's languages, most preferred first. Raises ClickNeeded and stores
        nothing if the text has changed, or if the card may no longer be used. Raises LinkCancelled
        or LinkExpired.
        """

        def use(unit: WriteUnit) -> Sequence[SessionStep]:
            session, now = unit.sessions.get(seen.token_id) or seen, self.clock.now()
            if session.is_settled:
                return ()
            require_open(session, now)
            shown = self.show_agreement(unit, session, accepted, now)
            cards = {name_of(each): each for each in cards_to_offer(unit, session, now)}
            if shown is None or shown.digest != click.agreed or card not in cards:
                raise ClickNeeded
            account = cards[card]
            agreement_click = shown.clicked(
                attempt=WITH_CARD_ON_FILE,
                browser="",
                keeps=click.keeps,
                now=now,
                card=f"{account.card_logo} {account.last_four}",
            )
            noted = click.noted_in(session, now)
            completed = noted.completed_with(account.account_id, agreement_click, now)
            if session.has_page:
                unit.earlier_pages.keep(EarlierPage.of(session).due_for_check(now))
            if any(each.told_at is not None for each in unit.earlier_pages.of(session.token_id)):
                # The session has ended, so settling it closes the page and discards any card typed
                # in there.
                completed = completed.due_now(now)
            unit.sessions.update(completed)
            given = agreed_to(
                completed,
                agreement_click,
                now,
                account_id=account.account_id,
                agreement_ids=[AgreementId(self.ids.uuid())],
            )
            unit.accounts.update(account.kept_longer(given.keep_until, given.consent.version))
            for agreement in given.agreements:
                store_agreement(
                    unit,
                    self.note_event,
                    agreement,
                    psp_account=account.psp_account,
                    now=now,
                )
            unit.consents.add(given.consent)
            unit.commit()
            return [SessionStep(Step.CARD_USED, completed)]

        self.log(*self.storage.transact(use))
