"""What an adapter must not believe, not repeat, not lose and not overlook."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, fields, replace
from itertools import combinations
from typing import Any, Final, TypeAlias

import pytest

from adapters.psp.contract.concurrency import at_once
from adapters.psp.contract.samples import GUEST_ID, OTHER_GUEST_ID
from adapters.psp.contract.sessions import ADDRESS, SECOND, Session, a_request, for_each, needs
from adapters.psp.contract.test_provider import (
    is_address,
    read,
    settings_of,
    signed,
)
from adapters.psp.contract.under_test import (
    OTHER,
    Ability,
    GuestCard,
    GuestDetails,
    Method,
    PspUnderTest,
    Trouble,
)
from adapters.psp.settings import PspSettingsError
from domain.billing import AvsResult, BillingInfo
from domain.identifiers import DEFAULT_MERCHANT_ACCOUNT, GuestId, MerchantAccount
from domain.psps.hosted_page import (
    CONSENT_LANGUAGE,
    CardCollected,
    HostedPage,
    HostedPageRequest,
    PageClosed,
    Pending,
    is_credible,
)
from domain.psps.payment_provider import (
    PaymentProvider,
    ProviderRefused,
    ProviderUnavailable,
    WebhookRejected,
)

COUNTRIES: Final = (
    "AE AT AU BE BR CA CH CN CZ DE DK ES FI FR GB HK IE IN IT JP MX NL NO NZ PL PT SE US"
)
BILLING: Final = BillingInfo(
    first_name="Zoë",
    last_name="Null",
    email="billing@guests.example",
    country_code="DE",
    address="Hauptstraße 5",
    state="Berlin",
    zipcode="10115",
    city="Berlin",
    phone="+49 30 123456",
)
MAX_TRIES: Final = 5
"""How often a method may send one call. More would be a burden on a PSP in trouble."""
LATER_SECONDS: Final = 60.0

Json: TypeAlias = Any  # as it goes over the wire

_ODD: Final[Mapping[type, tuple[Json, ...]]] = {
    bool: ("x", 7, None),
    int: (-1, 0, 77, 10**18, -(10**18), 1.5, "x", None),
    str: ("", "\x00", "x" * 9_999, 7, None, "0001-01-01T00:00:00+14:00"),
    type(None): ("x", 7),
}
"""For a value of each type, what a response may hold instead."""


def tried(act: Callable[[], HostedPage]) -> HostedPage | None:
    """Start a page; return None if the PSP gives no usable response."""
    try:
        return act()
    except ProviderUnavailable:
        return None


def bodies_of(psp: PspUnderTest, act: Callable[[], object]) -> list[bytes]:
    """Return the bodies of the responses to the calls that `act` makes."""
    bodies: list[bytes] = []

    def keep(_: int, body: bytes) -> bytes:
        bodies.append(body)
        return body

    psp.change_bodies(keep)
    act()
    psp.recover()
    return bodies


def instead(call: int, changed: bytes) -> Callable[[int, bytes], bytes]:
    """Return a change that gives one call, counted from 1, another body."""
    return lambda number, body: changed if number == call else body


@needs(Ability.SIGNED_WEBHOOKS)
class TestForgedSignature:
    def test_nothing_that_is_left_out_of_it_makes_it_valid(
        self, psp: PspUnderTest, session: Session
    ) -> None:
        forged = signed(psp, session.event(), secret="a guess")

        for name, value in forged.headers.items():
            for begin, end in combinations(range(len(value) + 1), 2):
                headers = {**forged.headers, name: value[:begin] + value[end:]}
                with pytest.raises(WebhookRejected):
                    session.adapter.read_webhook(replace(forged, headers=headers))

    def test_its_rejection_does_not_tell_the_right_one(
        self, psp: PspUnderTest, session: Session, private: list[str]
    ) -> None:
        sound, forged = signed(psp, session.event()), signed(psp, session.event(), secret="a guess")
        # The fixture looks for them in what is raised and logged.
        for name, value in sound.headers.items():
            words = re.findall(r"[\w+/=-]{16,}", value)
            private.extend(each for each in words if each not in forged.headers[name])

        with pytest.raises(WebhookRejected):
            session.adapter.read_webhook(forged)


@needs(Ability.STAND_IN)
class TestLists:
    """The PSP's lists show a new page late, and without idempotency keys only lists show it."""

    @pytest.fixture
    def request_(self, psp: PspUnderTest, adapter: PaymentProvider) -> HostedPageRequest:
        """Return a request whose page was made, and whose response was lost."""
        request = a_request(psp)
        psp.have(Trouble.RESPONSE_LOST, from_call=psp.facts.calls[Method.START])
        assert tried(lambda: adapter.start(request)) is None
        psp.recover()
        return request

    @for_each(
        ("part",),
        lambda facts: ((part,) for part in (0, 0.3, 0.6, 0.9, 0.99) if facts.list_lag),
    )
    def test_before_they_show_a_page_no_second_one_is_made(
        self,
        psp: PspUnderTest,
        adapter: PaymentProvider,
        request_: HostedPageRequest,
        part: float,
    ) -> None:
        # Up to a second after `begun_at`, an adapter may create without looking.
        psp.clock.advance(max(psp.facts.list_lag * part, 1.5 * SECOND))
        early = tried(lambda: adapter.start(request_))
        psp.clock.advance(request_.begun_at + psp.facts.list_lag - psp.clock.now())

        assert early in (None, adapter.start(request_))
        assert psp.count_pages() == 1

    @for_each(
        ("fault", "call"),
        lambda facts: (
            (fault, call)
            for fault in (Trouble.CALL_LOST, Trouble.NONSENSE, Trouble.REFUSED, Trouble.FORBIDDEN)
            for call in range(1, facts.calls[Method.START] + 2)
            if facts.list_lag
        ),
    )
    def test_one_that_fails_is_not_taken_for_an_empty_one(
        self,
        psp: PspUnderTest,
        adapter: PaymentProvider,
        request_: HostedPageRequest,
        fault: Trouble,
        call: int,
    ) -> None:
        psp.clock.advance(psp.facts.list_lag)
        psp.have(fault, from_call=call, calls=1)
        # Not ProviderRefused, which would begin the next attempt: a page exists.
        with suppress(ProviderUnavailable):
            adapter.start(request_)
        psp.recover()
        psp.clock.advance(psp.facts.list_lag)

        adapter.start(request_)

        assert psp.count_pages() == 1


@needs(Ability.STAND_IN, Ability.REMOTE)
class TestResponseAboutAnother:
    @pytest.fixture
    def other(self, session: Session) -> Session:
        """Return the session of another guest."""
        return session.another(guest_id=OTHER_GUEST_ID)

    @pytest.mark.parametrize("has_card", [False, True])
    def test_page_tells_no_outcome(
        self, psp: PspUnderTest, session: Session, other: Session, has_card: bool
    ) -> None:
        if has_card:
            session.collect()
        other.collect(GuestCard.ANOTHER_GOOD)
        bodies = bodies_of(psp, other.outcome)
        psp.change_bodies(lambda call, body: bodies[call - 1] if call <= len(bodies) else body)

        with pytest.raises(ProviderUnavailable):
            session.outcome()

    @for_each(
        ("call",),
        lambda facts: (
            (call,)
            for call in range(1, facts.calls[Method.START] + 1)
            if Ability.NAMES_SESSIONS in facts.abilities
        ),
    )
    @pytest.mark.parametrize("guest_id", [GUEST_ID, OTHER_GUEST_ID])
    def test_session_or_guest_makes_no_page(
        self, psp: PspUnderTest, session: Session, other: Session, call: int, guest_id: GuestId
    ) -> None:
        bodies = bodies_of(psp, lambda: session.another(guest_id=guest_id))
        psp.change_bodies(instead(call, bodies[call - 1]))

        page = tried(lambda: session.adapter.start(a_request(psp)))

        assert page is None or page.guest_reference != other.page.guest_reference
        assert page is None or call < psp.facts.calls[Method.START]

    @for_each(
        ("call",), lambda facts: ((each,) for each in [facts.calls[Method.START]] if each > 1)
    )
    def test_guest_alone_makes_no_page_for_that_guest(
        self, psp: PspUnderTest, session: Session, other: Session, call: int
    ) -> None:
        own, others = (each.page.guest_reference.encode() for each in (session, other))
        psp.change_bodies(lambda at, body: body.replace(own, others) if at == call else body)

        page = tried(lambda: session.adapter.start(a_request(psp)))

        # With one call, nothing shows whether the PSP knew the guest.
        assert page is None or page.guest_reference == session.page.guest_reference

    def test_guest_alone_tells_no_outcome(
        self, psp: PspUnderTest, session: Session, other: Session
    ) -> None:
        own, others = (each.page.guest_reference.encode() for each in (session, other))
        session.type_card()
        names_guest = any(own in body for body in bodies_of(psp, session.outcome))
        psp.change_bodies(lambda _, body: body.replace(own, others))

        with suppress(ProviderUnavailable):
            assert not (is_credible(session.outcome(), session.page) and names_guest)


@needs(Ability.STAND_IN, Ability.REMOTE, Ability.JSON)
class TestDamagedResponse:
    """Any value of a response may be of another type, or out of bounds."""

    @pytest.mark.parametrize("method", [each for each in Method if each is not Method.DISCARD])
    def test_raises_nothing_but_what_the_port_names(
        self, psp: PspUnderTest, session: Session, method: Method
    ) -> None:
        act = session.prepare(method)
        act()
        psp.clock.advance(psp.facts.list_lag)

        for call, sound in enumerate(bodies_of(psp, act), 1):
            for damaged in damages(sound):
                psp.change_bodies(instead(call, damaged))
                with suppress(ProviderUnavailable, ProviderRefused):
                    act()


def damages(body: bytes) -> Iterator[bytes]:
    """Yield a JSON body with one value changed, for each value and each change."""
    for path, value in leaves(json.loads(body)):
        for odd in _ODD.get(type(value), ()):
            changed = json.loads(body)
            within = changed
            for key in path[:-1]:
                within = within[key]
            within[path[-1]] = odd
            yield json.dumps(changed).encode()


def leaves(value: Json, path: tuple[Json, ...] = ()) -> Iterator[tuple[tuple[Json, ...], Json]]:
    """Yield the path and the value of everything in an object that is no object and no list."""
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(each, (*path, key))
    elif path:
        yield path, value


@needs(Ability.STAND_IN)
class TestWhatThePspGets:
    @pytest.mark.parametrize("name", ["Zoë Null", ""])
    def test_it_gets_name_email_address_and_language(
        self, psp: PspUnderTest, session: Session, name: str
    ) -> None:
        named = session.another(guest_name=name)
        expected = GuestDetails(
            name=name or None, email=named.request.guest_email, language=CONSENT_LANGUAGE
        )

        assert psp.guest_details(named.page) in (None, expected)

    @pytest.mark.parametrize("avs", [True, False])
    @pytest.mark.parametrize("name", [each.name for each in fields(BillingInfo)])
    def test_each_field_of_the_billing_address_may_stand_alone(
        self, psp: PspUnderTest, session: Session, name: str, avs: bool
    ) -> None:
        billing_info = BillingInfo(**{name: getattr(BILLING, name)})

        sent = asdict(psp.billing_info(session.another(billing_info=billing_info, avs=avs).page))

        if name in psp.facts.address_fields:
            assert sent[name] == getattr(billing_info, name)

    def test_an_address_may_be_anywhere(self, psp: PspUnderTest, session: Session) -> None:
        for country in COUNTRIES.split():
            page = session.another(billing_info=replace(BILLING, country_code=country)).page
            sent = asdict(psp.billing_info(page))
            for name in psp.facts.address_fields:
                expected = country if name == "country_code" else getattr(BILLING, name)
                assert sent[name] == expected, country


@needs(Ability.STAND_IN)
class TestWhatThePspTells:
    @pytest.mark.parametrize("expiry", [(1, 2027), (10, 2030), (12, 2099)])
    def test_a_card_may_expire_in_any_month(
        self, session: Session, expiry: tuple[int, int]
    ) -> None:
        card = session.collect(expiry=expiry).card

        assert (card.expiry_month, card.expiry_year) == expiry

    @for_each(
        ("card",),
        lambda facts: ((card,) for card in facts.cards if card is GuestCard.UNCHECKED_ADDRESS),
    )
    def test_an_address_that_the_bank_cannot_check_does_not_match_nor_mismatch(
        self, session: Session, card: GuestCard
    ) -> None:
        checked = session.another(avs=True, billing_info=ADDRESS)

        assert checked.collect(card).avs is AvsResult.NOT_CHECKED

    def test_a_page_that_the_guest_has_left_still_takes_a_card(
        self, psp: PspUnderTest, session: Session
    ) -> None:
        psp.leave(session.page)
        assert session.outcome() == Pending()

        session.collect()

    def test_one_adapter_serves_all_threads(self, psp: PspUnderTest, session: Session) -> None:
        sessions = [session.another() for _ in range(6)]
        for each in sessions[::2]:
            each.type_card()

        outcomes = at_once(len(sessions), lambda number: sessions[number].outcome())

        assert outcomes == [each.outcome() for each in sessions]
        assert [isinstance(each, CardCollected) for each in outcomes] == [True, False] * 3


@needs(Ability.STAND_IN, Ability.COUNTS_REFUSALS)
class TestRefusedCards:
    def test_are_told_at_once_and_with_the_card_that_follows(
        self, psp: PspUnderTest, session: Session
    ) -> None:
        for _ in range(2):
            session.type_card(GuestCard.REFUSED)
        assert session.outcome().refused_cards == 2

        session.type_card(GuestCard.CHALLENGED)
        assert session.outcome() == Pending(refused_cards=2)

        psp.answer_challenge(session.page, confirmed=True)
        assert session.outcome().refused_cards == 2

    def test_are_told_when_the_page_is_closed(self, session: Session) -> None:
        session.type_card(GuestCard.REFUSED)
        session.close()

        assert session.outcome() == PageClosed(refused_cards=1)


@needs(Ability.STAND_IN, Ability.REMOTE)
class TestPspInTrouble:
    @pytest.mark.parametrize("method", Method)
    @pytest.mark.parametrize(
        "trouble", [Trouble.RESPONSE_LOST, Trouble.OUT_OF_ORDER, Trouble.TOO_MANY]
    )
    def test_is_not_called_again_and_again(
        self, psp: PspUnderTest, session: Session, trouble: Trouble, method: Method
    ) -> None:
        act, before = session.prepare(method), psp.count_calls()
        psp.have(trouble)

        with pytest.raises(ProviderUnavailable) as raised:
            act()

        # Without idempotency keys, a second call would make a second page.
        is_once = method is Method.START and Ability.IDEMPOTENCY_KEYS not in psp.facts.abilities
        assert psp.count_calls() - before <= (1 if is_once else MAX_TRIES)
        assert trouble is not Trouble.TOO_MANY or raised.value.retry_after == 17 * SECOND

    @pytest.mark.parametrize("method", Method)
    def test_does_not_end_an_adapter(
        self,
        psp: PspUnderTest,
        session: Session,
        monkeypatch: pytest.MonkeyPatch,
        method: Method,
    ) -> None:
        act = session.prepare(method)
        psp.have(Trouble.RESPONSE_LOST)
        with pytest.raises(ProviderUnavailable):
            act()
        psp.recover()
        psp.clock.advance(psp.facts.list_lag)
        # A client that lives as long as the adapter would be past its deadline by now.
        now = time.monotonic
        monkeypatch.setattr(time, "monotonic", lambda: now() + LATER_SECONDS)

        act()


@needs(Ability.REMOTE)
class TestKeysAndAddresses:
    def test_an_address_that_is_not_https_is_refused_by_its_name(self, psp: PspUnderTest) -> None:
        given = settings_of(psp)
        for name in (name for name, value in given.items() if is_address(value)):
            with pytest.raises(PspSettingsError, match=name):
                read(psp, {**given, name: "http://psp.example/v1"})

    @pytest.mark.parametrize("account", [DEFAULT_MERCHANT_ACCOUNT, OTHER])
    @for_each(("what",), lambda facts: ((what,) for what in facts.live_settings))
    def test_a_key_for_real_cards_is_known_as_one(
        self, psp: PspUnderTest, what: str, account: MerchantAccount
    ) -> None:
        given = settings_of(psp, account)
        live = given | settings_of(psp, account, **psp.facts.live_settings)

        assert psp.plugin.live_setting(read(psp, given)) is None
        named = psp.plugin.live_setting(read(psp, live))
        assert named in {name for name in live if live[name] != given[name]}
