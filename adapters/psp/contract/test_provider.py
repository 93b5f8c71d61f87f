"""What every adapter of a PSP promises (domain/ports.py).

To add one: `docs/adding-a-provider.md`.
"""

from __future__ import annotations

import hmac
import json
import logging
import re
import sys
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import asdict, replace
from datetime import UTC, timedelta
from enum import Enum
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import parse_qs, urlsplit

import pytest
from structlog.testing import capture_logs

from adapters.psp.contract.concurrency import at_once
from adapters.psp.contract.pytest_plugin import psps
from adapters.psp.contract.samples import GUEST_ID, OTHER_GUEST_ID, a_page_request
from adapters.psp.contract.under_test import (
    EXPIRY,
    MAIN,
    OTHER,
    OTHER_SECRET,
    SECRET,
    Ability,
    Facts,
    GuestCard,
    Method,
    PspUnderTest,
    Trouble,
)
from adapters.psp.plugin import Surroundings
from adapters.psp.settings import SettingsError
from domain.billing import AvsResult, BillingInfo
from domain.hosted_links import HostedLinks
from domain.hosted_pages import (
    CardCollected,
    Consent,
    Evidence,
    EvidenceOrigin,
    HostedPage,
    HostedPageRequest,
    Outcome,
    PageClosed,
    Pending,
    WebhookNotice,
    consent_for,
)
from domain.identifiers import (
    DEFAULT_MERCHANT_ACCOUNT,
    CardToken,
    GuestReference,
    MerchantAccount,
    TokenId,
)
from domain.payment_accounts import Card
from domain.ports import PaymentProvider, ProviderRefused, ProviderUnavailable, WebhookRejected

NOBODYS: Final = MerchantAccount("nobodys")
"""A merchant account without keys."""
MINUTE: Final = timedelta(minutes=1)
SECOND: Final = timedelta(seconds=1)
ADDRESS: Final = BillingInfo(
    address="12 Analytical Row", city="Seattle", state="WA", zipcode="98101", country_code="US"
)
JUNK: Final = ("", "{}", "null", "7", "[]", "<html>", "\x00", "\udc80", "é" * 4_096, "[" * 4_096)
NAMES: Final = (
    "Harbor *Spa* <b>",
    "_Harbor_ **Spa** `1` ~~2~~ # 3",
    "<script>Harbor</script> & Spa &amp; &#42;",
    "Harbor [Spa](https://spa.example) https://www.spa.example",
    "{{ Harbor }} {% Spa %} $1 %s \\*",
)
"""Names of centers that hold what some PSPs would render: Markdown, HTML, templates."""
BROKEN_JSON: Final = (
    b"",
    b"null",
    b"7",
    b"{",
    b"{}",
    b'{"type": "\xff"}',
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"x":' * 100_000,
)


def needs(*abilities: Ability) -> pytest.MarkDecorator:
    """Ask only the PSPs that state these abilities; the others do not promise it."""
    return pytest.mark.psp_needs(*abilities)


def for_each(
    names: tuple[str, ...], stated: Callable[[Facts], Iterable[tuple[object, ...]]]
) -> pytest.MarkDecorator:
    """Ask each PSP about each of the cases that come of what it states."""
    return pytest.mark.psp_cases(names, stated)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Ask each PSP that is able; a test that none is asked is left out by the plugin."""
    marks = list(metafunc.definition.iter_markers())
    needed = {ability for mark in marks if mark.name == "psp_needs" for ability in mark.args}
    names, stated = next(
        (mark.args for mark in marks if mark.name == "psp_cases"), ((), lambda _: [()])
    )
    metafunc.parametrize(
        ("psp", *names),
        [
            pytest.param(psp, *case, id="-".join((name, *(_shown(each) for each in case))))
            for name, psp in psps(metafunc.config).items()
            if psp.facts.abilities >= needed
            for case in stated(psp.facts)
        ]
        or [pytest.param(None, *names, id="nobody")],
        indirect=["psp"],
    )


def _shown(value: object) -> str:
    return value.name if isinstance(value, Enum) else str(value)


@pytest.fixture
def psp(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PspUnderTest]:
    """Give each PSP in turn, as on its first day."""
    with closing(request.param(tmp_path)) as psp:
        yield psp


# Any: `changes` holds fields of any type, and replace() refuses wrong names.
def a_request(psp: PspUnderTest, **changes: Any) -> HostedPageRequest:
    """Give the request for the first page of a new session."""
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


@pytest.fixture
def adapter(psp: PspUnderTest) -> PaymentProvider:
    return psp.adapter()


@pytest.fixture
def asked(psp: PspUnderTest) -> HostedPageRequest:
    return a_request(psp)


@pytest.fixture
def page(adapter: PaymentProvider, asked: HostedPageRequest, private: list[str]) -> HostedPage:
    page = adapter.start(asked)
    private.extend((page.reference, page.guest_reference, page.address))
    return page


Tell: TypeAlias = Callable[[], Outcome]


@pytest.fixture
def tell(
    psp: PspUnderTest,
    adapter: PaymentProvider,
    asked: HostedPageRequest,
    page: HostedPage,
    private: list[str],
) -> Tell:
    """Give a way to ask what has become of the page."""

    def tell() -> Outcome:
        outcome = adapter.outcome(asked, page, psp.evidence(page))
        if isinstance(outcome, CardCollected):
            private.append(outcome.card.token)
        return outcome

    return tell


class Collect(Protocol):
    """Has a card collected in a session of its own, and tells of it."""

    # Any: `changes` are fields of the request, of any type.
    def __call__(
        self,
        card: GuestCard = GuestCard.GOOD,
        *,
        expiry: tuple[int, int] = EXPIRY,
        **changes: Any,
    ) -> CardCollected: ...


@pytest.fixture
def collect(psp: PspUnderTest, adapter: PaymentProvider, private: list[str]) -> Collect:
    def collect(
        card: GuestCard = GuestCard.GOOD, *, expiry: tuple[int, int] = EXPIRY, **changes: Any
    ) -> CardCollected:
        request = a_request(psp, **changes)
        page = adapter.start(request)
        psp.type_card(page, card, expiry=expiry)
        outcome = adapter.outcome(request, page, psp.evidence(page))
        assert isinstance(outcome, CardCollected)
        private.extend((page.reference, page.guest_reference, outcome.card.token))
        return outcome

    return collect


@pytest.fixture(autouse=True)
def private(psp: PspUnderTest, caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """Give a list of what no log may hold, whatever a test does.

    It begins with keys, secrets, and what there is of a guest and of cards.
    """
    guest = a_page_request()
    numbers = [card.number for card in psp.facts.cards.values()]
    private = [SECRET, OTHER_SECRET, *psp.keys, *numbers]
    private += filter(None, (guest.guest_email, guest.guest_name, ADDRESS.address))
    caplog.set_level(logging.DEBUG)
    with capture_logs() as lines:
        yield private
    # `caplog.text` has the records of the teardown by now.
    written = [record.getMessage() for record in caplog.get_records("call")]
    logged = f"{lines}\n{written}"
    assert [each for each in private if each in logged] == []


class TestStart:
    def test_a_page_has_a_reference_a_web_address_and_a_guest(self, page: HostedPage) -> None:
        assert page.reference
        assert page.address.startswith(("https://", "http://"))
        assert page.guest_reference

    @pytest.mark.parametrize("minutes", [1, 11])
    def test_the_same_key_gives_the_same_page_again(
        self,
        psp: PspUnderTest,
        adapter: PaymentProvider,
        asked: HostedPageRequest,
        page: HostedPage,
        minutes: int,
    ) -> None:
        psp.clock.advance(minutes * MINUTE)

        assert adapter.start(asked) == page
        assert psp.adapter().start(asked) == page

    @needs(Ability.STAND_IN)
    def test_a_page_that_has_its_card_is_given_again(
        self,
        psp: PspUnderTest,
        adapter: PaymentProvider,
        asked: HostedPageRequest,
        page: HostedPage,
    ) -> None:
        psp.type_card(page, GuestCard.GOOD)
        psp.clock.advance(psp.facts.list_lag)

        assert adapter.start(asked).reference == page.reference

    def test_the_next_attempt_makes_another_page(
        self,
        psp: PspUnderTest,
        adapter: PaymentProvider,
        asked: HostedPageRequest,
        page: HostedPage,
    ) -> None:
        psp.clock.advance(psp.facts.list_lag)
        again = adapter.start(replace(asked, attempt=2, guest_reference=page.guest_reference))

        assert again.reference != page.reference
        assert again.address != page.address

    def test_another_session_has_another_page(
        self, psp: PspUnderTest, adapter: PaymentProvider, page: HostedPage
    ) -> None:
        assert adapter.start(a_request(psp)).reference != page.reference

    @pytest.mark.parametrize("minutes", [15, 30, 120])
    def test_a_page_ends_when_it_is_asked_to_or_later(
        self, psp: PspUnderTest, adapter: PaymentProvider, minutes: int
    ) -> None:
        asked = a_request(psp, live_until=psp.clock.now() + minutes * MINUTE)

        assert adapter.start(asked).ends_at >= asked.live_until

    def test_neither_a_billing_address_nor_an_email_address_is_needed(
        self, psp: PspUnderTest, adapter: PaymentProvider
    ) -> None:
        asked = a_request(psp, billing_info=None, avs=False, guest_email=None)

        assert adapter.start(asked).reference


@needs(Ability.STAND_IN, Ability.IDEMPOTENCY_KEYS)
class TestSameStartAtOnce:
    def test_starts_at_once_under_one_key_make_one_page(
        self, psp: PspUnderTest, adapter: PaymentProvider, asked: HostedPageRequest
    ) -> None:
        def start(_: int) -> HostedPage | None:
            try:
                return adapter.start(asked)
            except ProviderUnavailable:
                return None

        answers = at_once(4, start)

        assert set(answers) <= {None, adapter.start(asked)}
        assert psp.count_pages() == 1
        assert len(psp.guests(MAIN)) == 1


@needs(Ability.STAND_IN)
class TestPage:
    def test_the_guest_reads_the_consent_that_was_asked_for(
        self, psp: PspUnderTest, asked: HostedPageRequest, page: HostedPage
    ) -> None:
        assert asked.consent.text in psp.read_page(page)

    def test_the_guest_reads_the_longest_consent_that_it_shows(
        self, psp: PspUnderTest, adapter: PaymentProvider
    ) -> None:
        consent = Consent(version="long", text="a" * (psp.plugin.max_consent_length - 1) + "z")

        page = adapter.start(a_request(psp, consent=consent))

        assert consent.text in psp.read_page(page)

    @pytest.mark.parametrize("name", NAMES)
    def test_the_guest_reads_a_consent_as_it_is_whatever_is_in_it(
        self, psp: PspUnderTest, adapter: PaymentProvider, name: str
    ) -> None:
        consent = Consent(version="marked up", text=f"You allow {name} to charge the card.")

        page = adapter.start(a_request(psp, center_name=name, consent=consent))

        assert consent.text in psp.read_page(page)

    def test_the_psp_is_told_the_billing_address(self, psp: PspUnderTest, page: HostedPage) -> None:
        told = {name: value for name, value in asdict(psp.billing_info(page)).items() if value}

        assert told == {name: getattr(ADDRESS, name) for name in psp.facts.address_fields}

    def test_it_leads_back_to_where_it_was_asked_to(
        self, psp: PspUnderTest, asked: HostedPageRequest, page: HostedPage
    ) -> None:
        ways_out = psp.ways_out(page)

        # What the PSP adds is added to the query that is there: a second "?" would be read as a
        # part of the last value.
        for way_out, asked_for in (
            (ways_out.with_card, asked.return_uri),
            (ways_out.without, asked.cancel_uri),
        ):
            assert way_out.partition("?")[0] == asked_for.partition("?")[0]
            query = parse_qs(urlsplit(way_out).query, strict_parsing=True)
            assert query.items() >= parse_qs(urlsplit(asked_for).query).items()

    def test_it_takes_a_card_up_to_its_end(
        self, psp: PspUnderTest, page: HostedPage, tell: Tell
    ) -> None:
        psp.clock.advance(page.ends_at - psp.clock.now() - SECOND)
        assert tell() == Pending()

        psp.type_card(page, GuestCard.GOOD)

        assert isinstance(tell(), CardCollected)

    def test_it_takes_none_from_its_end_on(
        self, psp: PspUnderTest, page: HostedPage, tell: Tell
    ) -> None:
        psp.clock.advance(page.ends_at - psp.clock.now())

        psp.type_card(page, GuestCard.GOOD)

        assert tell() == PageClosed()
        assert psp.tokens(MAIN) == frozenset()


class TestGuestReference:
    def test_a_guest_who_is_known_keeps_the_reference(
        self, psp: PspUnderTest, adapter: PaymentProvider, page: HostedPage
    ) -> None:
        again = adapter.start(a_request(psp, guest_reference=page.guest_reference))

        assert again.guest_reference == page.guest_reference

    def test_a_guest_whom_the_psp_never_knew_gets_a_new_one(
        self, psp: PspUnderTest, adapter: PaymentProvider
    ) -> None:
        unknown = GuestReference("guest_of_nobody")

        page = adapter.start(a_request(psp, guest_reference=unknown))

        assert page.guest_reference not in ("", unknown)

    def test_a_guest_whom_the_psp_knows_no_more_gets_a_new_one(
        self, psp: PspUnderTest, adapter: PaymentProvider, page: HostedPage
    ) -> None:
        psp.forget_guest(MAIN, page.guest_reference)

        again = adapter.start(a_request(psp, guest_reference=page.guest_reference))

        assert again.guest_reference not in ("", page.guest_reference)

    def test_another_guest_is_somebody_else(
        self, psp: PspUnderTest, adapter: PaymentProvider, page: HostedPage
    ) -> None:
        other = adapter.start(a_request(psp, guest_id=OTHER_GUEST_ID))

        assert other.guest_reference != page.guest_reference

    @pytest.mark.parametrize("is_known", [True, False])
    def test_a_guest_is_somebody_else_at_another_merchant_account(
        self, psp: PspUnderTest, adapter: PaymentProvider, page: HostedPage, is_known: bool
    ) -> None:
        reference = page.guest_reference if is_known else None

        there = adapter.start(a_request(psp, merchant_account=OTHER, guest_reference=reference))

        assert there.guest_reference != page.guest_reference


class TestOutcome:
    def test_nothing_typed_is_pending(self, tell: Tell) -> None:
        assert tell() == Pending()

    def test_a_page_that_is_unknown_is_closed(
        self, adapter: PaymentProvider, asked: HostedPageRequest, page: HostedPage
    ) -> None:
        unknown = replace(page, reference=f"{page.reference}0")

        assert adapter.outcome(asked, unknown, ()) == PageClosed()

    def test_a_page_that_was_closed_is_closed(
        self, adapter: PaymentProvider, asked: HostedPageRequest, page: HostedPage, tell: Tell
    ) -> None:
        adapter.close(asked, page)

        assert tell() == PageClosed()
        assert tell() == PageClosed()

    @pytest.mark.parametrize("origin", EvidenceOrigin)
    def test_no_evidence_makes_a_page_what_it_is_not(
        self,
        psp: PspUnderTest,
        adapter: PaymentProvider,
        asked: HostedPageRequest,
        page: HostedPage,
        origin: EvidenceOrigin,
    ) -> None:
        made_up = [
            json.dumps(dict.fromkeys(adapter.return_parameters, value))
            for value in ("", "succeeded", page.reference, "x" * 4_000)
        ]
        evidence = [
            Evidence(origin=origin, content=content, received_at=psp.clock.now())
            for content in (*JUNK, *made_up)
        ]

        assert adapter.outcome(asked, page, evidence) == Pending()
        for each in evidence:
            assert adapter.outcome(asked, page, [each]) == Pending()


@needs(Ability.STAND_IN)
class TestCard:
    @pytest.mark.parametrize("typed", [GuestCard.GOOD, GuestCard.ANOTHER_GOOD])
    def test_a_card_is_told_with_every_field(
        self, psp: PspUnderTest, page: HostedPage, tell: Tell, typed: GuestCard
    ) -> None:
        psp.type_card(page, typed, expiry=(9, 2031))

        outcome = tell()

        assert isinstance(outcome, CardCollected)
        printed, card = psp.facts.cards[typed], outcome.card
        assert card == Card(
            guest_reference=page.guest_reference,
            token=card.token,
            fingerprint=card.fingerprint,
            card_logo=printed.card_logo,
            last_four=printed.number[-4:],
            expiry_month=9,
            expiry_year=2031,
        )
        assert psp.tokens(MAIN) == {card.token}
        assert card.fingerprint
        assert printed.number not in repr(outcome)

    def test_it_is_told_the_same_whenever_it_is_asked_for(
        self, psp: PspUnderTest, adapter: PaymentProvider, page: HostedPage, tell: Tell
    ) -> None:
        psp.clock.advance(5 * MINUTE)
        typed_at = psp.clock.now()
        psp.type_card(page, GuestCard.GOOD)
        psp.clock.advance(2 * MINUTE)

        outcome = tell()

        assert isinstance(outcome, CardCollected)
        # Exact to the unit of the PSP's times, and not rounded once more.
        since_then = typed_at - outcome.collected_at
        assert timedelta(0) <= since_then < psp.facts.resolution
        assert outcome.collected_at.tzinfo is UTC
        psp.clock.advance(24 * 60 * MINUTE)
        assert tell() == outcome

    @pytest.mark.parametrize(
        ("avs", "typed", "said"),
        [
            (True, GuestCard.GOOD, AvsResult.MATCH),
            (True, GuestCard.WRONG_ADDRESS, AvsResult.MISMATCH),
            (False, GuestCard.GOOD, AvsResult.NOT_CHECKED),
        ],
    )
    def test_what_the_bank_says_of_the_address_is_told_and_not_judged(
        self, avs: bool, typed: GuestCard, said: AvsResult, collect: Collect
    ) -> None:
        billing_info = ADDRESS if avs else None

        outcome = collect(typed, avs=avs, billing_info=billing_info)

        assert outcome.avs is said

    def test_a_card_that_the_bank_refuses_leaves_the_page_open_for_another(
        self, psp: PspUnderTest, page: HostedPage, tell: Tell
    ) -> None:
        psp.type_card(page, GuestCard.REFUSED)
        assert tell() == psp.facts.after_refusal
        assert psp.tokens(MAIN) == frozenset()

        psp.type_card(page, GuestCard.GOOD)

        outcome = tell()
        assert isinstance(outcome, CardCollected)
        assert outcome.card.last_four == psp.facts.cards[GuestCard.GOOD].number[-4:]

    def test_a_card_is_pending_while_the_bank_waits_for_the_guest(
        self, psp: PspUnderTest, page: HostedPage, tell: Tell
    ) -> None:
        psp.type_card(page, GuestCard.CHALLENGED)
        assert tell() == Pending()
        assert psp.tokens(MAIN) == frozenset()

        psp.answer_challenge(page, confirmed=True)

        outcome = tell()
        assert isinstance(outcome, CardCollected)
        assert psp.tokens(MAIN) == {outcome.card.token}

    def test_a_guest_who_fails_the_challenge_may_try_another_card(
        self, psp: PspUnderTest, page: HostedPage, tell: Tell
    ) -> None:
        psp.type_card(page, GuestCard.CHALLENGED)
        psp.answer_challenge(page, confirmed=False)
        assert tell() == psp.facts.after_refusal
        assert psp.tokens(MAIN) == frozenset()

        psp.type_card(page, GuestCard.GOOD)

        assert isinstance(tell(), CardCollected)

    def test_a_card_belongs_to_the_page_that_it_was_typed_on(
        self, page: HostedPage, tell: Tell, collect: Collect
    ) -> None:
        collect(guest_reference=page.guest_reference)

        assert tell() == Pending()

    def test_it_is_stored_where_it_was_asked_for(
        self, psp: PspUnderTest, adapter: PaymentProvider, collect: Collect
    ) -> None:
        card = collect(merchant_account=OTHER).card

        assert psp.tokens(MAIN) == frozenset()
        assert psp.tokens(OTHER) == {card.token}
        adapter.discard(OTHER, card.guest_reference, card.token)
        assert psp.tokens(OTHER) == frozenset()

    def test_no_evidence_takes_a_card_away(
        self,
        psp: PspUnderTest,
        adapter: PaymentProvider,
        asked: HostedPageRequest,
        page: HostedPage,
        tell: Tell,
    ) -> None:
        psp.type_card(page, GuestCard.GOOD)
        junk = [
            Evidence(origin=origin, content=content, received_at=psp.clock.now())
            for origin in EvidenceOrigin
            for content in JUNK
        ]

        assert adapter.outcome(asked, page, [*junk, *psp.evidence(page), *junk]) == tell()


@needs(Ability.STAND_IN)
class TestFingerprint:
    @pytest.mark.parametrize("merchant_account", [MAIN, OTHER])
    def test_a_card_has_the_same_one_whoever_types_it_and_whenever_it_expires(
        self, merchant_account: str, collect: Collect
    ) -> None:
        fingerprints = {
            collect(
                expiry=expiry, guest_id=guest_id, merchant_account=merchant_account
            ).card.fingerprint
            for guest_id in (GUEST_ID, OTHER_GUEST_ID)
            for expiry in ((9, 2031), (1, 2033))
        }

        assert len(fingerprints) == 1

    def test_another_card_has_another(self, collect: Collect) -> None:
        first = collect(GuestCard.GOOD)
        second = collect(GuestCard.ANOTHER_GOOD)

        assert first.card.fingerprint != second.card.fingerprint


class TestClose:
    def test_a_page_may_be_closed_twice(
        self, adapter: PaymentProvider, asked: HostedPageRequest, page: HostedPage, tell: Tell
    ) -> None:
        adapter.close(asked, page)
        adapter.close(asked, page)

        assert tell() == PageClosed()

    def test_a_page_that_is_unknown_may_be_closed(
        self, adapter: PaymentProvider, asked: HostedPageRequest, page: HostedPage, tell: Tell
    ) -> None:
        adapter.close(asked, replace(page, reference=f"{page.reference}0"))

        assert tell() == Pending()

    def test_a_page_is_closed_where_it_was_made(
        self, psp: PspUnderTest, adapter: PaymentProvider
    ) -> None:
        asked = a_request(psp, merchant_account=OTHER)
        page = adapter.start(asked)
        assert adapter.outcome(asked, page, ()) == Pending()

        adapter.close(asked, page)

        assert adapter.outcome(asked, page, ()) == PageClosed()

    def test_the_next_attempt_is_not_closed_with_it(
        self,
        psp: PspUnderTest,
        adapter: PaymentProvider,
        asked: HostedPageRequest,
        page: HostedPage,
    ) -> None:
        psp.clock.advance(psp.facts.list_lag)
        next_one = replace(asked, attempt=2, guest_reference=page.guest_reference)
        next_page = adapter.start(next_one)

        adapter.close(asked, page)

        assert adapter.outcome(next_one, next_page, ()) == Pending()


@needs(Ability.STAND_IN)
class TestClosedPage:
    def test_it_takes_no_card(
        self,
        psp: PspUnderTest,
        adapter: PaymentProvider,
        asked: HostedPageRequest,
        page: HostedPage,
        tell: Tell,
    ) -> None:
        adapter.close(asked, page)

        psp.type_card(page, GuestCard.GOOD)

        assert tell() == PageClosed()
        assert psp.tokens(MAIN) == frozenset()

    def test_its_challenge_is_over_too(
        self,
        psp: PspUnderTest,
        adapter: PaymentProvider,
        asked: HostedPageRequest,
        page: HostedPage,
        tell: Tell,
    ) -> None:
        psp.type_card(page, GuestCard.CHALLENGED)
        adapter.close(asked, page)

        psp.answer_challenge(page, confirmed=True)

        assert tell() == PageClosed()
        assert psp.tokens(MAIN) == frozenset()

    def test_it_keeps_the_card_that_it_had(
        self,
        psp: PspUnderTest,
        adapter: PaymentProvider,
        asked: HostedPageRequest,
        page: HostedPage,
        tell: Tell,
    ) -> None:
        psp.type_card(page, GuestCard.GOOD)
        outcome = tell()

        adapter.close(asked, page)

        assert isinstance(outcome, CardCollected)
        assert tell() == outcome
        assert psp.tokens(MAIN) == {outcome.card.token}

    def test_one_past_its_end_may_be_closed(
        self,
        psp: PspUnderTest,
        adapter: PaymentProvider,
        asked: HostedPageRequest,
        page: HostedPage,
        tell: Tell,
    ) -> None:
        psp.clock.advance(page.ends_at - psp.clock.now())

        adapter.close(asked, page)

        assert tell() == PageClosed()


class TestDiscard:
    def test_a_token_that_is_unknown_may_be_discarded(
        self, adapter: PaymentProvider, page: HostedPage
    ) -> None:
        adapter.discard(MAIN, page.guest_reference, CardToken("token_of_nothing"))
        adapter.discard(MAIN, GuestReference("guest_of_nobody"), CardToken("token_of_nothing"))


@needs(Ability.STAND_IN)
class TestDiscardedToken:
    def test_it_can_be_charged_no_more(
        self, psp: PspUnderTest, adapter: PaymentProvider, collect: Collect
    ) -> None:
        kept = collect(GuestCard.ANOTHER_GOOD).card
        card = collect().card

        adapter.discard(MAIN, card.guest_reference, card.token)

        assert psp.tokens(MAIN) == {kept.token}

    def test_it_may_be_discarded_twice(
        self, psp: PspUnderTest, adapter: PaymentProvider, collect: Collect
    ) -> None:
        card = collect().card

        adapter.discard(MAIN, card.guest_reference, card.token)
        adapter.discard(MAIN, card.guest_reference, card.token)

        assert psp.tokens(MAIN) == frozenset()

    def test_it_is_discarded_at_its_own_merchant_account_alone(
        self, psp: PspUnderTest, adapter: PaymentProvider, collect: Collect
    ) -> None:
        card = collect().card

        adapter.discard(OTHER, card.guest_reference, card.token)

        assert psp.tokens(MAIN) == {card.token}

    def test_its_page_does_not_bring_it_back(
        self, psp: PspUnderTest, adapter: PaymentProvider, page: HostedPage, tell: Tell
    ) -> None:
        psp.type_card(page, GuestCard.GOOD)
        outcome = tell()
        assert isinstance(outcome, CardCollected)

        adapter.discard(MAIN, page.guest_reference, outcome.card.token)

        assert tell() in (Pending(), PageClosed())

    def test_the_same_card_may_be_added_again(
        self, psp: PspUnderTest, adapter: PaymentProvider, collect: Collect
    ) -> None:
        card = collect().card
        adapter.discard(MAIN, card.guest_reference, card.token)
        psp.clock.advance(MINUTE)

        again = collect(guest_reference=card.guest_reference)

        assert again.card.fingerprint == card.fingerprint
        assert psp.tokens(MAIN) == {again.card.token}
        assert timedelta(0) <= psp.clock.now() - again.collected_at < psp.facts.resolution


def sessions_of(
    notices: Iterable[WebhookNotice], *known: tuple[HostedPageRequest, HostedPage]
) -> set[TokenId | None]:
    """Give the sessions that notices speak of, among those known; None for any other."""
    by_page = {page.reference: request.token_id for request, page in known}
    by_token_id = {request.token_id: request.token_id for request, _ in known}
    return {
        by_token_id.get(notice.token_id)
        if notice.token_id
        else by_page.get(notice.page_reference or "")
        for notice in notices
    }


telling = for_each(("kind",), lambda facts: ((kind,) for kind in facts.telling_events))


class TestKindsOfWebhooks:
    @telling
    def test_one_that_speaks_of_a_session_names_it(
        self,
        psp: PspUnderTest,
        adapter: PaymentProvider,
        asked: HostedPageRequest,
        page: HostedPage,
        kind: str,
    ) -> None:
        delivery = psp.sign(psp.event(kind, asked, page), at=psp.clock.now())

        notices = adapter.read_webhook(delivery)

        assert sessions_of(notices, (asked, page)) == {asked.token_id}
        assert {notice.merchant_account for notice in notices} == {MAIN}

    @telling
    def test_what_is_kept_of_it_is_the_same_each_time_and_names_no_guest(
        self,
        psp: PspUnderTest,
        adapter: PaymentProvider,
        asked: HostedPageRequest,
        page: HostedPage,
        kind: str,
    ) -> None:
        body = psp.event(kind, asked, page)
        notices = adapter.read_webhook(psp.sign(body, at=psp.clock.now()))

        psp.clock.advance(MINUTE)
        again = psp.adapter().read_webhook(psp.sign(body, at=psp.clock.now()))

        assert list(again) == list(notices)
        assert asked.guest_email is not None
        for notice in notices:
            assert asked.guest_email not in notice.content
            assert asked.guest_name not in notice.content

    @telling
    def test_what_is_kept_of_it_is_evidence_that_the_adapter_can_read(
        self,
        psp: PspUnderTest,
        adapter: PaymentProvider,
        asked: HostedPageRequest,
        page: HostedPage,
        kind: str,
    ) -> None:
        delivery = psp.sign(psp.event(kind, asked, page), at=psp.clock.now())
        evidence = [
            Evidence(
                origin=EvidenceOrigin.WEBHOOK, content=notice.content, received_at=psp.clock.now()
            )
            for notice in adapter.read_webhook(delivery)
        ]

        adapter.outcome(asked, page, [*evidence, *evidence])

    @for_each(("kind",), lambda facts: ((kind,) for kind in facts.silent_events))
    def test_one_that_says_nothing_of_a_session_is_taken_and_names_none(
        self,
        psp: PspUnderTest,
        adapter: PaymentProvider,
        asked: HostedPageRequest,
        page: HostedPage,
        kind: str,
    ) -> None:
        delivery = psp.sign(psp.event(kind, asked, page), at=psp.clock.now())

        assert list(adapter.read_webhook(delivery)) == []

    @for_each(("fault",), lambda facts: ((fault,) for fault in facts.broken_events))
    def test_a_broken_one_is_rejected_though_it_is_signed(
        self, psp: PspUnderTest, adapter: PaymentProvider, fault: str
    ) -> None:
        delivery = psp.sign(psp.facts.broken_events[fault], at=psp.clock.now())

        with pytest.raises(WebhookRejected):
            adapter.read_webhook(delivery)

    @for_each(("whom",), lambda facts: ((whom,) for whom in facts.misdirected))
    def test_one_that_is_meant_for_somebody_else_is_rejected(
        self,
        psp: PspUnderTest,
        adapter: PaymentProvider,
        asked: HostedPageRequest,
        page: HostedPage,
        whom: str,
    ) -> None:
        delivery = psp.misdirect(whom, asked, page)

        with pytest.raises(WebhookRejected):
            adapter.read_webhook(delivery)


@needs(Ability.BATCHES)
class TestBatch:
    def test_every_event_of_it_is_read(
        self,
        psp: PspUnderTest,
        adapter: PaymentProvider,
        asked: HostedPageRequest,
        page: HostedPage,
    ) -> None:
        other = a_request(psp)
        other_page = adapter.start(other)
        telling, silent = psp.facts.telling_events[0], psp.facts.silent_events[0]
        body = psp.batch(
            [
                psp.event(silent, asked, page),
                psp.event(telling, asked, page),
                psp.event(telling, other, other_page),
            ]
        )

        notices = adapter.read_webhook(psp.sign(body, at=psp.clock.now()))

        known = ((asked, page), (other, other_page))
        assert sessions_of(notices, *known) == {asked.token_id, other.token_id}

    def test_one_without_events_names_no_session(
        self, psp: PspUnderTest, adapter: PaymentProvider
    ) -> None:
        delivery = psp.sign(psp.batch([]), at=psp.clock.now())

        assert list(adapter.read_webhook(delivery)) == []


@pytest.fixture
def event(psp: PspUnderTest, asked: HostedPageRequest, page: HostedPage) -> bytes:
    """Give the body of a webhook that speaks of the page."""
    return psp.event(psp.facts.telling_events[0], asked, page)


@needs(Ability.SIGNED_WEBHOOKS)
class TestSignature:
    def test_by_another_secret_it_is_rejected(
        self, psp: PspUnderTest, adapter: PaymentProvider, event: bytes
    ) -> None:
        with pytest.raises(WebhookRejected):
            adapter.read_webhook(psp.sign(event, secret="a guess", at=psp.clock.now()))

    def test_at_the_address_of_another_merchant_account_it_is_rejected(
        self, psp: PspUnderTest, adapter: PaymentProvider, event: bytes
    ) -> None:
        delivery = psp.sign(event, at=psp.clock.now())

        with pytest.raises(WebhookRejected):
            adapter.read_webhook(replace(delivery, merchant_account=OTHER))

    @needs(Ability.REMOTE)
    def test_by_the_secret_of_another_merchant_account_it_is_rejected(
        self, psp: PspUnderTest, adapter: PaymentProvider, event: bytes
    ) -> None:
        with pytest.raises(WebhookRejected):
            adapter.read_webhook(psp.sign(event, secret=OTHER_SECRET, at=psp.clock.now()))

    def test_over_another_body_it_is_rejected(
        self, psp: PspUnderTest, adapter: PaymentProvider, event: bytes
    ) -> None:
        delivery = psp.sign(event, at=psp.clock.now())

        for altered in (event + b" ", event.replace(b"a", b"b"), event[:-1], b""):
            with pytest.raises(WebhookRejected):
                adapter.read_webhook(replace(delivery, body=altered))

    def test_one_that_is_missing_is_rejected(
        self, psp: PspUnderTest, adapter: PaymentProvider, event: bytes
    ) -> None:
        delivery = psp.sign(event, at=psp.clock.now())

        with pytest.raises(WebhookRejected):
            adapter.read_webhook(replace(delivery, headers={}))

    @pytest.mark.parametrize("value", ["", "x", "=", ",", "é", "\x00", "," * 9_999])
    def test_one_that_is_malformed_is_rejected(
        self, psp: PspUnderTest, adapter: PaymentProvider, event: bytes, value: str
    ) -> None:
        delivery = psp.sign(event, at=psp.clock.now())

        for name in delivery.headers:
            with pytest.raises(WebhookRejected):
                adapter.read_webhook(replace(delivery, headers={**delivery.headers, name: value}))

    def test_one_that_is_damaged_anywhere_is_rejected_or_still_says_the_same(
        self, psp: PspUnderTest, adapter: PaymentProvider, event: bytes
    ) -> None:
        delivery = psp.sign(event, at=psp.clock.now())
        sound = adapter.read_webhook(delivery)

        for name, value in delivery.headers.items():
            for at in range(len(value)):
                # What is not ASCII is allowed in a header, and compare_digest() refuses it in text.
                for damage in ("é", "", "0", "=", ","):
                    damaged = value[:at] + damage + value[at + 1 :]
                    headers = {**delivery.headers, name: damaged}
                    with suppress(WebhookRejected):
                        assert adapter.read_webhook(replace(delivery, headers=headers)) == sound

    def test_it_is_compared_in_constant_time(
        self,
        psp: PspUnderTest,
        adapter: PaymentProvider,
        event: bytes,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        compared: list[bytes] = []
        really = hmac.compare_digest

        def compare(one: Any, other: Any) -> bool:  # Any: text or bytes, as the adapter has them
            for each in (one, other):
                raw = each.encode() if isinstance(each, str) else bytes(each)
                compared.extend((raw, raw.hex().encode(), b64encode(raw)))
            return really(one, other)

        # Wherever a module has it by a name of its own.
        for module in list(sys.modules.values()):
            for name in [name for name, each in vars(module).items() if each is really]:
                monkeypatch.setattr(module, name, compare)

        forged = psp.sign(event, secret="a guess", at=psp.clock.now())
        with pytest.raises(WebhookRejected):
            adapter.read_webhook(forged)

        headers = "\n".join(forged.headers.values()).encode()
        assert any(len(each) >= 16 and each in headers for each in compared)

    @pytest.mark.parametrize("secrets", [[""], [" "], [SECRET, ""], ["\n", SECRET]])
    def test_a_blank_secret_is_refused_when_the_adapter_is_made(
        self, psp: PspUnderTest, secrets: list[str]
    ) -> None:
        with pytest.raises(ValueError, match="secret"):
            psp.adapter(secrets)

    @pytest.mark.parametrize("body", BROKEN_JSON, ids=lambda body: repr(body[:20]))
    def test_over_what_is_no_event_is_not_enough(
        self, psp: PspUnderTest, adapter: PaymentProvider, body: bytes
    ) -> None:
        with pytest.raises(WebhookRejected):
            adapter.read_webhook(psp.sign(body, at=psp.clock.now()))

    def test_over_a_list_of_no_events_names_no_session(
        self, psp: PspUnderTest, adapter: PaymentProvider
    ) -> None:
        with suppress(WebhookRejected):
            assert list(adapter.read_webhook(psp.sign(b"[]", at=psp.clock.now()))) == []

    def test_while_secrets_change_the_old_and_the_new_are_accepted(
        self, psp: PspUnderTest, event: bytes
    ) -> None:
        now, new, old = psp.clock.now(), "a new secret", SECRET
        adapter = psp.adapter([new, old])

        assert adapter.read_webhook(psp.sign(event, secret=new, at=now))
        assert adapter.read_webhook(psp.sign(event, secret=old, at=now))

    def test_after_secrets_have_changed_the_old_is_rejected(
        self, psp: PspUnderTest, event: bytes
    ) -> None:
        now, new, old = psp.clock.now(), "a new secret", SECRET
        adapter = psp.adapter([new])

        assert adapter.read_webhook(psp.sign(event, secret=new, at=now))
        with pytest.raises(WebhookRejected):
            adapter.read_webhook(psp.sign(event, secret=old, at=now))


@needs(Ability.SIGNED_WEBHOOKS, Ability.SIGNED_TIMES)
class TestSignedTime:
    @pytest.mark.parametrize("seconds", [-300, 300])
    def test_it_may_be_300_seconds_off(
        self, psp: PspUnderTest, adapter: PaymentProvider, event: bytes, seconds: int
    ) -> None:
        assert adapter.read_webhook(psp.sign(event, at=psp.clock.now() + seconds * SECOND))

    @pytest.mark.parametrize("seconds", [-(10**9), -301, 301, 10**9])
    def test_too_old_or_too_far_ahead_it_is_rejected(
        self, psp: PspUnderTest, adapter: PaymentProvider, event: bytes, seconds: int
    ) -> None:
        with pytest.raises(WebhookRejected):
            adapter.read_webhook(psp.sign(event, at=psp.clock.now() + seconds * SECOND))


def for_each_call(method: Method) -> pytest.MarkDecorator:
    """Ask about each of the calls that a method makes."""
    return for_each(
        ("call",), lambda facts: ((call,) for call in range(1, facts.calls[method] + 1))
    )


def for_each_outage(method: Method) -> pytest.MarkDecorator:
    """Ask about each outage, at each of the calls of a method."""
    anywhere = (Trouble.CALL_LOST, Trouble.RESPONSE_LOST)
    # None of these is for good: it passes, or an operator mends the key or the address.
    over_http = (
        Trouble.UNAUTHORIZED,
        Trouble.FORBIDDEN,
        Trouble.NOT_THE_API,
        Trouble.REDIRECTED,
        Trouble.TOO_MANY,
        Trouble.OUT_OF_ORDER,
    )
    return for_each(
        ("trouble", "call"),
        lambda facts: (
            (trouble, call)
            for trouble in (
                *anywhere,
                *(over_http if Ability.REMOTE in facts.abilities else ()),
            )
            for call in range(1, facts.calls[method] + 1)
        ),
    )


@needs(Ability.STAND_IN)
class TestOutage:
    @for_each_outage(Method.START)
    def test_a_page_is_made_once_all_the_same(
        self,
        psp: PspUnderTest,
        adapter: PaymentProvider,
        asked: HostedPageRequest,
        call: int,
        trouble: Trouble,
    ) -> None:
        psp.have(trouble, from_call=call)
        with pytest.raises(ProviderUnavailable):
            adapter.start(asked)

        psp.recover()
        psp.clock.advance(psp.facts.list_lag)

        page = adapter.start(asked)
        psp.clock.advance(psp.facts.list_lag)
        assert adapter.start(asked) == page
        assert psp.count_pages() == 1
        if Ability.IDEMPOTENCY_KEYS in psp.facts.abilities:
            assert psp.guests(MAIN) == {page.guest_reference}

    @for_each_outage(Method.OUTCOME)
    def test_a_card_is_told_once_it_is_over(
        self, psp: PspUnderTest, page: HostedPage, tell: Tell, call: int, trouble: Trouble
    ) -> None:
        psp.type_card(page, GuestCard.GOOD)
        outcome = tell()
        psp.have(trouble, from_call=call)
        with pytest.raises(ProviderUnavailable):
            tell()

        psp.recover()

        assert isinstance(outcome, CardCollected)
        assert tell() == outcome

    @for_each_outage(Method.CLOSE)
    def test_a_page_is_closed_once_it_is_over(
        self,
        psp: PspUnderTest,
        adapter: PaymentProvider,
        asked: HostedPageRequest,
        page: HostedPage,
        tell: Tell,
        call: int,
        trouble: Trouble,
    ) -> None:
        psp.have(trouble, from_call=call)
        with pytest.raises(ProviderUnavailable):
            adapter.close(asked, page)

        psp.recover()

        adapter.close(asked, page)
        assert tell() == PageClosed()

    @for_each_outage(Method.DISCARD)
    def test_a_token_is_discarded_once_it_is_over(
        self,
        psp: PspUnderTest,
        adapter: PaymentProvider,
        call: int,
        trouble: Trouble,
        collect: Collect,
    ) -> None:
        card = collect().card
        psp.have(trouble, from_call=call)
        with pytest.raises(ProviderUnavailable):
            adapter.discard(MAIN, card.guest_reference, card.token)

        psp.recover()

        adapter.discard(MAIN, card.guest_reference, card.token)
        assert psp.tokens(MAIN) == frozenset()


@needs(Ability.STAND_IN)
class TestAnswer:
    """What cannot be understood is no answer."""

    def test_to_start_that_is_nonsense_is_an_outage(
        self,
        psp: PspUnderTest,
        adapter: PaymentProvider,
        asked: HostedPageRequest,
        page: HostedPage,
    ) -> None:
        psp.clock.advance(psp.facts.list_lag)
        psp.have(Trouble.NONSENSE)
        with pytest.raises(ProviderUnavailable):
            adapter.start(asked)

        psp.recover()

        assert adapter.start(asked) == page

    @pytest.mark.parametrize("trouble", [Trouble.NONSENSE, Trouble.UNKNOWN_STATUS])
    @pytest.mark.parametrize("typed", [None, GuestCard.CHALLENGED, GuestCard.GOOD])
    def test_about_a_page_that_is_nonsense_or_unknown_is_an_outage(
        self,
        psp: PspUnderTest,
        page: HostedPage,
        tell: Tell,
        typed: GuestCard | None,
        trouble: Trouble,
    ) -> None:
        if typed is not None:
            psp.type_card(page, typed)
        outcome = tell()
        psp.have(trouble)
        with pytest.raises(ProviderUnavailable):
            tell()

        psp.recover()

        assert tell() == outcome

    @pytest.mark.parametrize("trouble", [Trouble.NONSENSE, Trouble.UNKNOWN_STATUS])
    @for_each_call(Method.CLOSE)
    def test_to_close_that_is_nonsense_or_unknown_is_an_outage(
        self,
        psp: PspUnderTest,
        adapter: PaymentProvider,
        asked: HostedPageRequest,
        page: HostedPage,
        tell: Tell,
        call: int,
        trouble: Trouble,
    ) -> None:
        psp.have(trouble, from_call=call)
        with pytest.raises(ProviderUnavailable):
            adapter.close(asked, page)

        psp.recover()

        adapter.close(asked, page)
        assert tell() == PageClosed()


@needs(Ability.STAND_IN)
class TestRefusedCall:
    """A call that the PSP refuses for good has done nothing.

    A later call of the same method may be refused when an earlier one has acted already. Then the
    adapter may say ProviderUnavailable; ProviderRefused would be untrue.
    """

    @for_each_call(Method.START)
    def test_makes_no_page(
        self, psp: PspUnderTest, adapter: PaymentProvider, asked: HostedPageRequest, call: int
    ) -> None:
        psp.have(Trouble.REFUSED, from_call=call)
        is_refused = refused(lambda: adapter.start(asked), call)
        assert psp.count_pages() == 0 or not is_refused

        psp.recover()

        assert adapter.start(replace(asked, attempt=2)).reference

    @for_each_call(Method.OUTCOME)
    def test_tells_nothing(
        self, psp: PspUnderTest, page: HostedPage, tell: Tell, call: int
    ) -> None:
        psp.type_card(page, GuestCard.GOOD)
        psp.have(Trouble.REFUSED, from_call=call)
        refused(tell, call)

        psp.recover()

        assert isinstance(tell(), CardCollected)

    @for_each_call(Method.CLOSE)
    def test_closes_no_page(
        self,
        psp: PspUnderTest,
        adapter: PaymentProvider,
        asked: HostedPageRequest,
        page: HostedPage,
        tell: Tell,
        call: int,
    ) -> None:
        psp.have(Trouble.REFUSED, from_call=call)
        is_refused = refused(lambda: adapter.close(asked, page), call)

        psp.recover()

        assert tell() == Pending() or not is_refused
        adapter.close(asked, page)
        assert tell() == PageClosed()

    @for_each_call(Method.DISCARD)
    def test_discards_no_token(
        self, psp: PspUnderTest, adapter: PaymentProvider, call: int, collect: Collect
    ) -> None:
        card = collect().card
        psp.have(Trouble.REFUSED, from_call=call)
        is_refused = refused(lambda: adapter.discard(MAIN, card.guest_reference, card.token), call)

        psp.recover()

        assert psp.tokens(MAIN) == {card.token} or not is_refused
        adapter.discard(MAIN, card.guest_reference, card.token)
        assert psp.tokens(MAIN) == frozenset()


def refused(ask: Callable[[], object], call: int) -> bool:
    """Ask in vain, and tell whether the adapter says that nothing was done.

    It has to say so when the first call of its method is refused.
    """
    with pytest.raises((ProviderRefused, ProviderUnavailable)) as raised:
        ask()
    is_refused = isinstance(raised.value, ProviderRefused)
    assert is_refused or call > 1
    return is_refused


@needs(Ability.STAND_IN, Ability.REMOTE)
class TestDeadline:
    """Every method ends within 5 seconds, whatever comes, and says that there was no answer."""

    def test_a_response_that_drips_or_never_comes_ends_each_method(
        self, psp: PspUnderTest, tmp_path: Path
    ) -> None:
        # Each call alone stays below the deadline wherever a method makes several: it is the
        # method that has one. An adapter without it gets a sound response in the end.
        def ask(number: int) -> None:
            method = list(Method)[number // 2]
            folder = tmp_path / str(number)
            folder.mkdir()
            with closing(type(psp)(folder)) as dripping:
                adapter = dripping.adapter()
                asked = a_request(dripping)
                page = adapter.start(asked)
                card = CardToken("token_of_nothing")
                methods: Mapping[Method, Callable[[], object]] = {
                    Method.START: lambda: adapter.start(replace(asked, attempt=2)),
                    Method.OUTCOME: lambda: adapter.outcome(asked, page, ()),
                    Method.CLOSE: lambda: adapter.close(asked, page),
                    Method.DISCARD: lambda: adapter.discard(MAIN, page.guest_reference, card),
                }
                calls = 1 if method is Method.DISCARD else dripping.facts.calls[method]
                if number % 2:
                    dripping.fall_silent()
                else:
                    dripping.drip(5.5 / calls)
                with pytest.raises(ProviderUnavailable):
                    methods[method]()

        at_once(2 * len(Method), ask)


@needs(Ability.REMOTE)
class TestMerchantAccountWithoutKeys:
    """It may have keys again: its sessions and discards wait."""

    def test_no_call_is_refused_for_good(
        self,
        adapter: PaymentProvider,
        asked: HostedPageRequest,
        page: HostedPage,
    ) -> None:
        elsewhere = replace(asked, merchant_account=NOBODYS)

        for ask in (
            lambda: adapter.start(elsewhere),
            lambda: adapter.outcome(elsewhere, page, ()),
            lambda: adapter.close(elsewhere, page),
            lambda: adapter.discard(NOBODYS, page.guest_reference, CardToken("token")),
        ):
            with pytest.raises(ProviderUnavailable):
                ask()

    def test_no_webhook_to_it_is_believed(
        self, psp: PspUnderTest, adapter: PaymentProvider, event: bytes
    ) -> None:
        delivery = psp.sign(event, at=psp.clock.now())

        with pytest.raises((ProviderUnavailable, WebhookRejected)):
            adapter.read_webhook(replace(delivery, merchant_account=NOBODYS))

    @pytest.mark.parametrize("secret", [SECRET, OTHER_SECRET])
    def test_an_address_without_one_means_the_account_default(
        self, psp: PspUnderTest, adapter: PaymentProvider, event: bytes, secret: str
    ) -> None:
        # Which has no keys here. No secret of another account stands in for it.
        delivery = psp.sign(event, secret=secret, at=psp.clock.now())

        with pytest.raises((ProviderUnavailable, WebhookRejected)):
            adapter.read_webhook(replace(delivery, merchant_account=None))


@needs(Ability.STAND_IN, Ability.REMOTE)
class TestIdentity:
    """None will do: not every PSP tells."""

    def test_a_merchant_is_told_the_same_each_time(
        self, psp: PspUnderTest, adapter: PaymentProvider
    ) -> None:
        told = adapter.identity(MAIN)

        psp.clock.advance(MINUTE)

        assert adapter.identity(MAIN) == told
        assert psp.adapter(["another secret"]).identity(MAIN) == told

    def test_another_merchant_is_told_from_it(
        self, psp: PspUnderTest, adapter: PaymentProvider
    ) -> None:
        told = [adapter.identity(account) for account in (MAIN, OTHER)]

        assert told == [None, None] or len({*told, None}) == 3

    def test_no_secret_is_told(self, psp: PspUnderTest, adapter: PaymentProvider) -> None:
        for account in (MAIN, OTHER):
            told = adapter.identity(account) or ""
            assert not any(secret in told for secret in (*psp.keys, SECRET, OTHER_SECRET))

    def test_nobody_is_told_without_keys(self, adapter: PaymentProvider) -> None:
        told = None
        with suppress(ProviderUnavailable):
            told = adapter.identity(NOBODYS)

        assert told is None

    @pytest.mark.parametrize("trouble", [each for each in Trouble if each.name != "UNKNOWN_STATUS"])
    def test_in_an_outage_nobody_else_is_told(
        self, psp: PspUnderTest, adapter: PaymentProvider, trouble: Trouble
    ) -> None:
        sound = adapter.identity(MAIN)
        psp.have(trouble)

        told = None
        with suppress(ProviderUnavailable, ProviderRefused):
            told = adapter.identity(MAIN)

        assert told in (None, sound)
        psp.recover()
        assert adapter.identity(MAIN) == sound


class TestPlugin:
    def test_it_has_a_name_that_settings_and_addresses_can_hold(self, psp: PspUnderTest) -> None:
        assert re.fullmatch("[a-z][a-z0-9_]*", psp.plugin.name)

    def test_its_page_has_room_for_the_consent_of_any_center(self, psp: PspUnderTest) -> None:
        assert psp.plugin.max_consent_length >= len(consent_for("Harbor Spa").text)


@needs(Ability.REMOTE)
class TestSettings:
    def test_nothing_set_is_no_psp(self, psp: PspUnderTest, tmp_path: Path) -> None:
        assert psp.plugin.read(surroundings(tmp_path, {})) is None

    def test_an_account_is_read_and_its_secrets_are_not_shown(
        self, psp: PspUnderTest, tmp_path: Path
    ) -> None:
        settings = psp.plugin.read(surroundings(tmp_path, set_for_default(psp)))

        assert settings is not None
        assert set(psp.plugin.accounts(settings) or [DEFAULT_MERCHANT_ACCOUNT]) == {
            DEFAULT_MERCHANT_ACCOUNT
        }
        for value in psp.settings.values():
            assert is_address(value) or value not in f"{settings!r} {settings}"

    def test_an_account_that_lacks_a_setting_is_refused_by_its_name(
        self, psp: PspUnderTest, tmp_path: Path
    ) -> None:
        given = set_for_default(psp)

        for missing in given if len(given) > 1 else ():
            rest = {name: value for name, value in given.items() if name != missing}
            with pytest.raises(SettingsError, match=missing):
                psp.plugin.read(surroundings(tmp_path, rest))

    def test_a_setting_that_is_refused_is_not_shown(
        self, psp: PspUnderTest, tmp_path: Path
    ) -> None:
        for name, value in set_for_default(psp).items():
            if is_address(value):
                continue
            given = {**set_for_default(psp), name: "hidden-in-here é\n"}
            try:
                shown = repr(psp.plugin.read(surroundings(tmp_path, given)))
            except SettingsError as error:
                shown = str(error)
            assert "hidden-in-here" not in shown


def is_address(value: str) -> bool:
    """Tell whether a setting is no secret: an address is shown to operators."""
    return value.startswith(("http://", "https://"))


def set_for_default(psp: PspUnderTest) -> Mapping[str, str]:
    """Give the environment in which the account default has what it needs."""
    own = psp.plugin.account_settings
    assert own is not None
    assert psp.settings.keys() == set(own.required), "state `settings` of an account"
    return {own.name(what): value for what, value in psp.settings.items()}


def surroundings(folder: Path, environment: Mapping[str, str]) -> Surroundings:
    """Give the surroundings of an installation on the internet."""
    return Surroundings(
        environment=environment,
        public_base_url="https://pay.example",
        database_file=folder / "cardonfile.db",
    )


@needs(Ability.STAND_IN)
class TestCalls:
    def test_reading_a_webhook_makes_none(
        self, psp: PspUnderTest, adapter: PaymentProvider, event: bytes
    ) -> None:
        psp.have(Trouble.CALL_LOST)

        assert adapter.read_webhook(psp.sign(event, at=psp.clock.now()))

    def test_each_other_method_makes_those_that_are_stated(
        self,
        psp: PspUnderTest,
        adapter: PaymentProvider,
        page: HostedPage,
        tell: Tell,
    ) -> None:
        # Else there would be calls that no test above has lost.
        def have_trouble_after(method: Method) -> None:
            psp.have(Trouble.CALL_LOST, from_call=psp.facts.calls[method] + 1)

        psp.type_card(page, GuestCard.GOOD)
        have_trouble_after(Method.START)
        another = a_request(psp, guest_id=OTHER_GUEST_ID)
        other_page = adapter.start(another)
        have_trouble_after(Method.CLOSE)
        adapter.close(another, other_page)
        have_trouble_after(Method.OUTCOME)
        outcome = tell()
        assert isinstance(outcome, CardCollected)
        have_trouble_after(Method.DISCARD)
        adapter.discard(MAIN, page.guest_reference, outcome.card.token)

    def test_one_that_is_lost_did_nothing_and_one_whose_response_is_lost_did_all(
        self, psp: PspUnderTest, adapter: PaymentProvider, asked: HostedPageRequest
    ) -> None:
        # Else the outages above would all be of one sort.
        psp.have(Trouble.CALL_LOST)
        with pytest.raises(ProviderUnavailable):
            adapter.start(asked)
        assert psp.count_pages() == 0
        psp.recover()

        psp.have(Trouble.RESPONSE_LOST, from_call=psp.facts.calls[Method.START])
        with pytest.raises(ProviderUnavailable):
            adapter.start(asked)
        assert psp.count_pages() == 1
