"""Each use case, with a fault at each of its calls to ports: the next try completes the work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Final

import msgspec
import pytest
from dependency_injector.providers import Provider

from adapters.fake_psp import signatures
from adapters.fake_psp.plugin import NAME as FAKE
from adapters.fake_psp.psp import REISSUED, CardEvent, batch
from adapters.psp_suite.samples import GUEST_ID, a_uuid
from domain.access.issue_token import IssueToken
from domain.access.revoke_token import RevokeToken
from domain.audit.note_act import NoteAct, NoteOperatorsAct
from domain.cards.account import READ_FIRST_AFTER, READ_LEASE
from domain.cards.choose_default_card import ChooseDefaultCard
from domain.cards.compare_cards import CompareCards
from domain.cards.discard_tokens import DiscardToken
from domain.cards.import_card import Fate, ImportCard
from domain.cards.notice_expiry import NoticeExpiry
from domain.cards.queries import ListAccounts, ListExpiringCards, ReadAccount, ReadConsent
from domain.cards.refresh_account import RefreshAccount
from domain.cards.remove_account import RemoveAccount
from domain.centers.configure_payments import ConfigurePayments
from domain.centers.queries import ListCenters, ReadCenter
from domain.centers.set_center import SetCenter
from domain.consents.choose_consent import ChooseConsent, ConsentsOf
from domain.consents.set_consent import SetConsent
from domain.errors import ServiceUnavailable
from domain.events.add_event_endpoint import AddEventEndpoint
from domain.events.deliver_event import DeliverEvent
from domain.events.event_sender import EventNotSent
from domain.events.note_event import NoteEvent
from domain.events.remove_event_endpoint import RemoveEventEndpoint, RollEventSecret
from domain.events.replay_event import ReplayEvent, ReplayEventsSince
from domain.events.send_test_event import SendTestEvent
from domain.events.update_event_endpoint import UpdateEventEndpoint
from domain.guests.put_guest import PutGuest
from domain.guests.queries import ReadGuest, SearchGuests
from domain.hosted_payments.find_way_back import FindWayBack
from domain.hosted_payments.leave_hosted_page import CancelHostedPage, ReturnFromHostedPage
from domain.hosted_payments.open_hosted_page import OpenHostedPage
from domain.identifiers import EndpointId
from domain.personal_data.erase_guest import EraseGuest
from domain.personal_data.export_guest import ExportGuest
from domain.personal_data.finish_erasures import FinishErasures
from domain.products.put_product import PutProduct
from domain.products.queries import ListProducts
from domain.psps.payment_provider import ProviderRefused, ProviderUnavailable, WebhookRejected
from domain.psps.recognize_merchant import RecognizeMerchant
from domain.psps.webhook import WebhookDelivery
from domain.retries import LEASE
from domain.sessions.add_card import AddCard
from domain.sessions.card_testing import FindCardTesting
from domain.sessions.limit import CardLimit, Counted, CountedPer
from domain.sessions.polling import ANSWERED_WITHIN
from domain.sessions.queries import ListSessions, ReadSession
from domain.settling.cancel_session import CancelSession, CancelSessionsOfCaller
from domain.settling.obtain_page import ObtainPage
from domain.settling.receive_webhook import ReceiveWebhook
from domain.settling.settle_session import SettleSession
from domain.worker.forget_old_records import ForgetOldRecords
from domain.worker.leave_heartbeat import IsWorkerMissing, LeaveHeartbeat
from domain.worker.read_status import ReadStatus
from entrypoints.container import build
from entrypoints.settings import Settings
from entrypoints.worker.job_runner import JobRunner
from tests.builders import a_brought_card
from tests.installation import (
    CHALLENGED_CARD,
    DECLINED_CARD,
    MERCHANT,
    OTHER_GOOD_CARD,
    REDIRECT_URI,
)
from tests.simulation.endpoints import EVERYTHING, EndpointTrouble
from tests.simulation.faulty_installation import (
    Attempt,
    Bug,
    CallFault,
    FaultyInstallation,
    Situation,
    Situations,
    has_effect,
    is_in_unit,
    is_to_endpoint,
    is_to_psp,
    is_to_storage,
)
from tests.simulation.ports import PSP_CALLS, Moment
from tests.simulation.processes import Killed
from tests.simulation.psp import LASTING_TOKENS
from tests.simulation.snapshot import Snapshot

OTHER_ENDPOINT: Final = EndpointId(a_uuid(91))
OTHER_VISIT: Final = f"{REDIRECT_URI}&visit=2"

# Situations: each prepares an installation, and returns the call of a use case.


def a_request_under_a_key(it: FaultyInstallation) -> Attempt:
    it.configure(avs=True)
    address = {"address": "1 Main St", "country_code": "US", "zipcode": "98101"}
    return lambda: it.add_card(idempotency_key="key", billing_info=address).status


def a_request_sent_before(it: FaultyInstallation) -> Attempt:
    it.add_card(idempotency_key="key")
    return lambda: it.add_card(idempotency_key="key").status


def a_new_link(it: FaultyInstallation) -> Attempt:
    session = it.add_card()
    return lambda: it.follow_link(session)


def a_link_whose_page_is_open(it: FaultyInstallation) -> Attempt:
    session = it.opened_session()
    return lambda: it.follow_link(session)


def a_link_whose_page_was_closed_early(it: FaultyInstallation) -> Attempt:
    session = it.opened_session()
    it.psp.close_page(it.page_reference(session))
    return lambda: it.follow_link(session)


def a_link_opened_while_the_psp_was_down(it: FaultyInstallation) -> Attempt:
    session = it.session_without_page()
    return lambda: it.follow_link(session)


def a_link_whose_page_has_a_card(it: FaultyInstallation) -> Attempt:
    session = it.session_with_card()
    return lambda: it.follow_link(session)


def a_guest_with_a_card(it: FaultyInstallation) -> Attempt:
    session = it.session_with_card()
    return lambda: it.come_back(session)


def a_guest_with_an_unanswered_challenge(it: FaultyInstallation) -> Attempt:
    session = it.session_with_card(CHALLENGED_CARD)
    return lambda: it.come_back(session)


def a_guest_who_goes_back(it: FaultyInstallation) -> Attempt:
    session = it.opened_session()
    return lambda: it.use_cases.cancel_hosted_page(token_id=session.token_id)


def a_link_to_cancel(it: FaultyInstallation) -> Attempt:
    session = it.add_card()
    return lambda: it.cancel(session)


def a_page_to_cancel(it: FaultyInstallation) -> Attempt:
    session = it.opened_session()
    return lambda: it.cancel(session)


def a_page_to_cancel_that_has_a_card(it: FaultyInstallation) -> Attempt:
    session = it.session_with_card()
    return lambda: it.cancel(session)


def a_page_to_cancel_that_was_requested_while_the_psp_was_down(it: FaultyInstallation) -> Attempt:
    session = it.session_without_page()
    return lambda: it.cancel(session)


def two_links_of_a_caller_to_cancel(it: FaultyInstallation) -> Attempt:
    it.token_for(it.caller)
    link, page = it.add_card(), it.opened_session(redirect_uri=OTHER_VISIT)

    def cancel() -> None:
        # The count is left out: the next try counts only those that the first did not cancel.
        it.container.cancel_sessions_of_caller()(it.caller.name)
        it.known.cancelled |= {link.token_id, page.token_id}

    return cancel


def an_event_of_a_card(it: FaultyInstallation) -> Attempt:
    it.session_with_card()
    event = it.psp.take_due_event(it.clock.now(), until=it.clock.now())
    assert event is not None
    signature = signatures.sign(event.body, secret=it.psp.webhook_secret, now=it.clock.now())
    delivery = WebhookDelivery(headers={signatures.HEADER: signature}, body=event.body)
    return lambda: it.use_cases.receive_webhook(FAKE, delivery)


def an_event_of_a_card_on_file(it: FaultyInstallation) -> Attempt:
    account = it.stored_card()
    event = CardEvent(
        id="1", type=REISSUED, created=0, merchant_account=MERCHANT, card=account.token
    )
    body = batch(msgspec.json.encode(event))
    signature = signatures.sign(body, secret=it.psp.webhook_secret, now=it.clock.now())
    delivery = WebhookDelivery(headers={signatures.HEADER: signature}, body=body)
    return lambda: it.use_cases.receive_webhook(FAKE, delivery)


def a_key_of_yesterday(it: FaultyInstallation) -> Attempt:
    it.add_card(idempotency_key="key")
    it.clock.advance(timedelta(hours=25))

    def forget() -> None:
        # Built again with each process, as below.
        it.container.forget_old_records()()

    return forget


def a_new_card(it: FaultyInstallation) -> Attempt:
    session = it.session_with_card()
    return lambda: it.status_after_settling(session)


def a_card_on_file(it: FaultyInstallation) -> Attempt:
    it.stored_card()
    session = it.session_with_card(redirect_uri=OTHER_VISIT)
    return lambda: it.status_after_settling(session)


def a_card_on_file_with_a_new_expiry(it: FaultyInstallation) -> Attempt:
    it.stored_card()
    session = it.opened_session(redirect_uri=OTHER_VISIT)
    it.type_card(session, expiry=(3, 2034))
    return lambda: it.status_after_settling(session)


def a_card_whose_token_is_to_be_discarded(it: FaultyInstallation) -> Attempt:
    it.configure(merchant_account=LASTING_TOKENS)
    it.remove(it.stored_card())
    session = it.session_with_card(redirect_uri=OTHER_VISIT)
    return lambda: it.status_after_settling(session)


def a_card_whose_token_is_being_discarded(it: FaultyInstallation) -> Attempt:
    attempt = a_card_whose_token_is_to_be_discarded(it)
    it.container.discard_token().take()
    return attempt


def a_page_without_a_card(it: FaultyInstallation) -> Attempt:
    session = it.opened_session()
    it.clock.advance(timedelta(minutes=30))
    return lambda: it.status_after_settling(session)


def a_page_with_refused_cards(it: FaultyInstallation) -> Attempt:
    session = it.session_with_card(DECLINED_CARD)
    it.type_card(session, DECLINED_CARD)
    return lambda: it.status_after_settling(session)


def pages_of_a_guest_with_too_many_refused_cards(it: FaultyInstallation) -> Attempt:
    it.has_limits(CardLimit(Counted.REFUSED_CARDS, CountedPer.GUEST, 3))
    first, second = (it.opened_session(redirect_uri=uri) for uri in (REDIRECT_URI, OTHER_VISIT))
    for _ in range(3):
        it.type_card(first, DECLINED_CARD)

    def count_and_close() -> str:
        for session in (first, first):
            it.status_after_settling(session)
        return it.status_after_settling(second)

    return count_and_close


def a_page_requested_while_the_psp_was_down(it: FaultyInstallation) -> Attempt:
    session = it.session_without_page()
    return lambda: it.status_after_settling(session)


def a_removed_card(it: FaultyInstallation) -> Attempt:
    it.remove(it.stored_card())

    def take_and_discard() -> None:
        discard = it.container.discard_token().take()
        if discard is not None:
            it.container.discard_token()(discard)

    return take_and_discard


def a_session_and_a_discard(it: FaultyInstallation) -> Attempt:
    it.remove(it.stored_card())
    it.session_with_card(OTHER_GOOD_CARD, redirect_uri=OTHER_VISIT)
    it.clock.advance(timedelta(seconds=30))

    def reconcile() -> object:
        return tuple(type(fault) for fault in it.reconcile().faults)

    return reconcile


def a_card_to_remove(it: FaultyInstallation) -> Attempt:
    account = it.stored_card()
    return lambda: it.remove(account)


def a_default_card_to_remove(it: FaultyInstallation) -> Attempt:
    attempt = a_card_to_remove(it)
    it.stored_card(OTHER_GOOD_CARD, redirect_uri=OTHER_VISIT)
    return attempt


def a_card_for_an_operator_to_remove(it: FaultyInstallation) -> Attempt:
    account = it.stored_card()

    def remove() -> None:
        it.container.remove_account()(None, account_id=account.account_id)
        it.known.removed.add(account.account_id)

    return remove


def a_card_to_make_the_default(it: FaultyInstallation) -> Attempt:
    it.stored_card()
    account = it.stored_card(OTHER_GOOD_CARD, redirect_uri=OTHER_VISIT)
    return lambda: it.use_cases.choose_default_card(
        it.caller, guest_id=account.guest_id, account_id=account.account_id
    )


def an_event_that_is_due(it: FaultyInstallation) -> Attempt:
    it.stored_card()
    return lambda: it.deliver_to(EVERYTHING)


def an_event_for_an_endpoint_that_was_removed(it: FaultyInstallation) -> Attempt:
    it.add_endpoint(OTHER_ENDPOINT)
    it.stored_card()
    it.container.remove_event_endpoint()(OTHER_ENDPOINT)
    return lambda: it.deliver_to(OTHER_ENDPOINT)


def an_event_for_an_endpoint_that_is_gone(it: FaultyInstallation) -> Attempt:
    it.add_endpoint(OTHER_ENDPOINT)
    it.stored_card()
    it.known.endpoints.troubles[OTHER_ENDPOINT] = EndpointTrouble.GONE
    return lambda: it.deliver_to(OTHER_ENDPOINT)


def an_event_to_replay(it: FaultyInstallation) -> Attempt:
    it.stored_card()
    it.deliver_to(EVERYTHING)
    it.add_endpoint(OTHER_ENDPOINT)
    (event_id,) = it.check().deliveries[EVERYTHING]
    return lambda: it.replay(event_id)


def events_to_replay_since_a_time(it: FaultyInstallation) -> Attempt:
    it.stored_card()
    it.deliver_to(EVERYTHING)
    it.add_endpoint(OTHER_ENDPOINT)
    return lambda: it.replay_since(it.clock.now() - timedelta(days=1))


def two_cards_that_expire_soon(it: FaultyInstallation) -> Attempt:
    it.stored_card()
    it.stored_card(OTHER_GOOD_CARD, redirect_uri=OTHER_VISIT)
    it.clock.advance(datetime(2031, 9, 10, tzinfo=UTC) - it.clock.now())
    it.reconcile()

    def notice() -> None:
        it.container.notice_expiry()()

    return notice


def a_card_that_is_reissued(it: FaultyInstallation) -> Attempt:
    account = it.stored_card()
    it.bank_updates(account, OTHER_GOOD_CARD, expiry=(3, 2036))
    return _refresh(it)


def a_card_that_is_gone(it: FaultyInstallation) -> Attempt:
    account = it.stored_card()
    it.stored_card(OTHER_GOOD_CARD, redirect_uri=OTHER_VISIT)
    it.psp_loses(account)
    return _refresh(it)


def two_cards_that_become_one(it: FaultyInstallation) -> Attempt:
    it.stored_card()
    later = it.stored_card(OTHER_GOOD_CARD, redirect_uri=OTHER_VISIT)
    it.bank_updates(later)
    return _refresh(it)


def a_card_to_import(it: FaultyInstallation) -> Attempt:
    # The session that would store it waits until the card is imported.
    page = it.psp.page(it.page_reference(it.session_with_card()))
    assert page.card is not None
    card = a_brought_card(page.card)
    it.known.imported.add(card.token)

    def import_it() -> str:
        # Built again with each process, as above.
        return it.container.import_card()(card).value

    return import_it


def a_card_to_import_beside_another(it: FaultyInstallation) -> Attempt:
    it.stored_card(OTHER_GOOD_CARD, redirect_uri=OTHER_VISIT)
    return a_card_to_import(it)


def _refresh(it: FaultyInstallation) -> Attempt:
    it.clock.advance(READ_FIRST_AFTER)

    def take_and_read() -> None:
        # Built again with each process, as above.
        refresh = it.container.refresh_account()
        while taken := refresh.take():
            refresh(taken)

    return take_and_read


def a_guest_with_a_card_to_erase(it: FaultyInstallation) -> Attempt:
    it.stored_card()
    return it.erase


def a_guest_who_has_typed_a_card_to_erase(it: FaultyInstallation) -> Attempt:
    it.stored_card()
    it.session_with_card(OTHER_GOOD_CARD, redirect_uri=OTHER_VISIT)
    return it.erase


def a_guest_whose_page_was_requested_while_the_psp_was_down(it: FaultyInstallation) -> Attempt:
    it.session_without_page()
    return it.erase


def a_guest_of_a_restored_backup(it: FaultyInstallation) -> Attempt:
    it.stored_card()
    it.container.erasure_file().note(GUEST_ID, it.clock.now())

    def erase_again() -> object:
        # Built again with each process, as above.
        return it.container.erase_guest().again()

    return erase_again


def _finish_after(situation: Situation) -> Situation:
    """Return the situation in which the worker finishes an erasure."""

    def erased(it: FaultyInstallation) -> Attempt:
        erase = situation(it)
        it.check()
        erase()
        it.clock.advance(timedelta(minutes=5))
        it.reconcile()
        it.clock.advance(timedelta(minutes=5))
        it.reconcile()

        def finish() -> None:
            it.container.finish_erasures()()

        return finish

    erased.__name__ = situation.__name__.replace("_to_erase", "") + "_was_erased"
    return erased


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The situations of a use case, and its results when a call fails.

    `without_endpoint` are the results when no endpoint takes an event. `without_storage` are the results when the storage fails, except at the first `needs` calls,
    which the use case cannot do without. `next_try_after` is the lease of what was taken and not
    finished, or how long a browser must wait for an answer that never comes.
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


_TO_ERASE: Final = (
    a_guest_with_a_card_to_erase,
    a_guest_who_has_typed_a_card_to_erase,
    a_guest_whose_page_was_requested_while_the_psp_was_down,
)

# The worker's runner, too, which is no use case.
USE_CASES: Final[Mapping[type, Expected]] = {
    AddCard: Expected(situations=(a_request_under_a_key, a_request_sent_before)),
    OpenHostedPage: Expected(
        situations=(
            a_new_link,
            a_link_whose_page_is_open,
            a_link_whose_page_was_closed_early,
            a_link_opened_while_the_psp_was_down,
            a_link_whose_page_has_a_card,
        ),
        without_psp=(ProviderUnavailable, "a live page", "a page that is over"),
        next_try_after=ANSWERED_WITHIN,
    ),
    ReturnFromHostedPage: Expected(
        situations=(a_guest_with_a_card, a_guest_with_an_unanswered_challenge),
        needs=2,
        without_storage=(REDIRECT_URI,),
        without_psp=(REDIRECT_URI,),
        next_try_after=ANSWERED_WITHIN,
    ),
    CancelHostedPage: Expected(
        situations=(a_guest_who_goes_back,), needs=2, without_storage=(REDIRECT_URI,)
    ),
    CancelSession: Expected(
        situations=(
            a_link_to_cancel,
            a_page_to_cancel,
            a_page_to_cancel_that_has_a_card,
            a_page_to_cancel_that_was_requested_while_the_psp_was_down,
        ),
        without_storage=(ServiceUnavailable, "open cancelled"),
        without_psp=("open cancelled", "expired cancelled"),
    ),
    CancelSessionsOfCaller: Expected(situations=(two_links_of_a_caller_to_cancel,)),
    ForgetOldRecords: Expected(situations=(a_key_of_yesterday,)),
    ReceiveWebhook: Expected(
        situations=(an_event_of_a_card, an_event_of_a_card_on_file), without_psp=(WebhookRejected,)
    ),
    SettleSession: Expected(
        situations=(
            a_new_card,
            a_card_on_file,
            a_card_on_file_with_a_new_expiry,
            a_card_whose_token_is_to_be_discarded,
            a_card_whose_token_is_being_discarded,
            a_page_without_a_card,
            a_page_with_refused_cards,
            pages_of_a_guest_with_too_many_refused_cards,
            a_page_requested_while_the_psp_was_down,
        ),
        without_psp=("open",),
    ),
    JobRunner: Expected(
        situations=(a_session_and_a_discard,),
        without_psp=((),),
        without_endpoint=((),),
        with_bug=(Bug, (Bug,)),
        next_try_after=LEASE,
    ),
    DiscardToken: Expected(situations=(a_removed_card,), without_psp=(None,), next_try_after=LEASE),
    RefreshAccount: Expected(
        situations=(a_card_that_is_reissued, a_card_that_is_gone, two_cards_that_become_one),
        without_psp=(None,),
        next_try_after=READ_LEASE,
    ),
    ImportCard: Expected(
        situations=(a_card_to_import, a_card_to_import_beside_another),
        without_psp=(ProviderUnavailable, Fate.UNKNOWN.value),
    ),
    RemoveAccount: Expected(
        situations=(a_card_to_remove, a_default_card_to_remove, a_card_for_an_operator_to_remove)
    ),
    ChooseDefaultCard: Expected(situations=(a_card_to_make_the_default,)),
    DeliverEvent: Expected(
        situations=(
            an_event_that_is_due,
            an_event_for_an_endpoint_that_was_removed,
            an_event_for_an_endpoint_that_is_gone,
        ),
        without_endpoint=("pending",),
        next_try_after=LEASE,
    ),
    EraseGuest: Expected(situations=(*_TO_ERASE, a_guest_of_a_restored_backup)),
    FinishErasures: Expected(
        situations=tuple(map(_finish_after, _TO_ERASE)),
        without_psp=(None,),
        next_try_after=timedelta(minutes=30),
    ),
    ReplayEvent: Expected(situations=(an_event_to_replay,)),
    ReplayEventsSince: Expected(situations=(events_to_replay_since_a_time,)),
    NoticeExpiry: Expected(situations=(two_cards_that_expire_soon,)),
}

STEPS: Final = frozenset(
    {ChooseConsent, ConsentsOf, NoteAct, NoteEvent, ObtainPage, RecognizeMerchant}
)
"""Parts of use cases; their calls are among those of the use cases."""

READ_ONLY: Final = frozenset(
    {
        *(CompareCards, FindCardTesting, FindWayBack, IsWorkerMissing),
        *(ListAccounts, ListCenters),
        *(ListExpiringCards, ListProducts, ListSessions),
        *(
            ReadAccount,
            ReadCenter,
            ReadConsent,
            ReadGuest,
            ReadSession,
            ReadStatus,
            SearchGuests,
            SendTestEvent,
        ),
    }
)
"""They change nothing, so nothing can be left half done."""

ONE_UNIT: Final = frozenset(
    {
        *(AddEventEndpoint, ConfigurePayments, ExportGuest, RemoveEventEndpoint),
        *(RollEventSecret, SetConsent),
        *(IssueToken, LeaveHeartbeat, NoteOperatorsAct),
        *(PutGuest, PutProduct, RevokeToken, SetCenter, UpdateEventEndpoint),
    }
)
"""They write in one unit, and nothing follows from it for sessions or cards."""


# Faults.


def documented_error(call: str) -> Exception:
    if call == "psp.read_webhook":
        return WebhookRejected("a clock is wrong")
    if is_to_endpoint(call):
        return EventNotSent("no response")
    return ProviderUnavailable("no response") if is_to_psp(call) else ServiceUnavailable()


def lasting_error(call: str) -> Exception | None:
    return None if is_in_unit(call) else documented_error(call)


def bug(call: str) -> Exception | None:
    return None if is_in_unit(call) else Bug()


def crash(call: str) -> BaseException | None:
    # A crash before any other call leaves the same as one before the next call with an effect.
    return Killed() if has_effect(call) else None


def refusal(call: str) -> Exception | None:
    return ProviderRefused("for good") if call in PSP_CALLS else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultFreeRun:
    """A run without faults: its calls, and what is stored before each of them and at the end.

    `results` are those of the first try and of a second one. `completed` are the states that runs
    with a fault have left and the next try has made good.
    """

    calls: Sequence[str]
    stored: Sequence[Snapshot]
    results: Sequence[object]
    effect: object
    final_effect: object
    completed: set[object] = field(default_factory=set)


@cache
def fault_free_run(situations: Situations, situation: Situation) -> FaultFreeRun:
    with situations.prepared(situation) as (installation, attempt):
        with installation.recording():
            result = installation.result_of(attempt)
        assert not isinstance(result, type), f"an error without a fault: {result}"
        stored, effect = installation.check(), installation.effect()
        second_result = installation.result_of(attempt)
        installation.run_to_end()
        return FaultFreeRun(
            calls=installation.calls,
            stored=[*installation.before_calls, stored],
            results=(result, second_result),
            effect=effect,
            final_effect=installation.effect(),
        )


def try_each_call(
    situations: Situations, use_case: type, situation: Situation, fault: CallFault
) -> None:
    """Inject a fault at each call of a use case, each time in the same situation."""
    calls = fault_free_run(situations, situation).calls
    for number, call in enumerate(calls, start=1):
        if fault.applies_to(call):
            try:
                _try(situations, USE_CASES[use_case], situation, fault, number)
            except Exception as broken:
                story = [f"{each:4}  {name}" for each, name in enumerate(calls[:number], start=1)]
                raise AssertionError(
                    f"{use_case.__name__}, {situation.__name__}, call {number} of {len(calls)}:\n"
                    + "\n".join(story)
                    + f"\n      … {fault.moment} it: {fault.error(call)!r}"
                    + f"{', and from then on' * fault.lasts}\n{broken}"
                ) from broken


def _try(
    situations: Situations,
    expected: Expected,
    situation: Situation,
    fault: CallFault,
    number: int,
) -> None:
    without_fault = fault_free_run(situations, situation)
    call = without_fault.calls[number - 1]
    error = fault.error(call)
    assert error is not None
    with situations.prepared(situation) as (installation, attempt):
        with installation.recording(fault, number):
            failed = installation.result_of(attempt)
        assert installation.calls[number - 1] == call, "the calls differ from run to run"
        stored = installation.check()
        assert failed in expected.results(call, number, error), failed
        if isinstance(error, Killed) or (fault.lasts and is_to_storage(call)):
            calls_made = number if fault.moment is Moment.AFTER else number - 1
            assert stored == without_fault.stored[calls_made], "more or less than these calls store"
        has_changed = stored != without_fault.stored[0]
        # Many faults leave the same; what follows would be the same as well.
        left = (failed, is_to_storage(call), installation.everything_stored())
        if left in without_fault.completed:
            return

        installation.clock.advance(expected.next_try_after)
        result = installation.result_of(attempt)

        installation.check()
        assert result in without_fault.results[: 2 if has_changed else 1], result
        assert installation.effect() == without_fault.effect
        installation.run_to_end()
        assert installation.effect() == without_fault.final_effect
        without_fault.completed.add(left)


@pytest.fixture(scope="module")
def situations(tmp_path_factory: pytest.TempPathFactory) -> Situations:
    return Situations(tmp_path_factory.mktemp("situations"))


every_situation = pytest.mark.parametrize(
    ("use_case", "situation"),
    [
        pytest.param(use_case, situation, id=f"{use_case.__name__}-{situation.__name__}")
        for use_case, expected in USE_CASES.items()
        for situation in expected.situations
    ],
)


# Shows F8, F19.
@every_situation
def test_a_call_that_fails_is_made_good_by_the_next_try(
    situations: Situations, use_case: type, situation: Situation
) -> None:
    try_each_call(situations, use_case, situation, CallFault(error=documented_error))


# Shows I1, I10, F20.
@every_situation
def test_a_call_whose_answer_is_lost_has_its_effect_once(
    situations: Situations, use_case: type, situation: Situation
) -> None:
    fault = CallFault(error=documented_error, moment=Moment.AFTER)
    try_each_call(situations, use_case, situation, fault)


# Shows I4, I7, F8, F12, F22.
@every_situation
def test_a_port_that_is_away_from_any_call_on_leaves_nothing_half_done(
    situations: Situations, use_case: type, situation: Situation
) -> None:
    try_each_call(situations, use_case, situation, CallFault(error=lasting_error, lasts=True))


# Shows F22.
@every_situation
def test_a_call_that_the_psp_refuses_is_made_good_by_the_next_try(
    situations: Situations, use_case: type, situation: Situation
) -> None:
    try_each_call(situations, use_case, situation, CallFault(error=refusal))
    try_each_call(situations, use_case, situation, CallFault(error=refusal, lasts=True))


# Shows F3, F23.
@every_situation
def test_a_bug_at_any_call_leaves_nothing_half_done(
    situations: Situations, use_case: type, situation: Situation
) -> None:
    try_each_call(situations, use_case, situation, CallFault(error=bug))


# Shows I1, I7, I9, I10, I11, I12, F1, F2, F3, F4, F5, F6, S27.
@every_situation
def test_a_process_that_is_killed_at_any_call_leaves_what_the_next_finishes(
    situations: Situations, use_case: type, situation: Situation
) -> None:
    try_each_call(situations, use_case, situation, CallFault(error=crash))
    try_each_call(situations, use_case, situation, CallFault(error=crash, moment=Moment.AFTER))


def test_every_use_case_is_covered() -> None:
    parts: Iterator[Provider[object]] = build(Settings.read({})).traverse()
    kinds = {getattr(part, "cls", None) for part in parts}
    ours = [kind for kind in kinds if getattr(kind, "__module__", "").startswith("domain.")]

    assert {kind for kind in ours if "__call__" in vars(kind)} == {
        *(USE_CASES.keys() - {JobRunner}),
        *STEPS,
        *READ_ONLY,
        *ONE_UNIT,
    }
