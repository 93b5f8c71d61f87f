"""Injects a fault at each call that a use case makes, and checks that the next attempt succeeds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

import msgspec
import pytest
from dependency_injector.providers import Provider

from adapters.fake_psp.psp import REISSUED, CardEvent, batch
from adapters.psp_suite.samples import GUEST_ID, OTHER_GUEST_ID, a_uuid
from domain.agreements.agreement import Agreement
from domain.agreements.click import AgreementClick
from domain.cards.account import READ_FIRST_AFTER, READ_LEASE, Account
from domain.cards.import_card import CardToImport, Fate
from domain.centers.card_limit import CardLimit, Counted, CountedPer
from domain.errors import GuestNotFound, ServiceUnavailable
from domain.events.event_sender import EventNotSent
from domain.hosted_payments.show_agreement import name_of
from domain.identifiers import EndpointId
from domain.portal.change_card import CardChange
from domain.psps.payment_provider import ProviderRefused, ProviderUnavailable, WebhookRejected
from domain.psps.webhook import WebhookDelivery
from domain.retries import LEASE
from domain.sessions.polling import ANSWERED_WITHIN
from domain.sessions.session import CardSession
from domain.settling.store_agreement import store_agreement
from entrypoints.container import build
from entrypoints.settings import Settings
from tests.builders import CENTER_ID, a_card_to_import, a_guest, an_agreement, terms_of_a_booking
from tests.databases import change_by_hand, committed
from tests.installation import (
    CHALLENGED_CARD,
    DECLINED_CARD,
    GOOD_CARD,
    MERCHANT,
    OTHER_GOOD_CARD,
    PREPAID_CARD,
    REDIRECT_URI,
)
from tests.programs import ROOT
from tests.simulation.endpoints import EVERYTHING, EndpointTrouble
from tests.simulation.faulty_installation import (
    Attempt,
    Bug,
    CallFault,
    FaultyInstallation,
    Prepared,
    Situation,
    has_effect,
    is_in_unit,
    is_to_endpoint,
    is_to_psp,
    is_to_same_port,
    is_to_storage,
)
from tests.simulation.ports import PSP_CALLS, Moment
from tests.simulation.processes import Killed
from tests.simulation.psp import LASTING_TOKENS

OTHER_ENDPOINT: Final = EndpointId(a_uuid(91))
OTHER_VISIT: Final = f"{REDIRECT_URI}&visit=2"
DOUBLE: Final = a_guest(id=OTHER_GUEST_ID)

It: TypeAlias = FaultyInstallation
Thing = TypeVar("Thing")


def after(
    act: Callable[[It, Thing], object], **preparations: Callable[[It], Thing]
) -> tuple[Situation, ...]:
    """Return a situation for each preparation. `act` is called with the preparation's result."""

    def situation(name: str, prepare: Callable[[It], Thing]) -> Situation:
        def prepared(it: It) -> Attempt:
            thing = prepare(it)
            return lambda: act(it, thing)

        prepared.__name__ = name
        return prepared

    return tuple(situation(name, prepare) for name, prepare in preparations.items())


# Preparations.


def address_to_verify(it: It) -> object:
    it.configure(avs=True)
    return {"address": "1 Main St", "country_code": "US", "zipcode": "98101"}


def request_sent_before(it: It) -> None:
    it.add_card(idempotency_key="key")


def page_closed_early(it: It) -> CardSession:
    session = it.opened_session()
    it.psp.close_page(it.page_reference(session))
    return session


def challenge(it: It) -> CardSession:
    return it.session_with_card(CHALLENGED_CARD)


def two_links(it: It) -> Sequence[CardSession]:
    it.token_for(it.caller)
    return it.add_card(), it.opened_session(redirect_uri=OTHER_VISIT)


def desk_link_of_an_open_page(it: It) -> tuple[CardSession, str]:
    session = it.opened_session()
    secret = it.container.make_desk_link()(
        it.caller,
        access_token=it.token_for(it.caller),
        guest_id=session.guest_id,
        token_id=session.token_id,
        label="Chair 3",
    )
    return session, secret


def event_of_a_page(it: It) -> WebhookDelivery:
    it.session_with_card()
    return it.webhook()


def event_of_a_card_on_file(it: It) -> WebhookDelivery:
    token = it.stored_card().token
    event = CardEvent(id="1", type=REISSUED, created=0, merchant_account=MERCHANT, card=token)
    return it.webhook(batch(msgspec.json.encode(event)))


def key_of_yesterday(it: It) -> None:
    it.add_card(idempotency_key="key")
    it.clock.advance(timedelta(hours=25))


def same_card_again(it: It) -> CardSession:
    it.stored_card()
    return it.session_with_card(redirect_uri=OTHER_VISIT)


def same_card_with_a_new_expiry(it: It) -> CardSession:
    it.stored_card()
    return it.session_with_card(expiry=(3, 2034), redirect_uri=OTHER_VISIT)


def token_to_be_discarded(it: It) -> CardSession:
    it.configure(merchant_account=LASTING_TOKENS)
    it.remove(it.stored_card())
    return it.session_with_card(redirect_uri=OTHER_VISIT)


def token_being_discarded(it: It) -> CardSession:
    session = token_to_be_discarded(it)
    it.container.discard_token().take()
    return session


def page_without_a_card(it: It) -> CardSession:
    session = it.opened_session()
    it.clock.advance(timedelta(minutes=30))
    return session


def refused_cards(it: It) -> CardSession:
    session = it.session_with_card(DECLINED_CARD)
    it.type_card(session, DECLINED_CARD)
    return session


def too_many_refused_cards(it: It) -> Sequence[CardSession]:
    it.has_limits(CardLimit(Counted.REFUSED_CARDS, CountedPer.GUEST, 3))
    first, second = (it.opened_session(redirect_uri=uri) for uri in (REDIRECT_URI, OTHER_VISIT))
    for _ in range(3):
        it.type_card(first, DECLINED_CARD)
    return first, first, second


def removed_card(it: It) -> None:
    it.remove(it.stored_card())


def session_and_discard(it: It) -> None:
    removed_card(it)
    it.session_with_card(OTHER_GOOD_CARD, redirect_uri=OTHER_VISIT)
    it.clock.advance(timedelta(seconds=30))


def default_card_beside_another(it: It) -> Account:
    account = it.stored_card()
    it.stored_card(OTHER_GOOD_CARD, redirect_uri=OTHER_VISIT)
    return account


def second_card(it: It) -> Account:
    it.stored_card()
    return it.stored_card(OTHER_GOOD_CARD, redirect_uri=OTHER_VISIT)


def event_for_everything(it: It) -> EndpointId:
    it.stored_card()
    return EVERYTHING


def event_for_an_endpoint_that_was_removed(it: It) -> EndpointId:
    it.add_endpoint(OTHER_ENDPOINT)
    it.stored_card()
    it.container.remove_event_endpoint()(OTHER_ENDPOINT)
    return OTHER_ENDPOINT


def event_for_an_endpoint_that_is_gone(it: It) -> EndpointId:
    it.add_endpoint(OTHER_ENDPOINT)
    it.stored_card()
    it.known.endpoints.troubles[OTHER_ENDPOINT] = EndpointTrouble.GONE
    return OTHER_ENDPOINT


def delivered_event(it: It) -> str:
    it.stored_card()
    it.deliver_to(EVERYTHING)
    it.add_endpoint(OTHER_ENDPOINT)
    (event_id,) = it.check().deliveries[EVERYTHING]
    return event_id


def two_cards_that_expire_soon(it: It) -> None:
    second_card(it)
    it.clock.advance(datetime(2031, 9, 10, tzinfo=UTC) - it.clock.now())
    it.reconcile()


def reissued_card(it: It) -> None:
    it.bank_updates(it.stored_card(), OTHER_GOOD_CARD, expiry=(3, 2036))
    it.clock.advance(READ_FIRST_AFTER)


def lost_card(it: It) -> None:
    it.psp_loses(default_card_beside_another(it))
    it.clock.advance(READ_FIRST_AFTER)


def two_cards_that_become_one(it: It) -> None:
    it.bank_updates(second_card(it))
    it.clock.advance(READ_FIRST_AFTER)


def card_at_the_psp_beside_another(it: It) -> CardToImport:
    it.stored_card(OTHER_GOOD_CARD, redirect_uri=OTHER_VISIT)
    # A session with this card is open. It is settled only after the card was imported.
    page = it.psp.page(it.page_reference(it.session_with_card()))
    assert page.card is not None
    it.known.imported.add(page.card.token)
    return a_card_to_import(page.card)


def two_cards_to_erase(it: It) -> CardSession:
    it.stored_card()
    return it.session_with_card(OTHER_GOOD_CARD, redirect_uri=OTHER_VISIT)


def restored_backup(it: It) -> None:
    it.stored_card()
    it.container.erasure_file().note(GUEST_ID, it.clock.now(), ())


def double_with_the_same_card(it: It) -> None:
    it.has_guest(DOUBLE)
    it.stored_card()
    it.stored_card(guest_id=DOUBLE.id, redirect_uri=OTHER_VISIT)


def double_who_types_a_card(it: It) -> None:
    it.has_guest(DOUBLE)
    it.stored_card(guest_id=DOUBLE.id)
    it.session_with_card(OTHER_GOOD_CARD, guest_id=DOUBLE.id, redirect_uri=OTHER_VISIT)


def restored_backup_of_a_double(it: It) -> None:
    double_who_types_a_card(it)
    it.container.erasure_file().note(DOUBLE.id, it.clock.now(), (), merged_into=GUEST_ID)
    it.known.unmerged.add(DOUBLE.id)


def being_erased(prepare: Callable[[It], object]) -> Callable[[It], object]:
    """Return a function that prepares an erasure that the worker has to finish."""

    def erased(it: It) -> None:
        prepare(it)
        it.check()
        it.erase()
        for _ in range(2):
            it.clock.advance(timedelta(minutes=5))
            it.reconcile()

    return erased


def card_on_the_own_page(it: It) -> tuple[str, Account]:
    account = default_card_beside_another(it)
    return visit_of(it), account


def booked_card_on_the_own_page(it: It) -> tuple[str, Account]:
    """Return the cookie of a visit to the own page, and a card that guarantees two bookings."""
    use_card_on_file(it, booking_with_a_card_on_file(it))
    (account,) = it.accounts()
    book_again(it, account, number=2)
    return visit_of(it), account


def replacement_to_agree_to(it: It) -> tuple[CardSession, str]:
    """Return a session that replaces a card with two bookings, and the digest of its texts.

    The guest has not agreed to the texts yet.
    """
    replace_card(it, booked_card_on_the_own_page(it))
    with it.storage.read() as unit:
        session = next(each for each in unit.sessions.of_guest(GUEST_ID) if each.replaces)
    page_content = it.container.find_page_content()(key=session.link_key)
    assert page_content is not None
    assert page_content.agreement is not None
    it.known.texts[session.token_id].update(page_content.agreement.texts)
    return session, page_content.agreement.digest


def card_that_replaces_another(it: It, number: str = OTHER_GOOD_CARD) -> CardSession:
    """Return a session with a typed card that replaces a card with two bookings."""
    session, digest = replacement_to_agree_to(it)
    agree_again(it, (session, digest))
    it.type_card(session, number)
    return it.session(session.token_id)


def card_that_replaces_itself(it: It) -> CardSession:
    return card_that_replaces_another(it, GOOD_CARD)


def card_that_replaces_one_booked_since(it: It) -> CardSession:
    """Return a session with a typed card that replaces a card with three bookings.

    The third booking was added after the replacement began.
    """
    session = card_that_replaces_another(it)
    (account,) = it.accounts()
    book_again(it, account, number=3)
    return session


def card_on_the_own_page_and_its_successor(it: It) -> tuple[str, Account]:
    card_that_replaces_another(it)
    (account,) = it.accounts()
    return visit_of(it), account


def agreement_of_a_card_that_is_replaced(it: It) -> Agreement:
    card_that_replaces_another(it)
    with it.storage.read() as unit:
        return unit.agreements.of_guest(GUEST_ID)[-1]


def double_with_the_card_that_replaces_another(it: It) -> None:
    it.has_guest(DOUBLE)
    it.stored_card(OTHER_GOOD_CARD, guest_id=DOUBLE.id)
    card_that_replaces_another(it)


def card_on_file_that_replaces_another(it: It) -> CardSession:
    """Return a session that replaces the default card with the second of three cards on file."""
    session = card_that_replaces_another(it)
    for card, number in enumerate((OTHER_GOOD_CARD, PREPAID_CARD), start=2):
        it.stored_card(number, redirect_uri=f"{REDIRECT_URI}&card={card}")
    return session


def visit_of(it: It) -> str:
    # The newest session is used, so later sessions must not have the same time as earlier ones.
    it.clock.advance(timedelta(seconds=1))
    opened = it.container.open_portal()(
        it.caller,
        access_token="a.json.token",
        guest_id=GUEST_ID,
        center_id=CENTER_ID,
        return_uri=REDIRECT_URI,
        locale=None,
    )
    return it.container.enter_portal()(opened.secret)


def changing(change: CardChange) -> Callable[[It, tuple[str, Account]], None]:
    """Return a function that changes a card.

    The function returns None, because a retry would return another result.
    """

    def act(it: It, visited: tuple[str, Account]) -> None:
        cookie, account = visited
        it.container.change_card()(cookie, account.account_id, change)
        if change is CardChange.REMOVE:
            it.known.removed.add(account.account_id)

    return act


# Calls of the use cases. Each reads the container, because a killed process builds its parts anew.


def add(it: It, billing_info: object) -> object:
    return it.add_card(idempotency_key="key", billing_info=billing_info).status


def replace_card(it: It, visited: tuple[str, Account]) -> None:
    cookie, account = visited
    it.known.sends[it.container.links().portal_page_uri] += 1
    it.container.replace_card()(cookie, account.account_id)


def agree_again(it: It, shown: tuple[CardSession, str]) -> str:
    """Agree to the texts of a replacement. Return a description of the page that follows."""
    session, digest = shown
    address = it.use_cases.open_hosted_page(
        key=session.link_key, by_click=True, agreed=digest, browser="b" * 22
    )
    page = it.psp.page(address.rpartition("/")[2])
    return "a page that is over" if page.is_over else "a live page"


def cancel_at_desk(it: It, desk: tuple[CardSession, str]) -> None:
    session, secret = desk
    it.container.cancel_at_desk()(secret)
    it.known.cancelled.add(session.token_id)


def go_back(it: It, session: CardSession) -> str:
    return it.use_cases.cancel_hosted_page(token_id=session.token_id)


def cancel_all(it: It, sessions: Sequence[CardSession]) -> None:
    # Do not return the number of sessions, because a second attempt counts only the remaining ones.
    it.container.cancel_sessions_of_caller()(it.caller.name)
    it.known.cancelled |= {session.token_id for session in sessions}


def close_account(it: It, sessions: Sequence[CardSession]) -> None:
    # Do not return the counts, for the same reason.
    it.container.close_account()(sessions[0].configuration.psp_account)
    it.known.cancelled |= {session.token_id for session in sessions}


def chore(name: str) -> Callable[[It, object], None]:
    """Return a function that runs a chore of the worker.

    The function returns None for the same reason as in `changing`.
    """

    def act(it: It, _: object) -> None:
        getattr(it.container, name)()()

    return act


def settle_each(it: It, sessions: Sequence[CardSession]) -> str:
    return [it.status_after_settling(session) for session in sessions][-1]


def discard(it: It, _: object) -> None:
    taken = it.container.discard_token().take()
    if taken is not None:
        it.container.discard_token()(taken)


def reconcile(it: It, _: object) -> object:
    return tuple(type(fault) for fault in it.reconcile().faults)


def remove_as_operator(it: It, account: Account) -> None:
    it.container.remove_account()(None, account_id=account.account_id)
    it.known.removed.add(account.account_id)


def choose(it: It, account: Account) -> None:
    it.use_cases.choose_default_card(
        it.caller, guest_id=account.guest_id, account_id=account.account_id
    )


def replay_all(it: It, _: object) -> int:
    return it.replay_since(it.clock.now() - timedelta(days=1))


def links_to_report(it: It) -> None:
    it.add_card()
    it.add_card(redirect_uri=OTHER_VISIT)
    it.clock.advance(timedelta(minutes=16))


def read_events(it: It, _: object) -> int:
    return len(it.use_cases.list_events(it.caller, size=10).events)


def agreed(it: It, account: Account, number: int, ends_at: datetime, keep_for: timedelta) -> None:
    """Store an agreement that keeps a card until `keep_for` after the end of the booking."""
    agreement = an_agreement(
        number,
        account_id=account.account_id,
        terms=terms_of_a_booking(ends_at=ends_at, reference=f"{number}"),
        due_at=ends_at,
        kept_until=ends_at + keep_for,
    )
    it.known.texts[agreement.token_id].add(agreement.shown.text)
    with committed(it.storage) as unit:
        note_event, now = it.container.note_event(), it.clock.now()
        store_agreement(unit, note_event, agreement, psp_account=account.psp_account, now=now)
        found = unit.agreements.of_account(account.account_id)
        keep_until = max(each.keeps_card_until for each in found)
        unit.accounts.update(replace(account, keep_until=keep_until))


def cards_whose_agreements_have_ended(it: It) -> None:
    cards = it.stored_card(), it.stored_card(OTHER_GOOD_CARD, redirect_uri=OTHER_VISIT)
    for number, account in enumerate(cards):
        agreed(it, account, number, it.clock.now(), timedelta(0))
    it.clock.advance(timedelta(seconds=1))


def two_agreements_whose_bookings_are_over(it: It) -> None:
    account = it.stored_card()
    for number in (1, 2):
        ends_at = it.clock.now() + timedelta(minutes=1)
        agreed(it, account, number, ends_at, timedelta(days=number))
    it.clock.advance(timedelta(minutes=1))


def booking_with_a_card_on_file(it: It) -> Mapping[str, str | None]:
    """Return the click with which a guest uses a card on file for a booking."""
    it.container.set_center()(CENTER_ID, {"time_zone": "Europe/Berlin"})
    it.container.set_reservation_text()(CENTER_ID, "en")
    return booking_with(it, it.stored_card(), number=1)


def book_again(it: It, account: Account, *, number: int) -> None:
    use_card_on_file(it, booking_with(it, account, number=number))


def booking_with(it: It, account: Account, *, number: int) -> Mapping[str, str | None]:
    """Return the click with which a guest uses a card on file for the booking with this number."""
    starts_at = it.clock.now() + timedelta(days=1 + number)
    session = it.add_card(
        redirect_uri=f"{REDIRECT_URI}&visit={1 + number}",
        agreement={
            "reference": f"booking-{number}",
            "description": "2 × massage",
            "starts_at": starts_at.isoformat(),
            "ends_at": (starts_at + timedelta(hours=1)).isoformat(),
            "no_show": {"amount": "80.00", "currency": "EUR"},
            "reuse": "offer",
        },
    )
    page_content = it.container.find_page_content()(key=session.link_key)
    assert page_content is not None
    assert page_content.agreement is not None
    it.known.texts[session.token_id].add(page_content.agreement.text.text)
    it.known.offered[session.token_id].add(account.account_id)
    return {
        "key": session.link_key,
        "agreed": page_content.agreement.digest,
        "card": name_of(account),
    }


def use_card_on_file(it: It, click: Mapping[str, str | None]) -> str:
    return it.use_cases.open_hosted_page(
        key=click["key"], by_click=True, agreed=click["agreed"], card=click["card"]
    )


def booking_without_its_agreement(it: It) -> None:
    session = it.opened_session()
    shown = an_agreement().shown
    it.known.texts[session.token_id].add(shown.text)
    click = AgreementClick(
        attempt=1,
        browser="",
        agreed_at=session.created_at,
        shown=shown,
        kept_until=it.clock.now() + timedelta(days=30),
    )
    terms = terms_of_a_booking(ends_at=it.clock.now() + timedelta(days=1))
    with committed(it.storage) as unit:
        unit.sessions.update(replace(session, agreement=terms, clicks=(click,)))
    it.type_card(session)
    it.settle(session.token_id)
    it.check()
    change_by_hand(
        it.storage, "DELETE FROM agreements", "UPDATE payment_accounts SET keep_until = NULL"
    )


def agreement_to_end(it: It) -> Agreement:
    two_agreements_whose_bookings_are_over(it)
    return an_agreement(2)


def end_agreement(it: It, agreement: Agreement) -> None:
    it.container.end_agreement()(
        it.caller,
        guest_id=agreement.guest_id,
        agreement_id=agreement.agreement_id,
        reasons=["cancelled"],
        ats=[],
    )


def read_cards(it: It, _: object) -> None:
    refresh = it.container.refresh_account()
    while taken := refresh.take():
        refresh(taken)


def import_card(it: It, card: CardToImport) -> str:
    return it.container.import_card()(card).value


def erase(it: It, _: object) -> None:
    it.erase()


def erase_again(it: It, _: object) -> object:
    return it.container.erase_guest().repeat_from_file()


def merge(it: It, _: object) -> str:
    try:
        it.merge_guests(DOUBLE.id)
    except GuestNotFound:
        return "merged before"
    return "merged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The situations of a use case, and the results that are allowed when a call fails.

    - `needs`: the number of calls at the start that must not fail. If the storage fails at one of
      them, the use case raises ServiceUnavailable.
    - `without_storage`: the results if the storage fails at a later call.
    - `without_psp`: the results if the PSP does not respond.
    - `without_endpoint`: the results if an endpoint does not respond.
    - `with_bug`: the results if a call raises an undocumented error.
    - `next_try_after`: the time after which the next attempt can succeed, such as the duration of a
      lease or the longest time that the service waits for the answer of the PSP.
    """

    situations: Sequence[Situation]
    needs: int = 0
    without_storage: Sequence[object] = (ServiceUnavailable,)
    without_psp: Sequence[object] = ()
    without_endpoint: Sequence[object] = ()
    with_bug: Sequence[object] = (Bug,)
    next_try_after: timedelta = timedelta(0)

    def results(self, call: str, number: int, error: BaseException) -> Sequence[object]:
        """Return the allowed results when the call with this number raises an error."""
        if isinstance(error, Killed):
            return (Killed,)
        if isinstance(error, Bug):
            return self.with_bug
        if is_to_psp(call):
            return self.without_psp
        if is_to_endpoint(call):
            return self.without_endpoint
        return (ServiceUnavailable,) if number <= self.needs else self.without_storage


# The worker's JobRunner is included, although it is not a use case.
USE_CASES: Final[Mapping[str, Expected]] = {
    "AddCard": Expected(
        situations=after(
            add, a_request_under_a_key=address_to_verify, a_request_sent_before=request_sent_before
        )
    ),
    "OpenHostedPage": Expected(
        situations=after(
            It.follow_link,
            a_new_link=It.add_card,
            a_link_whose_page_is_open=It.opened_session,
            a_link_whose_page_was_closed_early=page_closed_early,
            a_link_opened_while_the_psp_was_down=It.session_without_page,
            a_link_whose_page_has_a_card=It.session_with_card,
        )
        + after(use_card_on_file, a_booking_with_a_card_on_file=booking_with_a_card_on_file)
        + after(agree_again, a_replacement_with_two_bookings=replacement_to_agree_to),
        without_psp=(ProviderUnavailable, "a live page", "a page that is over"),
        next_try_after=ANSWERED_WITHIN,
    ),
    "ReturnFromHostedPage": Expected(
        situations=after(
            It.come_back,
            a_guest_with_a_card=It.session_with_card,
            a_guest_with_an_unanswered_challenge=challenge,
        ),
        needs=2,
        without_storage=(REDIRECT_URI,),
        without_psp=(REDIRECT_URI,),
        next_try_after=ANSWERED_WITHIN,
    ),
    "CancelHostedPage": Expected(
        situations=after(go_back, a_guest_who_goes_back=It.opened_session),
        needs=2,
        without_storage=(REDIRECT_URI,),
    ),
    "CancelSession": Expected(
        situations=after(
            It.cancel,
            a_link_to_cancel=It.add_card,
            a_page_to_cancel=It.opened_session,
            a_page_to_cancel_that_has_a_card=It.session_with_card,
            a_replacement_to_cancel=card_that_replaces_another,
            a_page_to_cancel_that_was_requested_while_the_psp_was_down=It.session_without_page,
        ),
        without_storage=(ServiceUnavailable, "open cancelled"),
        without_psp=("open cancelled", "expired cancelled"),
    ),
    "CancelAtDesk": Expected(
        situations=after(cancel_at_desk, a_desk_link_of_an_open_page=desk_link_of_an_open_page),
        without_storage=(ServiceUnavailable, None),
        without_psp=(None,),
    ),
    "ChangeCard": Expected(
        situations=(
            *after(
                changing(CardChange.REMOVE),
                a_card_that_its_guest_removes=card_on_the_own_page,
            ),
            *after(
                changing(CardChange.WITHDRAW),
                a_booked_card_whose_guest_withdraws=booked_card_on_the_own_page,
                a_card_whose_guest_withdraws_while_it_is_replaced=card_on_the_own_page_and_its_successor,
            ),
        )
    ),
    "ReplaceCard": Expected(
        situations=after(
            replace_card,
            a_card_with_two_bookings_to_replace=booked_card_on_the_own_page,
        )
    ),
    "CancelSessionsOfCaller": Expected(
        situations=after(cancel_all, two_links_of_a_caller_to_cancel=two_links)
    ),
    "CloseAccount": Expected(
        situations=after(close_account, two_links_at_an_account_to_close=two_links)
    ),
    "ForgetOldRecords": Expected(
        situations=after(chore("forget_old_records"), a_key_of_yesterday=key_of_yesterday)
    ),
    "ReceiveWebhook": Expected(
        situations=after(
            It.receive_webhook,
            an_event_of_a_card=event_of_a_page,
            an_event_of_a_card_on_file=event_of_a_card_on_file,
        ),
        without_psp=(WebhookRejected,),
    ),
    "SettleSession": Expected(
        situations=(
            *after(
                It.status_after_settling,
                a_new_card=It.session_with_card,
                a_card_on_file=same_card_again,
                a_card_on_file_with_a_new_expiry=same_card_with_a_new_expiry,
                a_card_whose_token_is_to_be_discarded=token_to_be_discarded,
                a_card_whose_token_is_being_discarded=token_being_discarded,
                a_card_that_replaces_another=card_that_replaces_another,
                a_card_on_file_that_replaces_another=card_on_file_that_replaces_another,
                a_card_that_replaces_itself=card_that_replaces_itself,
                a_card_that_replaces_one_with_a_further_booking=card_that_replaces_one_booked_since,
                a_page_without_a_card=page_without_a_card,
                a_page_with_refused_cards=refused_cards,
                a_page_requested_while_the_psp_was_down=It.session_without_page,
            ),
            *after(
                settle_each, pages_of_a_guest_with_too_many_refused_cards=too_many_refused_cards
            ),
        ),
        without_psp=("open",),
    ),
    "JobRunner": Expected(
        situations=after(reconcile, a_session_and_a_discard=session_and_discard),
        without_psp=((),),
        without_endpoint=((),),
        with_bug=(Bug, (Bug,)),
        next_try_after=LEASE,
    ),
    "DiscardToken": Expected(
        situations=after(discard, a_removed_card=removed_card),
        without_psp=(None,),
        next_try_after=LEASE,
    ),
    "RefreshAccount": Expected(
        situations=after(
            read_cards,
            a_card_that_is_reissued=reissued_card,
            a_card_that_is_gone=lost_card,
            two_cards_that_become_one=two_cards_that_become_one,
        ),
        without_psp=(None,),
        next_try_after=READ_LEASE,
    ),
    "ImportCard": Expected(
        situations=after(
            import_card,
            a_card_to_import_beside_another=card_at_the_psp_beside_another,
        ),
        without_psp=(ProviderUnavailable, Fate.UNKNOWN.value),
    ),
    "RemoveAccount": Expected(
        situations=(
            *after(
                It.remove,
                a_default_card_to_remove=default_card_beside_another,
            ),
            *after(remove_as_operator, a_card_for_an_operator_to_remove=It.stored_card),
        )
    ),
    "ChooseDefaultCard": Expected(situations=after(choose, a_card_to_make_the_default=second_card)),
    "DeliverEvent": Expected(
        situations=after(
            It.deliver_to,
            an_event_that_is_due=event_for_everything,
            an_event_for_an_endpoint_that_was_removed=event_for_an_endpoint_that_was_removed,
            an_event_for_an_endpoint_that_is_gone=event_for_an_endpoint_that_is_gone,
        ),
        without_endpoint=("pending",),
        next_try_after=LEASE,
    ),
    "EraseGuest": Expected(
        situations=(
            *after(
                erase,
                a_guest_who_has_typed_a_card_to_erase=two_cards_to_erase,
                a_guest_whose_page_was_requested_while_the_psp_was_down=It.session_without_page,
                a_guest_who_replaces_a_card_to_erase=card_that_replaces_another,
            ),
            *after(erase_again, a_guest_of_a_restored_backup=restored_backup),
        )
    ),
    "MergeGuests": Expected(
        situations=(
            *after(
                merge,
                two_guests_with_the_same_card_to_merge=double_with_the_same_card,
                a_guest_to_merge_who_types_a_card=double_who_types_a_card,
                a_guest_to_merge_with_the_card_that_replaces_another=double_with_the_card_that_replaces_another,
            ),
            *after(erase_again, a_double_of_a_restored_backup=restored_backup_of_a_double),
        )
    ),
    "FinishErasures": Expected(
        situations=after(
            chore("finish_erasures"),
            a_guest_without_a_page_was_erased=being_erased(It.session_without_page),
            a_guest_who_replaces_a_card_was_erased=being_erased(card_that_replaces_another),
        ),
        without_psp=(None,),
        next_try_after=timedelta(minutes=30),
    ),
    "ReplayEvent": Expected(situations=after(It.replay, an_event_to_replay=delivered_event)),
    "ReplayEventsSince": Expected(
        situations=after(replay_all, events_to_replay_since_a_time=delivered_event)
    ),
    "EndAgreement": Expected(
        situations=after(
            end_agreement,
            an_agreement_to_end=agreement_to_end,
            an_agreement_to_end_whose_card_is_replaced=agreement_of_a_card_that_is_replaced,
        )
    ),
    "EndAgreements": Expected(
        situations=after(
            chore("end_agreements"),
            two_agreements_that_are_over=two_agreements_whose_bookings_are_over,
        )
    ),
    "CompleteAgreements": Expected(
        situations=after(
            chore("complete_agreements"), a_booking_that_0_2_settled=booking_without_its_agreement
        )
    ),
    "RemoveEndedCards": Expected(
        situations=after(
            chore("remove_ended_cards"),
            cards_whose_agreements_ended=cards_whose_agreements_have_ended,
        )
    ),
    "ListEvents": Expected(situations=after(read_events, an_event_to_read=It.stored_card)),
    "NoticeUnopened": Expected(
        situations=after(chore("notice_unopened"), two_links_that_nobody_opens=links_to_report)
    ),
    "NoticeExpiry": Expected(
        situations=after(
            chore("notice_expiry"), two_cards_that_expire_soon=two_cards_that_expire_soon
        )
    ),
}

STEPS: Final = frozenset(
    {
        "ChooseConsent",
        "ChooseReservationText",
        "ConsentsOf",
        "GatherEvidence",
        "NoteAct",
        "ShowAgreement",
        "UseCardOnFile",
        "NoteEvent",
        "ObtainPage",
        "RecognizeMerchant",
    }
)
"""Parts of use cases; their calls are among those of the use cases."""

READ_ONLY: Final = frozenset(
    {
        *("CompareCards", "FindCardTesting", "FindPageContent", "IsWorkerMissing", "ListAccounts"),
        *("ListCenters", "ListExpiringCards", "ListProducts", "ListSessions", "ReadAccount"),
        *("ListAgreements", "ReadAgreement"),
        *("ReadCenter", "ReadConsent", "ReadGuest", "ReadSession", "ReadStatus", "SearchGuests"),
        *("ReadDesk", "ReadEvent", "ReadLinkToSend", "ReadPortal", "ReadPortalLink"),
        "SendTestEvent",
    }
)
"""They change nothing, so nothing can be left half done."""

ONE_UNIT: Final = frozenset(
    {
        *(
            "AddEventEndpoint",
            "ConfigurePayments",
            "ConfirmKeys",
            "ExportGuest",
            "ReadEvidence",
            "IssueToken",
            "LeaveHeartbeat",
            "MakeDeskLink",
            "OpenPortal",
            "EnterPortal",
        ),
        *("MoveInstallation", "RecognizeOrigin", "SeparateCopy"),
        *("NoteOperatorsAct", "PutGuest", "PutProduct", "RemoveEventEndpoint", "RevokeToken"),
        *("RollEventSecret", "SetCenter", "SetConsent", "SetReservationText", "TrustKeys"),
        "UpdateEventEndpoint",
    }
)
"""These use cases write in one unit of work, without consequences for sessions or cards."""


# Faults.


def documented_error(call: str) -> Exception:
    if call == "psp.read_webhook":
        return WebhookRejected("a clock is wrong")
    if is_to_endpoint(call):
        return EventNotSent("no response")
    return ProviderUnavailable("no response") if is_to_psp(call) else ServiceUnavailable()


def refusal(call: str) -> Exception | None:
    return ProviderRefused("for good") if call in PSP_CALLS else None


# A bug or crash before a call without an effect would leave the same state as the same fault before
# the next call that has an effect.


def bug(call: str) -> Exception | None:
    return Bug() if has_effect(call) or is_to_psp(call) else None


def crash(call: str) -> BaseException | None:
    return Killed() if has_effect(call) else None


FAULTS: Final = (
    CallFault(error=documented_error, may_last=True),
    # The response is lost.
    CallFault(error=documented_error, moment=Moment.AFTER),
    CallFault(error=refusal, may_last=True),
    CallFault(error=bug),
    CallFault(error=crash),
    CallFault(error=crash, moment=Moment.AFTER),
)


class Trials:
    """Trials of a use case in a situation. Each trial has a different fault.

    - `calls`: the calls of a run without a fault.
    - `_stored`: what that run has stored before each call and at the end.
    - `_results`: the results of the first and of the second attempt in that run.
    - `_completed`: the states that a fault left behind and that the next attempt completed.
    """

    def __init__(self, prepared: Prepared, expected: Expected) -> None:
        self._prepared, self._attempt, self._expected = prepared, prepared.attempt, expected
        self._completed = set[object]()
        with prepared.restored() as it:
            with it.recording():
                result = it.result_of(self._attempt)
            assert not isinstance(result, type), f"an error without a fault: {result}"
            stored = it.check()
            self.calls, self._stored = it.calls, [*it.before_calls, stored]
            self._results = (result, it.result_of(self._attempt))
            self._effect = it.effect(stored)
            self._final_effect = it.effect(it.run_to_end(it.check()))

    def numbers(self, fault: CallFault) -> Sequence[int]:
        """Return the numbers of the calls at which to inject the fault.

        In a unit of work, only the last call before its end is included, because an error at any of
        its calls rolls the whole unit back.
        """
        return [
            number
            for number, (call, later) in enumerate(pairwise([*self.calls, "end"]), start=1)
            if fault.applies_to(call) and not (is_in_unit(call) and is_in_unit(later))
        ]

    def make(self, fault: CallFault, number: int) -> None:
        """Inject a fault at the call with this number, and check that the next attempt succeeds."""
        try:
            calls = self._make(fault, number)
        except Exception as broken:
            story = [f"{each:4}  {name}" for each, name in enumerate(self.calls[:number], start=1)]
            raise AssertionError(
                f"call {number} of {len(self.calls)}:\n"
                + "\n".join(story)
                + f"\n      … {fault.moment} it: {fault.error(self.calls[number - 1])!r}"
                + f"{', and from then on' * fault.lasts}\n{broken}"
            ) from broken
        # A lasting fault makes no difference if no later call goes to the same port. In a unit of
        # work, it leaves the same state as a fault that lasts from the end of the unit on.
        call, later = calls[number - 1], calls[number:]
        goes_on = not is_in_unit(call) and any(is_to_same_port(each, call) for each in later)
        if goes_on and fault.may_last and not fault.lasts:
            self.make(replace(fault, lasts=True), number)

    def _make(self, fault: CallFault, number: int) -> Sequence[str]:
        call, error = self.calls[number - 1], fault.error(self.calls[number - 1])
        assert error is not None
        with self._prepared.restored() as it:
            with it.recording(fault, number):
                failed = it.result_of(self._attempt)
            assert it.calls[number - 1] == call, "the calls differ from run to run"
            stored = it.check()
            assert failed in self._expected.results(call, number, error), failed
            is_last = fault.lasts or not any(map(is_to_storage, it.calls[number:]))
            if isinstance(error, Killed) or (is_to_storage(call) and is_last):
                calls_made = number if fault.moment is Moment.AFTER else number - 1
                assert stored == self._stored[calls_made], "more or less than these calls store"
            has_changed = stored != self._stored[0]
            # Many faults leave the same state. The next attempt is made only once for each state.
            # An error of the storage leaves nothing in the memory of the process.
            is_forgotten = is_to_storage(call) and not isinstance(error, Killed)
            left = (None if is_forgotten else type(error), it.everything_stored())
            if left not in self._completed:
                it.clock.advance(self._expected.next_try_after)
                result = it.result_of(self._attempt)
                stored = it.check()
                assert result in self._results[: 2 if has_changed else 1], result
                assert it.effect(stored) == self._effect
                assert it.effect(it.run_to_end(stored)) == self._final_effect
                self._completed.add(left)
            return it.calls


# Shows I1, I4, I7, I9, I10, I11, I12, F1, F2, F3, F4, F5, F6, F8, F12, F19, F20, F22, F23, S27.
@pytest.mark.parametrize(
    ("use_case", "situation"),
    [
        pytest.param(use_case, situation, id=f"{use_case}-{situation.__name__}")
        for use_case, expected in USE_CASES.items()
        for situation in expected.situations
    ],
)
def test_the_next_attempt_completes_the_work_no_matter_which_call_failed(
    tmp_path: Path, use_case: str, situation: Situation
) -> None:
    trials = Trials(Prepared(tmp_path, situation), USE_CASES[use_case])
    for fault in FAULTS:
        for number in trials.numbers(fault):
            trials.make(fault, number)


def test_a_unit_of_work_does_not_continue_after_an_error_of_the_storage() -> None:
    """Therefore the tests above need to inject a fault only at the last call of a unit of work."""
    wide = r"(?:ServiceUnavailable|Refusal|(?:Base)?Exception)"
    handles = re.compile(rf"\b(?:except |suppress)(?:\([^)]*)?\b{wide}\b")
    found = {
        path.stem: len(handles.findall(path.read_text()))
        for path in (ROOT / "domain").rglob("*.py")
    }

    # Each of these handlers encloses a whole unit of work.
    assert {name: count for name, count in found.items() if count} == {
        "cancel_session": 1,
        "finish_erasures": 1,
        "forget_old_records": 1,
        "leave_hosted_page": 2,
        "merge_guests": 1,
    }


def test_these_fault_tests_cover_every_use_case() -> None:
    parts: Iterator[Provider[object]] = build(Settings.read({})).traverse()
    kinds = {kind for part in parts if isinstance(kind := getattr(part, "cls", None), type)}
    ours = [kind for kind in kinds if kind.__module__.startswith("domain.")]
    names = [kind.__name__ for kind in ours if "__call__" in vars(kind)]

    assert sorted(names) == sorted(
        [*(USE_CASES.keys() - {"JobRunner"}), *STEPS, *READ_ONLY, *ONE_UNIT]
    )
