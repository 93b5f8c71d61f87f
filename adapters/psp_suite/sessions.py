"""Parts that the contract suite's tests share: sessions, watched adapters, and marks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeVar, cast

import pytest

from adapters.psp_suite.samples import OTHER_GUEST_ID, a_page_request
from adapters.psp_suite.under_test import (
    EXPIRY,
    MAIN,
    Ability,
    Facts,
    GuestCard,
    Method,
    PspUnderTest,
)
from domain.billing import BillingInfo
from domain.hosted_payments.link import HostedLinks
from domain.identifiers import MerchantAccount, TokenId
from domain.psps.card import Card, CardAtPsp, CardReading
from domain.psps.hosted_page import CardCollected, HostedPage, HostedPageRequest, Outcome
from domain.psps.payment_provider import PaymentProvider

MINUTE: Final = timedelta(minutes=1)
SECOND: Final = timedelta(seconds=1)
ADDRESS: Final = BillingInfo(
    address="12 Analytical Row", city="Seattle", state="WA", zipcode="98101", country_code="US"
)

Returned = TypeVar("Returned")


def needs(*abilities: Ability) -> pytest.MarkDecorator:
    """Return a mark for a test that runs only for PSPs with all of these abilities."""
    return pytest.mark.psp_needs(*abilities)


def for_each(names: str, cases: Callable[[Facts], Iterable[object]]) -> pytest.MarkDecorator:
    """Return a mark that runs a test once for each case, and for each PSP.

    `cases` computes the cases from a PSP's facts. `names` contains the parameters of the test that
    receive a case, separated by spaces. If there are several names, a case is a tuple.
    """
    return pytest.mark.psp_cases(names.split(), cases)


def methods_of(facts: Facts) -> Sequence[Method]:
    """Return those of the adapter's methods that call the PSP."""
    needed = {
        Method.CLOSE: Ability.CLOSES_PAGES,
        Method.FORGET_GUEST: Ability.FORGETS_GUESTS,
        Method.READ_CARD: Ability.READS_CARDS,
        Method.LIST_CARDS: Ability.LISTS_CARDS,
    }
    lacking = {method for method, ability in needed.items() if ability not in facts.abilities}
    return [each for each in Method if each not in lacking and facts.calls[each]]


class _WatchedAdapter:
    def __init__(
        self, adapter: PaymentProvider, raised: list[Exception], keeps: frozenset[str]
    ) -> None:
        self._adapter, self._raised, self._keeps = adapter, raised, keeps

    def __getattr__(self, name: str) -> object:
        found = getattr(self._adapter, name)
        return partial(self._watched, found) if callable(found) else found

    def _watched(self, call: Callable[..., Returned], *args: object) -> Returned:
        before = self._kept()
        try:
            return call(*args)
        except Exception as error:
            self._raised.append(error)
            raise
        finally:
            assert self._kept() == before, (
                "an adapter must not keep state between calls; see PspUnderTest.keeps"
            )

    def _kept(self) -> str:
        own = getattr(self._adapter, "__dict__", {})
        return repr({name: value for name, value in own.items() if name not in self._keeps})


def watched(
    psp: PspUnderTest, adapter: PaymentProvider, raised: list[Exception]
) -> PaymentProvider:
    """Return a wrapper of the adapter, which fails the test if the adapter keeps state.

    The wrapper checks this after each call. The attributes in `PspUnderTest.keeps` may change.
    Exceptions that the calls raise are added to `raised`.
    """
    # cast: the wrapper has every attribute of the adapter.
    return cast("PaymentProvider", _WatchedAdapter(adapter, raised, psp.keeps))


# Any: `changes` holds fields of any type, and replace() refuses wrong names.
def a_request(psp: PspUnderTest, **changes: Any) -> HostedPageRequest:
    """Return the request for the first page of a new session.

    `changes` replaces fields of the request.
    """
    now = psp.clock.now()
    token_id = TokenId(psp.ids.uuid())
    links = HostedLinks(base_url="https://pay.example")
    request = a_page_request(
        token_id=token_id,
        return_uri=links.return_uri(token_id),
        cancel_uri=links.cancel_uri(token_id),
        merchant_account=MAIN,
        billing_info=ADDRESS,
        begun_at=now,
        live_until=now + 30 * MINUTE,
    )
    return replace(request, **changes)


class Session:
    """A session with a page, which is started when the object is created."""

    def __init__(
        self,
        psp: PspUnderTest,
        adapter: PaymentProvider,
        request: HostedPageRequest,
        private: list[str],
    ) -> None:
        self.psp = psp
        self.adapter = adapter
        self.request = request
        self.page: HostedPage = adapter.start(request)
        self._private = private
        private.extend((self.page.reference, self.page.guest_reference, self.page.address))
        # Short values, such as a language, are not secret.
        private.extend(value for value in self.page.fields.values() if len(value) >= 16)

    # Any: `changes` are fields of the request, of any type.
    def another(self, **changes: Any) -> Session:
        """Start a page for another session, and return that session.

        `changes` replaces fields of the request.
        """
        return Session(self.psp, self.adapter, a_request(self.psp, **changes), self._private)

    def next_attempt(self) -> Session:
        """Start the page of the session's second attempt, and return the session with that page."""
        self.psp.clock.advance(self.psp.facts.list_lag)
        request = replace(self.request, attempt=2, guest_reference=self.page.guest_reference)
        return Session(self.psp, self.adapter, request, self._private)

    def outcome(self) -> Outcome:
        """Ask the adapter for the outcome of the page, and return the outcome."""
        outcome = self.adapter.outcome(self.request, self.page, self.psp.evidence(self.page))
        if isinstance(outcome, CardCollected):
            self._private.extend(filter(None, (outcome.card.token, outcome.card.fingerprint)))
        return outcome

    def after_refusal(self, card: GuestCard) -> Outcome:
        """Return the outcome that is expected after the bank has refused `card`."""
        facts = self.psp.facts
        return replace(facts.after_refusal, refusal_code=facts.refusal_codes.get(card))

    def after_a_refused_card(self) -> Session:
        """Return the session with the page on which the guest can try another card after a refusal.

        Depending on the PSP, this is the same page, or the page of the next attempt.
        """
        may_stay = Ability.SECOND_CARD in self.psp.facts.abilities
        return self if may_stay else self.next_attempt()

    def close(self) -> None:
        """Close the page."""
        self.adapter.close(self.request, self.page)

    def type_card(self, card: GuestCard = GuestCard.GOOD) -> None:
        """Play the guest who types in a card."""
        self.psp.type_card(self.page, card)

    def collect(
        self, card: GuestCard = GuestCard.GOOD, *, expiry: tuple[int, int] = EXPIRY
    ) -> CardCollected:
        """Play the guest who types in a card that is accepted, and return the outcome."""
        self.psp.type_card(self.page, card, expiry=expiry)
        outcome = self.outcome()
        assert isinstance(outcome, CardCollected)
        return outcome

    def discard(self, card: Card) -> None:
        """Discard a card of the session."""
        self.adapter.discard(self.request.merchant_account, card.guest_reference, card.token)

    def read(self, card: Card) -> CardReading:
        """Read the present state of a card of the session."""
        return self.adapter.read_card(
            self.request.merchant_account, card.guest_reference, card.token
        )

    def listed(self, merchant_account: MerchantAccount = MAIN) -> Sequence[CardAtPsp]:
        """Return every card that the PSP lists for a merchant account."""
        cards, place = self.adapter.list_cards(merchant_account)
        places: set[str] = set()
        while place is not None:
            assert place not in places, "a list must not return a place that it has returned before"
            places.add(place)
            more, place = self.adapter.list_cards(merchant_account, place)
            cards = [*cards, *more]
        return cards

    def forget_guest(self) -> None:
        """Ask the PSP to delete the session's guest."""
        self.adapter.forget_guest(self.request.merchant_account, self.page.guest_reference)

    def prepare(self, method: Method) -> Callable[[], object]:
        """Return a function that calls `method` of the adapter each time it is called.

        For START, every call sends the same request, which is for a guest who is new to the PSP.
        """
        if method is Method.START:
            request = a_request(self.psp, guest_id=OTHER_GUEST_ID)
            return lambda: self.adapter.start(request)
        if method is Method.CLOSE:
            return self.close
        if method is Method.DISCARD:
            card = self.collect().card
            return lambda: self.discard(card)
        if method is Method.READ_CARD:
            stored = self.collect().card
            return lambda: self.read(stored).card
        if method is Method.LIST_CARDS:
            self.type_card()
            return lambda: self.adapter.list_cards(MAIN)
        if method is Method.FORGET_GUEST:
            self.type_card()
            return self.forget_guest
        if method is Method.OUTCOME_WITH_CARD:
            self.type_card()
        return self.outcome

    def effect(self, method: Method) -> object:
        """Return the part of the PSP's state that `method` changes or reads."""
        match method:
            case Method.START:
                return self.psp.count_pages()
            case Method.DISCARD:
                return self.psp.tokens(MAIN)
            case Method.FORGET_GUEST:
                return self.psp.guests(MAIN) | self.psp.tokens(MAIN)
            case _:
                return self.outcome()

    def event(self, kind: str = "") -> bytes:
        """Return the body of a webhook about the page.

        The default of `kind` is the first of the PSP's `telling_events`.
        """
        return self.psp.event(kind or self.psp.facts.telling_events[0], self.request, self.page)
