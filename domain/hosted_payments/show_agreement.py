"""Choose what a guest reads about a booking: the text, and the cards on file that may be used."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from domain.agreements.agreement import MAX_OPEN_AGREEMENTS, count_open
from domain.agreements.choose_reservation_text import ChooseReservationText
from domain.agreements.click import FurtherBooking, ShownAgreement
from domain.agreements.terms import AgreementTerms, Reuse
from domain.cards.account import Account
from domain.psps.hosted_page import Authentication
from domain.retries import CLOCKS_DIFFER_BY
from domain.sessions.session import CardSession
from domain.storage import RecordUnreadable, UnitOfWork


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowAgreement:
    """Step: choose the text about a session's booking that the page shows now."""

    choose_reservation_text: ChooseReservationText

    def __call__(
        self, unit: UnitOfWork, session: CardSession, accepted: Sequence[str], now: datetime
    ) -> ShownAgreement | None:
        """Return the texts, or None if the session has no agreement.

        Return None also if the center is no longer stored. `accepted` are the browser's languages,
        most preferred first.
        """
        center = unit.centers.get(session.center_id)
        if session.agreement is None or center is None:
            return None
        locale = session.locale
        if session.attempt is not None and not session.attempt.over:
            # The PSP's page already exists in this language.
            locale, accepted = session.attempt.request.language, ()
        guest = unit.guests.get(session.guest_id)
        first, *others = [
            self.choose_reservation_text(
                unit, center, guest, terms, session.configuration, locale, accepted, now
            )
            for terms in session.bookings
        ]
        further = tuple(
            FurtherBooking(terms=terms, shown=shown.text, kept_until=shown.kept_until)
            for terms, shown in zip(session.bookings[1:], others, strict=True)
        )
        return replace(first, further=further)


def cards_to_offer(unit: UnitOfWork, session: CardSession, now: datetime) -> Sequence[Account]:
    """Return the guest's cards on file that may be used for a session's booking.

    The page offers the first of them: the default card, or the newest card if the default may not
    be used. A card is left out if it expires before the booking, if the center would not accept its
    funding or authentication, or if the guest removed it or withdrew the consent.

    Anybody with the link could use the card for the booking. Therefore, no cards are returned in
    these cases:

    - The link is old.
    - Another guest was merged into the guest after the link was made.
    - A desk link was made for the session. Another guest may stand at the desk.

    In a write unit, this call locks the guest's cards.
    """
    terms, configuration = session.agreement, session.configuration
    if terms is None or terms.reuse is not Reuse.OFFER or session.is_old(now):
        return []
    if unit.desk_links.of(session.token_id):
        return []
    if session.attempt is not None and session.attempt.is_unanswered:
        # The PSP may be creating a page on which the guest types in another card.
        return []
    # The cards are read first to lock them, because a merge of the guest waits for these locks.
    accounts = unit.accounts.active_at(session.guest_id, session.center_id)
    merged_at = unit.erasures.last_merge_into(session.guest_id)
    if merged_at is not None and session.created_at <= merged_at + CLOCKS_DIFFER_BY:
        return []
    is_gone = (
        unit.guests.get(session.guest_id) is None
        or unit.centers.get(session.center_id) is None
        or unit.configurations.get(session.center_id) is None
        or unit.merchant_standings.of(configuration.psp_account).is_closed
    )
    if is_gone or now >= terms.ends_at:
        return []
    must_be_authenticated = session.required_authentication is Authentication.REQUIRED
    offered = [
        account
        for account in accounts
        if account.psp_account == configuration.psp_account
        and configuration.accepts(account)
        and not account.has_expired(terms.ends_at.astimezone(UTC))
        and (account.authenticated or not must_be_authenticated)
        # The guest can type in the card again after removing it or withdrawing the consent.
        and not account.is_taken_back
        # A card that the PSP did not know at the last reading is not offered.
        and not account.refusals
        # The guest has read that the card is removed after `keep_until`.
        and (account.keep_until is None or now <= account.keep_until)
        and _has_room(unit, account, terms, now)
    ]
    return sorted(offered, key=lambda each: (not each.is_default, -each.created_at.timestamp()))


def name_of(card: Account) -> str:
    """Return the text by which the page's form identifies a card on file.

    It consists of the card's id, brand and last four digits. If the card has changed since the
    guest read the page, the text is different.
    """
    return f"{card.account_id} {card.card_logo} {card.last_four}"


def _has_room(unit: UnitOfWork, card: Account, terms: AgreementTerms, now: datetime) -> bool:
    # If an agreement cannot be decoded, the card is not offered. The guest can still type in a
    # card.
    with suppress(RecordUnreadable):
        agreements = unit.agreements.of_account(card.account_id)
        return count_open(agreements, now, except_for=[terms.replaces]) < MAX_OPEN_AGREEMENTS
    return False
