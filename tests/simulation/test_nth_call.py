"""Whichever call of a use case goes wrong: nothing is half done, and the next try succeeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Final

import pytest
from dependency_injector.providers import Provider

from adapters.fake_psp import signatures
from adapters.fake_psp.plugin import NAME as FAKE
from adapters.psp.contract.samples import GUEST_ID
from domain.add_card import AddCard
from domain.discard_tokens import DiscardToken
from domain.errors import ServiceUnavailable
from domain.find_way_back import FindWayBack
from domain.forget_idempotency_keys import ForgetIdempotencyKeys
from domain.hosted_pages import WebhookDelivery
from domain.leave_hosted_page import CancelHostedPage, ReturnFromHostedPage
from domain.list_accounts import ListAccounts
from domain.list_products import ListProducts
from domain.obtain_page import ObtainPage
from domain.open_hosted_page import OpenHostedPage
from domain.ports import ProviderRefused, ProviderUnavailable, WebhookRejected
from domain.read_account import ReadAccount
from domain.read_session import ReadSession
from domain.receive_webhook import ReceiveWebhook
from domain.recognize_merchant import RecognizeMerchant
from domain.reconcile import Reconcile
from domain.remove_account import RemoveAccount
from domain.retries import LEASE
from domain.settle_session import SettleSession
from domain.worker_heartbeat import IsWorkerMissing, LeaveHeartbeat
from entrypoints.container import build
from entrypoints.settings import Settings
from tests.builders import CENTER_ID, a_product
from tests.installation import CHALLENGED_CARD, OTHER_GOOD_CARD, REDIRECT_URI
from tests.simulation.books import Books
from tests.simulation.ports import PSP_CALLS, Moment
from tests.simulation.processes import Killed
from tests.simulation.psp import LASTING_TOKENS
from tests.simulation.rehearsals import (
    Attempt,
    Bug,
    Mishap,
    Rehearsal,
    Situation,
    acts,
    is_to_psp,
    rehearsed,
)

OTHER_VISIT: Final = f"{REDIRECT_URI}&visit=2"

# Situations: where a use case is called, and the call.


def a_request_under_a_key(rehearsal: Rehearsal) -> Attempt:
    rehearsal.configure(avs=True)
    address = {"address": "1 Main St", "country_code": "US", "zipcode": "98101"}
    return lambda: rehearsal.add_card(idempotency_key="key", billing_info=address).status


def a_request_sent_before(rehearsal: Rehearsal) -> Attempt:
    rehearsal.add_card(idempotency_key="key")
    return lambda: rehearsal.add_card(idempotency_key="key").status


def a_new_link(rehearsal: Rehearsal) -> Attempt:
    session = rehearsal.add_card()
    return lambda: rehearsal.where_to(session)


def a_link_whose_page_is_open(rehearsal: Rehearsal) -> Attempt:
    session = rehearsal.opened_session()
    return lambda: rehearsal.where_to(session)


def a_link_whose_page_was_closed_early(rehearsal: Rehearsal) -> Attempt:
    session = rehearsal.opened_session()
    rehearsal.psp.close_page(rehearsal.page_reference(session))
    return lambda: rehearsal.where_to(session)


def a_link_whose_page_was_asked_for_in_vain(rehearsal: Rehearsal) -> Attempt:
    session = rehearsal.session_asked_for_in_vain()
    return lambda: rehearsal.where_to(session)


def a_link_whose_page_has_a_card(rehearsal: Rehearsal) -> Attempt:
    session = rehearsal.opened_session()
    rehearsal.type_card(session)
    return lambda: rehearsal.where_to(session)


def a_guest_with_a_card(rehearsal: Rehearsal) -> Attempt:
    session = rehearsal.opened_session()
    rehearsal.type_card(session)
    return lambda: rehearsal.come_back(session)


def a_guest_whose_bank_still_asks(rehearsal: Rehearsal) -> Attempt:
    session = rehearsal.opened_session()
    rehearsal.type_card(session, CHALLENGED_CARD)
    return lambda: rehearsal.come_back(session)


def a_guest_who_gave_up(rehearsal: Rehearsal) -> Attempt:
    session = rehearsal.opened_session()
    return lambda: rehearsal.use_cases.cancel_hosted_page(token_id=session.token_id)


def a_guest_whose_link_leads_nowhere(rehearsal: Rehearsal) -> Attempt:
    session = rehearsal.opened_session()
    return lambda: rehearsal.use_cases.find_way_back(token_id=session.token_id)


def an_event_of_a_card(rehearsal: Rehearsal) -> Attempt:
    session = rehearsal.opened_session()
    rehearsal.type_card(session)
    event = rehearsal.psp.take_due_event(rehearsal.clock.now(), until=rehearsal.clock.now())
    assert event is not None
    signature = signatures.sign(
        event.body, secret=rehearsal.psp.webhook_secret, now=rehearsal.clock.now()
    )
    delivery = WebhookDelivery(headers={signatures.HEADER: signature}, body=event.body)
    return lambda: rehearsal.use_cases.receive_webhook(FAKE, delivery)


def a_key_of_yesterday(rehearsal: Rehearsal) -> Attempt:
    rehearsal.add_card(idempotency_key="key")
    rehearsal.clock.advance(timedelta(hours=25))
    return rehearsal.forget_idempotency_keys


def a_new_card(rehearsal: Rehearsal) -> Attempt:
    session = rehearsal.opened_session()
    rehearsal.type_card(session)
    return lambda: rehearsal.settled(session)


def a_card_on_file(rehearsal: Rehearsal) -> Attempt:
    rehearsal.stored_card()
    session = rehearsal.opened_session(redirect_uri=OTHER_VISIT)
    rehearsal.type_card(session)
    return lambda: rehearsal.settled(session)


def a_card_on_file_with_a_new_expiry(rehearsal: Rehearsal) -> Attempt:
    rehearsal.stored_card()
    session = rehearsal.opened_session(redirect_uri=OTHER_VISIT)
    rehearsal.type_card(session, expiry=(3, 2034))
    return lambda: rehearsal.settled(session)


def a_card_whose_token_is_to_be_discarded(rehearsal: Rehearsal) -> Attempt:
    rehearsal.configure(merchant_account=LASTING_TOKENS)
    rehearsal.remove(rehearsal.stored_card())
    session = rehearsal.opened_session(redirect_uri=OTHER_VISIT)
    rehearsal.type_card(session)
    return lambda: rehearsal.settled(session)


def a_card_whose_token_is_being_discarded(rehearsal: Rehearsal) -> Attempt:
    attempt = a_card_whose_token_is_to_be_discarded(rehearsal)
    rehearsal.reconcile.discard_token.take()
    return attempt


def a_page_that_nobody_used(rehearsal: Rehearsal) -> Attempt:
    session = rehearsal.opened_session()
    rehearsal.clock.advance(timedelta(minutes=30))
    return lambda: rehearsal.settled(session)


def a_page_that_was_asked_for_in_vain(rehearsal: Rehearsal) -> Attempt:
    session = rehearsal.session_asked_for_in_vain()
    return lambda: rehearsal.settled(session)


def a_removed_card(rehearsal: Rehearsal) -> Attempt:
    rehearsal.remove(rehearsal.stored_card())

    def take_and_discard() -> None:
        discard = rehearsal.reconcile.discard_token.take()
        if discard is not None:
            rehearsal.reconcile.discard_token(discard)

    return take_and_discard


def a_session_and_a_discard(rehearsal: Rehearsal) -> Attempt:
    rehearsal.remove(rehearsal.stored_card())
    session = rehearsal.opened_session(redirect_uri=OTHER_VISIT)
    rehearsal.type_card(session, OTHER_GOOD_CARD)
    rehearsal.clock.advance(timedelta(seconds=30))

    return lambda: tuple(type(fault) for fault in rehearsal.reconcile().faults)


def a_list_of_cards(rehearsal: Rehearsal) -> Attempt:
    rehearsal.stored_card()
    return lambda: rehearsal.use_cases.list_accounts(
        rehearsal.caller, guest_id=GUEST_ID, center_ids=(CENTER_ID,), pages=(), sizes=()
    )


def one_card(rehearsal: Rehearsal) -> Attempt:
    account = rehearsal.stored_card()
    return lambda: rehearsal.use_cases.read_account(
        rehearsal.caller, guest_id=GUEST_ID, account_id=account.account_id
    )


def a_card_to_remove(rehearsal: Rehearsal) -> Attempt:
    account = rehearsal.stored_card()
    return lambda: rehearsal.remove(account)


def one_session(rehearsal: Rehearsal) -> Attempt:
    session = rehearsal.opened_session()
    return lambda: rehearsal.use_cases.read_session(
        rehearsal.caller, guest_id=GUEST_ID, token_id=session.token_id
    )


def a_list_of_products(rehearsal: Rehearsal) -> Attempt:
    with rehearsal.storage.write() as unit:
        unit.products.put_many([a_product()])
        unit.commit()
    return lambda: rehearsal.use_cases.list_products(
        rehearsal.caller, center_id=CENTER_ID, pages=(), sizes=()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Where a use case is rehearsed, and its answers and errors when a call goes wrong.

    Of its calls to the storage it `needs` the first so many: when one of them fails it is
    unavailable, whatever it answers `without_storage` later. It is tried again `next_try_after` a
    while where what was taken and not finished has to be given back first.
    """

    situations: Sequence[Situation]
    needs: int = 0
    without_storage: Sequence[object] = (ServiceUnavailable,)
    without_psp: Sequence[object] = ()
    with_bug: Sequence[object] = (Bug,)
    next_try_after: timedelta = timedelta(0)

    def answers(self, call: str, number: int, error: BaseException) -> Sequence[object]:
        """Give what it may answer when the call with this number raises an error."""
        if isinstance(error, Killed):
            return (Killed,)
        if isinstance(error, Bug):
            return self.with_bug
        if is_to_psp(call):
            return self.without_psp
        return (ServiceUnavailable,) if number <= self.needs else self.without_storage


USE_CASES: Final[Mapping[type, Expected]] = {
    AddCard: Expected(situations=(a_request_under_a_key, a_request_sent_before)),
    OpenHostedPage: Expected(
        situations=(
            a_new_link,
            a_link_whose_page_is_open,
            a_link_whose_page_was_closed_early,
            a_link_whose_page_was_asked_for_in_vain,
            a_link_whose_page_has_a_card,
        ),
        without_psp=(ProviderUnavailable, "a page that takes a card", "a page that is over"),
    ),
    ReturnFromHostedPage: Expected(
        situations=(a_guest_with_a_card, a_guest_whose_bank_still_asks),
        needs=2,
        without_storage=(REDIRECT_URI,),
        without_psp=(REDIRECT_URI,),
    ),
    CancelHostedPage: Expected(situations=(a_guest_who_gave_up,)),
    FindWayBack: Expected(situations=(a_guest_whose_link_leads_nowhere,)),
    ForgetIdempotencyKeys: Expected(situations=(a_key_of_yesterday,)),
    ReceiveWebhook: Expected(situations=(an_event_of_a_card,), without_psp=(WebhookRejected,)),
    SettleSession: Expected(
        situations=(
            a_new_card,
            a_card_on_file,
            a_card_on_file_with_a_new_expiry,
            a_card_whose_token_is_to_be_discarded,
            a_card_whose_token_is_being_discarded,
            a_page_that_nobody_used,
            a_page_that_was_asked_for_in_vain,
        ),
        without_psp=("open",),
    ),
    Reconcile: Expected(
        situations=(a_session_and_a_discard,),
        without_psp=((),),
        with_bug=(Bug, (Bug,)),
        next_try_after=LEASE,
    ),
    DiscardToken: Expected(situations=(a_removed_card,), without_psp=(None,), next_try_after=LEASE),
    ListAccounts: Expected(situations=(a_list_of_cards,)),
    ReadAccount: Expected(situations=(one_card,)),
    RemoveAccount: Expected(situations=(a_card_to_remove,)),
    ReadSession: Expected(situations=(one_session,)),
    ListProducts: Expected(situations=(a_list_of_products,)),
}

STEPS: Final = frozenset({ObtainPage, RecognizeMerchant})
"""Parts of use cases, whose calls are among those of the whole."""

HEARTBEAT: Final = frozenset({LeaveHeartbeat, IsWorkerMissing})
"""They are about no session and no card: one row that is written or read."""


# What goes wrong.


def the_errors_of_its_port(call: str) -> Exception:
    if call == "psp.read_webhook":
        return WebhookRejected("a clock is wrong")
    return ProviderUnavailable("no answer") if is_to_psp(call) else ServiceUnavailable()


def a_crash(call: str) -> BaseException | None:
    # Before any other call it leaves what it leaves before the next one that acts.
    return Killed() if acts(call) else None


def a_refusal_of_the_psp(call: str) -> Exception | None:
    return ProviderRefused("for good") if call in PSP_CALLS else None


FAILS: Final = Mishap(error=the_errors_of_its_port)
ACTS_AND_FAILS: Final = Mishap(error=the_errors_of_its_port, moment=Moment.AFTER)
AWAY: Final = Mishap(error=the_errors_of_its_port, lasts=True)
REFUSED: Final = Mishap(error=a_refusal_of_the_psp)
REFUSED_FROM_THEN_ON: Final = Mishap(error=a_refusal_of_the_psp, lasts=True)
BUG: Final = Mishap(error=lambda _: Bug())
KILLED: Final = Mishap(error=a_crash)
KILLED_ONCE_IT_ACTED: Final = Mishap(error=a_crash, moment=Moment.AFTER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calm:
    """A run in which nothing goes wrong: its calls, what there was before each and at the end.

    `answers` are that of the first try, and that of a second.
    """

    calls: Sequence[str]
    seen: Sequence[Books]
    answers: Sequence[object]
    effect: object
    effect_at_end: object


@cache
def calm(situation: Situation) -> Calm:
    with rehearsed(situation) as (rehearsal, attempt):
        with rehearsal.watched():
            answer = rehearsal.answer(attempt)
        assert not isinstance(answer, type), f"refused without a reason: {answer}"
        books, effect = rehearsal.check(), rehearsal.effect()
        again = rehearsal.answer(attempt)
        rehearsal.come_to_an_end()
        return Calm(
            calls=rehearsal.calls,
            seen=[*rehearsal.seen, books],
            answers=(answer, again),
            effect=effect,
            effect_at_end=rehearsal.effect(),
        )


def rehearse_every_call(use_case: type, situation: Situation, mishap: Mishap) -> None:
    """Have each call of a use case go wrong, in an installation of its own."""
    calls = calm(situation).calls
    for number, call in enumerate(calls, start=1):
        if mishap.befalls(call):
            try:
                _rehearse(USE_CASES[use_case], situation, mishap, number)
            except Exception as broken:
                story = [f"{each:4}  {name}" for each, name in enumerate(calls[:number], start=1)]
                raise AssertionError(
                    f"{use_case.__name__}, {situation.__name__}, call {number} of {len(calls)}:\n"
                    + "\n".join(story)
                    + f"\n      … {mishap.moment} it: {mishap.error(call)!r}"
                    + f"{', and from then on' * mishap.lasts}\n{broken}"
                ) from broken


def _rehearse(expected: Expected, situation: Situation, mishap: Mishap, number: int) -> None:
    without = calm(situation)
    call = without.calls[number - 1]
    with rehearsed(situation) as (rehearsal, attempt):
        with rehearsal.watched(mishap, number):
            in_vain = rehearsal.answer(attempt)
        assert rehearsal.calls[number - 1] == call, "another run"
        books = rehearsal.check()
        error = mishap.error(call)
        assert error is not None
        assert in_vain in expected.answers(call, number, error), in_vain
        if isinstance(error, Killed) or (mishap.lasts and not is_to_psp(call)):
            calls_made = number if mishap.moment is Moment.AFTER else number - 1
            assert books == without.seen[calls_made], "not what these calls leave behind"
        has_changed = books != without.seen[0]

        rehearsal.clock.advance(expected.next_try_after)
        answer = rehearsal.answer(attempt)

        rehearsal.check()
        assert answer in without.answers[: 2 if has_changed else 1], answer
        assert rehearsal.effect() == without.effect
        rehearsal.come_to_an_end()
        assert rehearsal.effect() == without.effect_at_end


every_situation = pytest.mark.parametrize(
    ("use_case", "situation"),
    [
        pytest.param(use_case, situation, id=f"{use_case.__name__}-{situation.__name__}")
        for use_case, expected in USE_CASES.items()
        for situation in expected.situations
    ],
)


@every_situation
def test_a_call_that_fails_is_made_good_by_the_next_try(
    use_case: type, situation: Situation
) -> None:
    rehearse_every_call(use_case, situation, FAILS)


@every_situation
def test_a_call_that_acts_and_gives_no_answer_has_its_effect_once(
    use_case: type, situation: Situation
) -> None:
    rehearse_every_call(use_case, situation, ACTS_AND_FAILS)


@every_situation
def test_while_a_port_is_away_from_any_call_on_nothing_is_half_done(
    use_case: type, situation: Situation
) -> None:
    rehearse_every_call(use_case, situation, AWAY)


@every_situation
def test_a_call_that_the_psp_refuses_is_made_good_by_the_next_try(
    use_case: type, situation: Situation
) -> None:
    rehearse_every_call(use_case, situation, REFUSED)
    rehearse_every_call(use_case, situation, REFUSED_FROM_THEN_ON)


@every_situation
def test_a_bug_at_any_call_is_told_and_nothing_is_half_done(
    use_case: type, situation: Situation
) -> None:
    rehearse_every_call(use_case, situation, BUG)


@every_situation
def test_a_process_that_is_killed_at_any_call_leaves_what_the_next_finishes(
    use_case: type, situation: Situation
) -> None:
    rehearse_every_call(use_case, situation, KILLED)
    rehearse_every_call(use_case, situation, KILLED_ONCE_IT_ACTED)


def test_every_use_case_is_rehearsed() -> None:
    parts: Iterator[Provider[object]] = build(Settings.read({})).traverse()
    kinds = {getattr(part, "cls", None) for part in parts}
    ours = [kind for kind in kinds if getattr(kind, "__module__", "").startswith("domain.")]

    assert {kind for kind in ours if "__call__" in vars(kind)} == {
        *USE_CASES,
        *STEPS,
        *HEARTBEAT,
    }
