"""Tests that every PSP adapter must pass (`PaymentProvider` in domain/psps/payment_provider.py).

`docs/adding-a-provider.md` describes how to test an adapter.
"""

from __future__ import annotations

import hmac
import json
import re
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, fields, replace
from datetime import UTC, timedelta
from itertools import combinations, product
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs, urlsplit

import pytest

from adapters.psp.findings import Diagnosis, Finding
from adapters.psp.plugin import Surroundings
from adapters.psp.settings import PspSettingsError
from adapters.psp_suite.concurrency import at_once
from adapters.psp_suite.samples import CONSENT, GUEST_ID, OTHER_GUEST_ID, a_uuid
from adapters.psp_suite.sessions import (
    ADDRESS,
    MINUTE,
    SECOND,
    Session,
    a_request,
    for_each,
    methods_of,
    needs,
    watched,
)
from adapters.psp_suite.under_test import (
    MAIN,
    OTHER,
    OTHER_SECRET,
    SECRET,
    Ability,
    Facts,
    GuestCard,
    GuestDetails,
    Method,
    PspUnderTest,
    Trouble,
)
from domain.billing import COUNTRY_CODES, AvsResult, BillingInfo
from domain.consents.consent_text import MAX_TEXT_LENGTH
from domain.identifiers import (
    DEFAULT_MERCHANT_ACCOUNT,
    CardToken,
    CenterId,
    GuestId,
    GuestReference,
    MerchantAccount,
    TokenId,
)
from domain.psps.card import Card, CardAtPsp
from domain.psps.credibility import is_credible
from domain.psps.evidence import Evidence, EvidenceOrigin
from domain.psps.hosted_page import (
    CardCollected,
    Consent,
    HostedPage,
    HostedPageRequest,
    NoCardCollected,
    Outcome,
    PageClosed,
    Pending,
)
from domain.psps.payment_provider import (
    UNKNOWN_FOR,
    NotFound,
    PaymentProvider,
    ProviderRefused,
    ProviderUnavailable,
    WebhookRejected,
)
from domain.psps.webhook import WebhookDelivery, WebhookNotice

NOBODYS: Final = MerchantAccount("nobodys")
"""A merchant account without keys."""
JUNK: Final = ("", "{}", "null", "7", "[]", "<html>", "\x00", "\udc80", "é" * 4_096, "[" * 4_096)
NAMES: Final = (
    "Harbor *Spa* <b> & <script>Spa</script> &amp; &#42;",
    "_Harbor_ **Spa** `1` ~~2~~ # 3 [Spa](https://spa.example) https://www.spa.example",
    "{{ Harbor }} {% Spa %} $1 %s \\*",
)
"""Names of centers that contain HTML, Markdown or template syntax. Some PSPs would render these."""
_TIME: Final = re.compile("[0-9]{10,}")
UNKNOWN: Final = ("0", "?0")
"""Suffixes that turn a known reference into an unknown reference. An adapter must quote the
reference in a path.
"""
CLOSES: Final = ("close", "cancel", "expire", "void", "deactivate", "abort")
"""Names of actions in the paths of APIs: at some PSPs, a call to `/pages/REFERENCE/close` closes
the page. The tests append such a name to the reference of an open page. The result is an unknown
reference, but an adapter that did not quote it would close the open page.
"""
_BROKEN: Final = (b"", b"null", b"7", b"{", b"{}", b'{"type": "\xff"}', b"\xff\xfe")
BROKEN_JSON: Final = (*_BROKEN, b"[" * 100_000, b'{"x":' * 100_000)
BILLING: Final = replace(
    ADDRESS, first_name="Zoë", last_name="Null", email="billing@guests.example", phone="+49 30 123"
)
MAX_TRIES: Final = 5
"""The maximum number of times that a method may send the same call. More calls would be a burden on
a PSP in trouble.
"""
LATER_SECONDS: Final = 60.0
OUTAGES: Final = frozenset(
    {
        *(Trouble.CALL_LOST, Trouble.RESPONSE_LOST, Trouble.NONSENSE),
        *(Trouble.TOO_MANY, Trouble.OUT_OF_ORDER),
    }
)
"""Kinds of trouble that are not related to the keys with which a call was made."""

Json: TypeAlias = Any  # JSON, as in requests and responses

_ODD: Final[Mapping[type, tuple[Json, ...]]] = {
    bool: ("x", None),
    int: (-1, 77, 10**18, "x", None),
    str: ("", "\x00", "x" * 9_999, 7, None, "0001-01-01T00:00:00+14:00"),
    type(None): ("x", 7),
}
"""Wrong values by type: each of them replaces a value of this type in a response."""
_ODD_TEXT: Final[Mapping[type, tuple[Json, ...]]] = {str: ("\x00", "half-done", "x" * 999)}
"""Texts that are not a status of any PSP."""


class TestStart:
    def test_a_created_page_has_all_its_values(self, session: Session) -> None:
        assert session.page.reference
        assert session.page.address.startswith(("https://", "http://"))
        assert session.page.guest_reference

    # Shows F2.
    def test_creating_a_page_twice_with_the_same_key_returns_the_same_page(
        self, psp: PspUnderTest, session: Session, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        psp.clock.advance(11 * MINUTE)
        slept: list[float] = []
        monkeypatch.setattr(time, "sleep", slept.append)

        assert session.adapter.start(session.request) == session.page
        assert psp.adapter().start(session.request) == session.page
        assert not any(slept), "an adapter may wait only before it repeats a failed call"

    @needs(Ability.STAND_IN)
    def test_the_same_key_returns_the_same_page_even_after_a_card_was_typed_on_it(
        self, session: Session
    ) -> None:
        session.type_card()
        session.psp.clock.advance(session.psp.facts.list_lag)

        assert session.adapter.start(session.request).reference == session.page.reference

    def test_each_attempt_of_a_session_has_its_own_page(self, session: Session) -> None:
        pages = [each.page for each in (session, session.next_attempt(), session.another())]

        assert len({page.reference for page in pages}) == 3
        # A form may have the same address on every page.
        assert len({(page.address, *sorted(page.fields.items())) for page in pages}) == 3

    @pytest.mark.parametrize("minutes", [15, 120])
    def test_a_page_does_not_expire_before_the_requested_time(
        self, psp: PspUnderTest, adapter: PaymentProvider, minutes: int
    ) -> None:
        request = a_request(psp, live_until=psp.clock.now() + minutes * MINUTE)
        longest = psp.facts.page_lifetime or 24 * 60 * MINUTE
        latest = request.begun_at + longest - psp.facts.resolution

        assert adapter.start(request).ends_at >= min(request.live_until, latest)

    @pytest.mark.parametrize("guest_name", ["Zoë Null", ""])
    def test_a_page_can_be_created_without_details_of_the_guest(
        self, psp: PspUnderTest, adapter: PaymentProvider, guest_name: str
    ) -> None:
        assert adapter.start(
            a_request(psp, billing_info=None, avs=False, guest_name=guest_name, guest_email=None)
        ).reference

    @needs(Ability.STAND_IN, Ability.IDEMPOTENCY_KEYS)
    def test_concurrent_requests_with_the_same_key_create_one_page(
        self, psp: PspUnderTest, adapter: PaymentProvider
    ) -> None:
        request = a_request(psp)

        def start(_: int) -> HostedPage | None:
            try:
                return adapter.start(request)
            except ProviderUnavailable:
                return None

        pages = at_once(4, start)

        assert set(pages) <= {None, adapter.start(request)}
        assert psp.count_pages() == 1
        assert len(psp.guests(MAIN)) == 1


def shows_as_stated(psp: PspUnderTest, page: HostedPage, consent: Consent) -> bool:
    """Return whether the page shows or omits the consent as the PSP's capabilities state.

    If `Capabilities.shows_consent` is set, the page must contain the whole text. If not, the page
    must not contain the whole text.
    """
    return (consent.text in psp.read_page(page)) is psp.plugin.capabilities.shows_consent


@needs(Ability.STAND_IN)
class TestPage:
    def test_a_page_shows_a_consent_with_the_maximum_length(self, session: Session) -> None:
        assert shows_as_stated(session.psp, session.page, session.request.consent)
        longest = session.psp.plugin.capabilities.max_consent_length or MAX_TEXT_LENGTH
        consent = Consent(version="long", text="a" * (longest - 1) + "z")

        assert shows_as_stated(session.psp, session.another(consent=consent).page, consent)

    @pytest.mark.parametrize("name", NAMES)
    def test_a_page_shows_markup_in_the_consent_as_text(
        self, psp: PspUnderTest, session: Session, name: str
    ) -> None:
        consent = Consent(version="marked up", text=f"You allow {name} to charge the card.")

        page = session.another(center_name=name, consent=consent).page

        assert shows_as_stated(psp, page, consent)

    def test_a_page_leads_to_the_return_address_or_the_cancel_address_of_the_request(
        self, session: Session
    ) -> None:
        ways_out = session.psp.ways_out(session.page)

        # A PSP may add to the query. A second "?" would be read as part of the last value.
        for way_out, requested in (
            (ways_out.with_card, session.request.return_uri),
            (ways_out.without, session.request.cancel_uri),
        ):
            assert way_out.partition("?")[0] == requested.partition("?")[0]
            query = parse_qs(urlsplit(way_out).query, strict_parsing=True)
            assert query.items() >= parse_qs(urlsplit(requested).query).items()

    def test_a_page_accepts_a_card_until_the_page_expires(
        self, psp: PspUnderTest, session: Session
    ) -> None:
        psp.clock.advance(session.page.ends_at - psp.clock.now() - SECOND)
        assert session.outcome() == Pending()

        session.collect()

    def test_a_page_that_has_expired_does_not_accept_a_card(
        self, psp: PspUnderTest, session: Session
    ) -> None:
        psp.clock.advance(session.page.ends_at - psp.clock.now())

        session.type_card()
        session.close()

        assert session.outcome() == PageClosed()
        assert psp.tokens(MAIN) == frozenset()

    @pytest.mark.parametrize("name", ["Zoë Null", ""])
    def test_a_page_receives_the_known_details_of_the_guest(
        self, session: Session, name: str
    ) -> None:
        named = session.another(guest_name=name)
        expected = GuestDetails(name=name or None, email=named.request.guest_email, language="en")

        assert session.psp.guest_details(named.page) in (None, expected)

    # Shows S28.
    def test_a_page_receives_no_email_address_if_the_request_has_no_email_address(
        self, session: Session
    ) -> None:
        unnamed = session.another(guest_name="", guest_email=None)

        details = session.psp.guest_details(unnamed.page)

        assert details is None or details.email is None

    # Shows S28.
    def test_a_page_does_not_reuse_the_billing_address_of_an_earlier_page(
        self, psp: PspUnderTest, session: Session
    ) -> None:
        guest = session.page.guest_reference
        later = session.another(guest_reference=guest, billing_info=None)

        assert psp.billing_info(later.page) == BillingInfo()

    def test_a_page_is_in_the_language_of_its_consent(
        self, psp: PspUnderTest, session: Session
    ) -> None:
        for locale in sorted(psp.plugin.capabilities.locales):
            consent = Consent(
                version="1", text=f"{locale}: Zusätzlich, 同意, موافق", language=locale
            )
            page = session.another(consent=consent).page

            details = psp.guest_details(page)
            assert details is None or details.language == locale
            assert shows_as_stated(psp, page, consent)

    @pytest.mark.parametrize("avs", [True, False])
    @pytest.mark.parametrize("name", [field.name for field in fields(BillingInfo)])
    def test_each_field_of_the_billing_address_can_be_sent_to_the_page_without_the_others(
        self, psp: PspUnderTest, session: Session, name: str, avs: bool
    ) -> None:
        billing_info = BillingInfo(**{name: getattr(BILLING, name)})

        sent = asdict(psp.billing_info(session.another(billing_info=billing_info, avs=avs).page))

        if name in psp.facts.address_fields:
            assert sent[name] == getattr(billing_info, name)

    def test_a_page_accepts_a_billing_address_in_any_country(
        self, psp: PspUnderTest, session: Session
    ) -> None:
        for country in sorted(COUNTRY_CODES) if psp.facts.address_fields else ():
            page = session.another(billing_info=replace(BILLING, country_code=country)).page
            sent = asdict(psp.billing_info(page))
            for name in psp.facts.address_fields:
                expected = country if name == "country_code" else getattr(BILLING, name)
                assert sent[name] == expected, country


def page_in_the_end(session: Session, **changes: Any) -> HostedPage:
    """Start a page for a guest who is new to the PSP, and return the page.

    The first call may raise NotFound, because the PSP may not know an object yet. The call is
    therefore repeated after UNKNOWN_FOR. If the PSP still does not know the object, the adapter
    must then treat the object as gone.
    """
    psp = session.psp
    request = a_request(psp, live_until=psp.clock.now() + 120 * MINUTE, **changes)
    with suppress(NotFound):
        session.adapter.start(request)
    psp.clock.advance(UNKNOWN_FOR)
    return session.adapter.start(request)


class TestGuestReference:
    def test_a_guest_known_to_the_psp_keeps_the_same_guest_reference(
        self, session: Session
    ) -> None:
        reference = session.page.guest_reference

        assert session.another(guest_reference=reference).page.guest_reference == reference

    @needs(Ability.NAMES_GUESTS)
    @pytest.mark.parametrize("was_known", [True, False])
    def test_a_guest_unknown_to_the_psp_gets_a_new_guest_reference(
        self, psp: PspUnderTest, session: Session, was_known: bool
    ) -> None:
        reference = session.page.guest_reference if was_known else GuestReference("guest_of_nobody")
        if was_known:
            psp.forget_guest(MAIN, reference)

        page = page_in_the_end(session, guest_reference=reference)

        assert page.guest_reference not in ("", reference)

    # Shows S28.
    @pytest.mark.parametrize(
        "changes",
        [
            {"guest_id": OTHER_GUEST_ID},
            {"center_id": CenterId(a_uuid(2))},
            {"guest_name": "", "guest_email": None},
        ],
    )
    def test_requests_for_another_guest_or_center_or_without_a_name_get_another_guest_reference(
        self, session: Session, changes: Mapping[str, Any]
    ) -> None:
        assert session.another(**changes).page.guest_reference != session.page.guest_reference

    @needs(Ability.NAMES_GUESTS)
    @pytest.mark.parametrize("is_known", [True, False])
    def test_a_guest_has_a_different_guest_reference_at_each_merchant_account(
        self, session: Session, is_known: bool
    ) -> None:
        reference = session.page.guest_reference if is_known else None

        there = page_in_the_end(session, merchant_account=OTHER, guest_reference=reference)

        assert there.guest_reference != session.page.guest_reference


class TestOutcome:
    def test_the_outcome_of_a_page_is_pending_until_a_card_is_typed(self, session: Session) -> None:
        assert session.outcome() == Pending()

    @pytest.mark.parametrize("suffix", UNKNOWN)
    def test_a_page_unknown_to_the_psp_does_not_count_as_closed(
        self, session: Session, suffix: str
    ) -> None:
        unknown = replace(session.page, reference=session.page.reference + suffix)

        # The PSP may not know the page yet. Any other exception would keep its session open for
        # ever.
        with suppress(NotFound):
            assert session.adapter.outcome(session.request, unknown, ()) == Pending()

    @pytest.mark.parametrize("origin", EvidenceOrigin)
    def test_forged_evidence_has_no_effect(self, session: Session, origin: EvidenceOrigin) -> None:
        forged = [
            json.dumps(dict.fromkeys(session.adapter.return_parameters, value))
            for value in ("", "succeeded", session.page.reference, "x" * 4_000)
        ]
        evidence = evidence_of(session.psp, origin, *JUNK, *forged)

        assert session.adapter.outcome(session.request, session.page, evidence) == Pending()
        for each in evidence:
            assert session.adapter.outcome(session.request, session.page, [each]) == Pending()


def evidence_of(psp: PspUnderTest, origin: EvidenceOrigin, *contents: str) -> Sequence[Evidence]:
    now = psp.clock.now()
    return [Evidence(origin=origin, content=content, received_at=now) for content in contents]


def reported(facts: Facts) -> Sequence[GuestCard]:
    """Return the cases for tests of evidence.

    If only evidence reports the PSP's outcomes, the only case is a good card. If the PSP can be
    asked for the outcome, there are no cases, so the tests are left out.
    """
    return () if Ability.TELLS_OUTCOME in facts.abilities else (GuestCard.GOOD,)


@needs(Ability.STAND_IN)
class TestEvidence:
    """Tests of the evidence of a PSP that cannot be asked for the outcome."""

    @for_each("card", reported)
    def test_the_content_of_a_webhook_has_no_effect_if_a_browser_sends_it(
        self, session: Session, card: GuestCard
    ) -> None:
        session.type_card(card)
        evidence = session.psp.evidence(session.page)
        forged = [
            replace(each, origin=EvidenceOrigin.RETURN)
            for each in evidence
            if each.origin is EvidenceOrigin.WEBHOOK
        ]

        assert session.adapter.outcome(session.request, session.page, forged) == Pending()

    @for_each("card", reported)
    def test_evidence_about_an_earlier_page_does_not_affect_the_next_page(
        self, session: Session, card: GuestCard
    ) -> None:
        session.type_card(card)
        evidence = session.psp.evidence(session.page)
        following = session.next_attempt()

        told = session.adapter.outcome(following.request, following.page, evidence)

        assert told == Pending()

    @for_each("card", reported)
    def test_the_outcome_does_not_depend_on_the_order_of_the_evidence(
        self, session: Session, card: GuestCard
    ) -> None:
        session.type_card(GuestCard.REFUSED)
        outcome = session.after_a_refused_card().collect(card)
        if Ability.SECOND_CARD in session.psp.facts.abilities:
            evidence = session.psp.evidence(session.page)[::-1]

            assert session.adapter.outcome(session.request, session.page, evidence) == outcome

    @needs(Ability.SECOND_CARD, Ability.CLOSES_PAGES)
    @for_each("card", reported)
    def test_a_closed_page_stays_closed_if_an_earlier_webhook_arrives_late(
        self, session: Session, card: GuestCard
    ) -> None:
        session.type_card(GuestCard.REFUSED)
        session.close()
        session.type_card(card)
        evidence = session.psp.evidence(session.page)[::-1]

        outcome = session.adapter.outcome(session.request, session.page, evidence)

        assert isinstance(outcome, PageClosed), "webhooks may arrive in any order"

    @needs(Ability.JSON)
    @for_each("card", reported)
    def test_a_damaged_webhook_raises_only_exceptions_that_the_port_declares(
        self, session: Session, card: GuestCard
    ) -> None:
        session.type_card(card)

        for damaged in damages(session.event()):
            told_by(session, damaged)

    # Where a refused card ends the page, an unknown code may mean a refusal.
    @needs(Ability.JSON, Ability.SECOND_CARD)
    @for_each("card", reported)
    def test_an_unknown_value_in_a_webhook_does_not_close_a_page(
        self, session: Session, card: GuestCard
    ) -> None:
        session.type_card(GuestCard.CHALLENGED)
        challenged, with_card = session.event(), session.another()
        with_card.type_card(card)

        for each, sound in ((session, challenged), (with_card, with_card.event())):
            for damaged in damages(sound, _ODD_TEXT):
                assert not isinstance(told_by(each, damaged), PageClosed), damaged

    @needs(Ability.JSON)
    @for_each("field", lambda facts: facts.nullable if reported(facts) else ())
    def test_a_webhook_with_a_null_field_still_reports_the_token_of_the_card(
        self, session: Session, field: str
    ) -> None:
        session.type_card()
        sound = told_by(session, session.event())
        # Another kind of event, or the return of the browser, may report the card.
        if not isinstance(sound, CardCollected):
            pytest.skip("the first of `telling_events` does not report the card")

        outcome = told_by(session, json.dumps(without(field, json.loads(session.event()))).encode())

        assert isinstance(outcome, CardCollected | NoCardCollected), "this will not change"
        assert outcome.token == sound.token
        assert is_credible(outcome, session.page)


def read_again(session: Session, card: Card, *, like: Card) -> Card | None:
    """Read a card at the PSP, and return it.

    Facts that the PSP does not report are taken from `like`.
    """
    found = session.read(card).card
    return None if found is None else found.with_facts_of(like)


def told_by(session: Session, body: bytes) -> Outcome | None:
    """Return the outcome that a signed webhook reports, or None if it does not report an outcome."""
    psp, adapter = session.psp, session.adapter
    with suppress(WebhookRejected, ProviderUnavailable):
        contents = [each.content for each in adapter.read_webhook(signed(psp, body))]
        evidence = evidence_of(psp, EvidenceOrigin.WEBHOOK, *contents)
        return adapter.outcome(session.request, session.page, evidence)
    return None


@needs(Ability.STAND_IN)
class TestCard:
    @pytest.mark.parametrize("typed", [GuestCard.GOOD, GuestCard.ANOTHER_GOOD])
    def test_every_field_of_a_collected_card_is_reported(
        self, session: Session, typed: GuestCard
    ) -> None:
        outcome = session.collect(typed, expiry=(9, 2031))

        printed, card = session.psp.facts.cards[typed], outcome.card
        assert card == Card(
            guest_reference=session.page.guest_reference,
            token=card.token,
            fingerprint=card.fingerprint,
            card_logo=printed.card_logo,
            last_four=printed.number[-4:],
            expiry_month=9,
            expiry_year=2031,
            funding=printed.funding,
            issuer_country=card.issuer_country,
            wallet=None,
        )
        assert session.psp.tokens(MAIN) == {card.token}
        assert card.fingerprint
        # There was no challenge. The value is None if the PSP does not report it.
        assert outcome.authenticated in (False, None)
        assert printed.number not in repr(outcome)

    def test_the_outcome_of_a_page_does_not_change_after_its_card_was_stored(
        self, psp: PspUnderTest, session: Session
    ) -> None:
        psp.clock.advance(5 * MINUTE)
        typed_at = psp.clock.now()
        session.type_card()
        psp.clock.advance(2 * MINUTE)

        outcome = session.outcome()

        assert isinstance(outcome, CardCollected)
        # The time is exact to the unit of the PSP's times, without further rounding.
        assert timedelta(0) <= typed_at - outcome.collected_at < psp.facts.resolution
        assert outcome.collected_at.tzinfo is UTC, "a time must be in UTC: use .astimezone(UTC)"
        psp.clock.advance(24 * 60 * MINUTE)
        assert session.outcome() == outcome

    @needs(Ability.CHECKS_ADDRESSES)
    @pytest.mark.parametrize(
        ("avs", "typed", "result"),
        [
            (True, GuestCard.GOOD, AvsResult.MATCH),
            (True, GuestCard.WRONG_ADDRESS, AvsResult.MISMATCH),
            (False, GuestCard.GOOD, AvsResult.NOT_CHECKED),
        ],
    )
    @pytest.mark.parametrize("billing_info", [ADDRESS, None])
    def test_the_result_of_the_address_check_is_reported(
        self,
        session: Session,
        avs: bool,
        typed: GuestCard,
        result: AvsResult,
        billing_info: BillingInfo | None,
    ) -> None:
        # Without `billing_info`, the guest types the address on the page.
        checked = session.another(avs=avs, billing_info=billing_info)

        assert checked.collect(typed).avs is result

    def test_a_guest_can_type_another_card_after_a_refused_card(
        self, psp: PspUnderTest, session: Session
    ) -> None:
        session.type_card(GuestCard.REFUSED)
        assert session.outcome() == session.after_refusal(GuestCard.REFUSED)
        assert psp.tokens(MAIN) == frozenset()

        card = session.after_a_refused_card().collect().card
        assert card.last_four == psp.facts.cards[GuestCard.GOOD].number[-4:]

    def test_the_outcome_of_a_page_is_pending_while_a_3ds_challenge_is_open(
        self, session: Session
    ) -> None:
        session.type_card(GuestCard.CHALLENGED)
        assert session.outcome() == Pending()
        assert session.psp.tokens(MAIN) == frozenset()

        session.psp.answer_challenge(session.page, confirmed=True)

        outcome = session.outcome()
        assert isinstance(outcome, CardCollected)
        assert session.psp.tokens(MAIN) == {outcome.card.token}
        # The value is None if the PSP does not report it.
        assert outcome.authenticated in (True, None)

    def test_a_guest_can_type_another_card_after_a_failed_3ds_challenge(
        self, session: Session
    ) -> None:
        session.type_card(GuestCard.CHALLENGED)
        session.psp.answer_challenge(session.page, confirmed=False)
        assert session.outcome() == session.after_refusal(GuestCard.CHALLENGED)
        assert session.psp.tokens(MAIN) == frozenset()

        session.after_a_refused_card().collect()

    @needs(Ability.SECOND_CARD, Ability.CLOSES_PAGES)
    def test_a_page_stays_pending_if_a_3ds_challenge_follows_a_refused_card(
        self, session: Session
    ) -> None:
        session.type_card(GuestCard.REFUSED)
        session.type_card(GuestCard.CHALLENGED)
        assert isinstance(session.outcome(), Pending)

        session.close()

        assert isinstance(session.outcome(), PageClosed)

    # Shows I5.
    def test_a_card_typed_on_another_page_of_the_guest_is_not_reported(
        self, session: Session
    ) -> None:
        session.another(guest_reference=session.page.guest_reference).collect()

        assert session.outcome() == Pending()

    # Shows I5.
    def test_a_card_is_stored_at_the_merchant_account_of_its_page(
        self, psp: PspUnderTest, session: Session
    ) -> None:
        there = session.another(merchant_account=OTHER)
        card = there.collect().card

        assert psp.tokens(MAIN) == frozenset()
        assert psp.tokens(OTHER) == {card.token}
        there.discard(card)
        assert psp.tokens(OTHER) == frozenset()

    def test_forged_evidence_does_not_hide_a_card(
        self, psp: PspUnderTest, session: Session
    ) -> None:
        session.type_card()
        junk = [each for origin in EvidenceOrigin for each in evidence_of(psp, origin, *JUNK)]
        evidence = [*junk, *psp.evidence(session.page), *junk]

        outcome = session.adapter.outcome(session.request, session.page, evidence)

        assert outcome == session.outcome()

    def test_the_fingerprint_depends_only_on_the_card_number(self, session: Session) -> None:
        first = session.collect(expiry=(9, 2031)).card
        second = session.another(guest_id=OTHER_GUEST_ID).collect(expiry=(1, 2033)).card
        another = session.another(guest_id=GUEST_ID).collect(GuestCard.ANOTHER_GOOD).card

        assert first.fingerprint == second.fingerprint != another.fingerprint
        # Ten thousand cards of a brand share their last four digits.
        shown = {first.last_four, f"{first.card_logo}{first.last_four}"}
        assert re.sub(r"\W|_", "", first.fingerprint) not in shown

    @pytest.mark.parametrize("expiry", [(1, 2027), (10, 2030), (12, 2099)])
    def test_the_expiry_date_of_a_card_is_reported_as_typed(
        self, session: Session, expiry: tuple[int, int]
    ) -> None:
        card = session.collect(expiry=expiry).card

        assert (card.expiry_month, card.expiry_year) == expiry

    @for_each("card", lambda facts: facts.cards.keys() & {GuestCard.UNCHECKED_ADDRESS})
    def test_a_billing_address_that_the_bank_cannot_check_counts_as_not_checked(
        self, session: Session, card: GuestCard
    ) -> None:
        checked = session.another(avs=True, billing_info=ADDRESS)

        assert checked.collect(card).avs is AvsResult.NOT_CHECKED

    def test_a_page_that_the_guest_left_still_accepts_a_card_unless_the_psp_closed_it(
        self, session: Session
    ) -> None:
        session.psp.leave(session.page)
        left = session.outcome()
        session.type_card()

        # Some PSPs end the page of a guest who leaves.
        assert left in (Pending(), PageClosed())
        if left == Pending():
            assert isinstance(session.outcome(), CardCollected)
        else:
            assert session.outcome() == left
            assert session.psp.tokens(MAIN) == frozenset()

    def test_several_threads_can_use_one_adapter(self, psp: PspUnderTest, session: Session) -> None:
        sessions = [session.another() for _ in range(6)]
        for each in sessions[::2]:
            each.type_card()

        outcomes = at_once(len(sessions), lambda number: sessions[number].outcome())

        assert outcomes == [session.outcome() for session in sessions]
        assert [isinstance(outcome, CardCollected) for outcome in outcomes] == [True, False] * 3


@needs(Ability.STAND_IN, Ability.COUNTS_REFUSALS)
class TestRefusedCards:
    def test_refused_cards_are_counted_in_every_later_outcome(self, session: Session) -> None:
        for _ in range(2):
            session.type_card(GuestCard.REFUSED)
        assert session.outcome().refused_cards == 2

        session.type_card(GuestCard.CHALLENGED)
        # The PSP may no longer report the refused card's code.
        assert replace(session.outcome(), refusal_code=None) == Pending(refused_cards=2)

        session.psp.answer_challenge(session.page, confirmed=True)
        assert session.outcome().refused_cards == 2

    def test_the_outcome_of_a_closed_page_counts_its_refused_cards(self, session: Session) -> None:
        session.type_card(GuestCard.REFUSED)
        session.close()

        assert replace(session.outcome(), refusal_code=None) == PageClosed(refused_cards=1)


@needs(Ability.CLOSES_PAGES)
class TestClose:
    def test_closing_a_page_twice_has_the_same_effect_as_closing_it_once(
        self, session: Session
    ) -> None:
        session.close()
        session.close()

        assert session.outcome() == PageClosed()
        assert session.outcome() == PageClosed()

    @pytest.mark.parametrize("suffix", [*UNKNOWN, *(f"/{each}?" for each in CLOSES)])
    def test_closing_a_page_unknown_to_the_psp_does_not_close_another_page(
        self, session: Session, suffix: str
    ) -> None:
        unknown = replace(session.page, reference=session.page.reference + suffix)

        with suppress(NotFound):
            session.adapter.close(session.request, unknown)

        assert session.outcome() == Pending()

    def test_a_page_is_closed_at_its_own_merchant_account(self, session: Session) -> None:
        there = session.another(merchant_account=OTHER)
        assert there.outcome() == Pending()

        there.close()

        assert there.outcome() == PageClosed()

    def test_closing_a_page_does_not_close_the_page_of_the_next_attempt(
        self, session: Session
    ) -> None:
        following = session.next_attempt()

        session.close()

        assert following.outcome() == Pending()


@needs(Ability.STAND_IN, Ability.CLOSES_PAGES)
class TestClosedPage:
    def test_a_closed_page_does_not_accept_a_card(
        self, psp: PspUnderTest, session: Session
    ) -> None:
        session.close()

        session.type_card()

        assert session.outcome() == PageClosed()
        assert psp.tokens(MAIN) == frozenset()

    def test_a_3ds_challenge_cannot_be_passed_on_a_closed_page(
        self, psp: PspUnderTest, session: Session
    ) -> None:
        session.type_card(GuestCard.CHALLENGED)
        session.close()

        psp.answer_challenge(session.page, confirmed=True)

        assert session.outcome() == PageClosed()
        assert psp.tokens(MAIN) == frozenset()

    def test_closing_a_page_does_not_delete_its_collected_card(
        self, psp: PspUnderTest, session: Session
    ) -> None:
        outcome = session.collect()

        session.close()

        assert session.outcome() == outcome
        assert psp.tokens(MAIN) == {outcome.card.token}


class TestDiscard:
    def test_discarding_a_token_unknown_to_the_psp_raises_not_found(self, session: Session) -> None:
        unknown = CardToken("token_of_nothing")

        for guest in (session.page.guest_reference, GuestReference("guest_of_nobody")):
            with pytest.raises(NotFound):
                session.adapter.discard(MAIN, guest, unknown)


@needs(Ability.FORGETS_GUESTS)
class TestForgetGuest:
    def test_forgetting_a_guest_unknown_to_the_psp_raises_not_found(self, session: Session) -> None:
        with pytest.raises(NotFound):
            session.adapter.forget_guest(MAIN, GuestReference("guest_of_nobody"))


@needs(Ability.STAND_IN, Ability.FORGETS_GUESTS)
class TestForgottenGuest:
    def test_forgetting_a_guest_deletes_every_card_of_the_guest(
        self, psp: PspUnderTest, session: Session
    ) -> None:
        kept = session.another(guest_id=OTHER_GUEST_ID).collect(GuestCard.ANOTHER_GOOD).card
        session.collect()
        guest = session.page.guest_reference
        session.another(guest_reference=guest).collect(GuestCard.ANOTHER_GOOD)

        session.forget_guest()
        with suppress(NotFound):
            session.forget_guest()

        assert psp.guests(MAIN) == {kept.guest_reference}
        assert psp.tokens(MAIN) == {kept.token}

    def test_forgetting_a_guest_affects_no_other_guest_or_merchant_account(
        self, psp: PspUnderTest, session: Session
    ) -> None:
        card = session.collect().card

        for account, suffix in ((OTHER, ""), *((MAIN, each) for each in UNKNOWN)):
            with suppress(NotFound):
                session.adapter.forget_guest(account, GuestReference(card.guest_reference + suffix))

        assert psp.guests(MAIN) == {card.guest_reference}
        assert psp.tokens(MAIN) == {card.token}

    @needs(Ability.TELLS_OUTCOME)
    def test_the_page_of_a_forgotten_guest_does_not_report_the_deleted_card(
        self, session: Session
    ) -> None:
        session.type_card()
        session.forget_guest()

        assert session.outcome() in (Pending(), PageClosed())

    def test_discarding_a_card_of_a_forgotten_guest_succeeds_or_raises_not_found(
        self, session: Session
    ) -> None:
        card = session.collect().card
        session.forget_guest()

        with suppress(NotFound):
            session.discard(card)


@needs(Ability.STAND_IN)
class TestDiscardedToken:
    def test_discarding_a_token_repeatedly_deletes_only_that_token(self, session: Session) -> None:
        kept = session.another().collect(GuestCard.ANOTHER_GOOD).card
        card = session.collect().card

        session.discard(card)
        with suppress(NotFound):
            session.discard(card)

        assert session.psp.tokens(MAIN) == {kept.token}

    def test_discarding_a_token_affects_no_other_token_or_merchant_account(
        self, psp: PspUnderTest, session: Session
    ) -> None:
        card = session.collect().card

        for account, suffix in ((OTHER, ""), *((MAIN, each) for each in UNKNOWN)):
            with suppress(NotFound):
                token = CardToken(card.token + suffix)
                session.adapter.discard(account, card.guest_reference, token)

        assert psp.tokens(MAIN) == {card.token}

    # Shows F11.
    @needs(Ability.TELLS_OUTCOME)
    def test_the_page_of_a_discarded_token_does_not_report_the_token_again(
        self, psp: PspUnderTest, session: Session
    ) -> None:
        session.discard(session.collect().card)

        assert session.outcome() in (Pending(), PageClosed())
        # A PSP may attach a card to its guest some time after it was typed.
        psp.clock.advance(session.page.ends_at - psp.clock.now() + 5 * MINUTE)
        assert session.outcome() == PageClosed()

    def test_a_discarded_card_may_be_added_again(self, psp: PspUnderTest, session: Session) -> None:
        card = session.collect().card
        session.discard(card)
        psp.clock.advance(MINUTE)

        again = session.another(guest_reference=card.guest_reference).collect()

        assert again.card.fingerprint == card.fingerprint
        assert psp.tokens(MAIN) == {again.card.token}
        assert timedelta(0) <= psp.clock.now() - again.collected_at < psp.facts.resolution


@needs(Ability.STAND_IN, Ability.READS_CARDS)
class TestReadCard:
    def test_reading_a_stored_card_returns_the_details_that_its_page_reported(
        self, psp: PspUnderTest, session: Session
    ) -> None:
        card = session.collect().card
        psp.clock.advance(MINUTE)

        reading = session.read(card)

        assert reading.card is not None
        assert reading.card.with_facts_of(card) == card
        assert abs(psp.clock.now() - reading.read_at) <= SECOND

    @needs(Ability.REMOTE)
    def test_the_time_in_read_at_is_not_later_than_the_request_for_the_card(
        self, psp: PspUnderTest, session: Session
    ) -> None:
        card, asked_at = session.collect().card, psp.clock.now()

        def arrive_late(call: int, body: bytes) -> bytes:
            if call == psp.facts.calls[Method.READ_CARD]:
                psp.clock.advance(MINUTE)
            return body

        psp.change_bodies(arrive_late)

        # A webhook that arrived in the meantime may report a later change.
        assert session.read(card).read_at <= asked_at

    def test_reading_a_card_returns_the_new_number_and_expiry_date_after_the_bank_changed_them(
        self, psp: PspUnderTest, session: Session
    ) -> None:
        untouched = session.another(guest_id=OTHER_GUEST_ID).collect().card
        card = session.collect().card
        psp.update_card(card, GuestCard.ANOTHER_GOOD, expiry=(2, 2036))

        like_new = session.another().collect(GuestCard.ANOTHER_GOOD, expiry=(2, 2036)).card
        assert read_again(session, card, like=like_new) == replace(
            like_new, guest_reference=card.guest_reference, token=card.token
        )
        assert read_again(session, untouched, like=untouched) == untouched

    def test_reading_a_discarded_card_reports_only_that_card_as_deleted(
        self, session: Session
    ) -> None:
        guest = session.page.guest_reference
        kept = session.another(guest_reference=guest).collect(GuestCard.ANOTHER_GOOD).card
        card = session.collect().card
        session.discard(card)

        assert session.read(card).card is None
        assert read_again(session, kept, like=kept) == kept

    @needs(Ability.FORGETS_GUESTS)
    def test_reading_a_card_of_a_deleted_guest_reports_the_card_as_deleted(
        self, session: Session
    ) -> None:
        card = session.collect().card
        session.forget_guest()

        assert session.read(card).card is None

    def test_reading_a_card_unknown_to_the_psp_does_not_report_the_card_as_deleted(
        self, session: Session
    ) -> None:
        card = session.collect().card
        unknown = [replace(card, token=CardToken(card.token + suffix)) for suffix in UNKNOWN]
        nobodys = replace(card, guest_reference=GuestReference("guest_of_nobody"))

        for each in (*unknown, nobodys):
            with pytest.raises((ProviderRefused, ProviderUnavailable)):
                session.read(each)
        # The same happens with another merchant's keys.
        with pytest.raises((ProviderRefused, ProviderUnavailable)):
            session.adapter.read_card(OTHER, card.guest_reference, card.token)
        session.discard(card)
        with pytest.raises((ProviderRefused, ProviderUnavailable)):
            session.adapter.read_card(OTHER, card.guest_reference, card.token)


@needs(Ability.STAND_IN, Ability.LISTS_CARDS)
class TestListCards:
    def test_each_stored_card_is_listed_once_with_its_guest(self, session: Session) -> None:
        assert session.listed() == []
        card = session.collect().card
        guest = card.guest_reference
        again = session.another(guest_reference=guest).collect(GuestCard.ANOTHER_GOOD).card
        other = session.another(guest_id=OTHER_GUEST_ID).collect().card

        stored = [CardAtPsp(each.guest_reference, each.token) for each in (card, again, other)]
        assert sorted(session.listed()) == sorted(stored)

    def test_the_pages_of_a_long_card_list_contain_every_card(
        self, psp: PspUnderTest, session: Session
    ) -> None:
        # The number is one more than PSPs usually list at once.
        for _ in range(101):
            session.another().type_card()

        assert sorted(each.token for each in session.listed()) == sorted(psp.tokens(MAIN))

    def test_a_card_of_another_merchant_account_is_not_listed(self, session: Session) -> None:
        elsewhere = session.another(merchant_account=OTHER).collect().card

        assert session.listed() == []
        assert session.listed(OTHER) == [CardAtPsp(elsewhere.guest_reference, elsewhere.token)]

    def test_a_discarded_card_is_not_listed(self, session: Session) -> None:
        session.discard(session.collect().card)

        assert session.listed() == []

    @needs(Ability.FORGETS_GUESTS)
    def test_a_card_of_a_deleted_guest_is_not_listed(self, session: Session) -> None:
        session.type_card()
        session.forget_guest()

        assert session.listed() == []

    def test_listing_cards_changes_nothing_at_the_psp(self, session: Session) -> None:
        session.listed()

        assert session.outcome() == Pending()
        session.type_card()
        before = session.outcome(), session.psp.tokens(MAIN)
        session.listed()
        assert (session.outcome(), session.psp.tokens(MAIN)) == before


def sessions_of(notices: Iterable[WebhookNotice], *known: Session) -> set[TokenId | None]:
    """Return the ids of the notices' sessions, with None for each session not in `known`."""
    by_page = {each.page.reference: each.request.token_id for each in known}
    by_token_id = {each.request.token_id: each.request.token_id for each in known}
    return {
        by_token_id.get(notice.token_id)
        if notice.token_id
        else by_page.get(notice.page_reference or "")
        for notice in notices
    }


def signed(psp: PspUnderTest, body: bytes, *, secret: str = SECRET) -> WebhookDelivery:
    """Return a webhook that is signed now."""
    return psp.sign(body, secret=secret, at=psp.clock.now())


def assert_rejected(adapter: PaymentProvider, deliveries: Iterable[WebhookDelivery]) -> None:
    for delivery in deliveries:
        with pytest.raises(WebhookRejected):
            adapter.read_webhook(delivery)


class TestWebhook:
    @for_each("kind", lambda facts: facts.telling_events)
    def test_the_notice_of_a_webhook_names_the_session_without_details_of_the_guest(
        self, psp: PspUnderTest, session: Session, kind: str
    ) -> None:
        body = session.event(kind)

        notices = session.adapter.read_webhook(signed(psp, body))

        assert sessions_of(notices, session) == {session.request.token_id}
        assert {notice.merchant_account for notice in notices} == {MAIN}
        may_be_unsigned = Ability.SIGNED_WEBHOOKS not in psp.facts.abilities
        assert all(notice.signed or may_be_unsigned for notice in notices)
        assert session.request.guest_email is not None
        for notice in notices:
            assert session.request.guest_email not in notice.content
            assert session.request.guest_name not in notice.content
            assert len(notice.content) < len(body), (
                "the content of a notice must not be the whole body"
            )
        # The content is the same in each delivery of the webhook, and readable as evidence.
        psp.clock.advance(MINUTE)
        assert list(psp.adapter().read_webhook(signed(psp, body))) == list(notices)
        contents = [notice.content for notice in notices]
        evidence = evidence_of(psp, EvidenceOrigin.WEBHOOK, *contents, *contents)
        session.adapter.outcome(session.request, session.page, evidence)

    def test_a_forged_webhook_is_not_reported_as_signed(
        self, psp: PspUnderTest, session: Session
    ) -> None:
        other, delivery = session.another(), signed(psp, session.event())
        body = delivery.body.replace(session.page.reference.encode(), other.page.reference.encode())
        body = body.replace(session.request.token_id.encode(), other.request.token_id.encode())

        with suppress(WebhookRejected):
            forged = session.adapter.read_webhook(replace(delivery, body=body))
            assert body == delivery.body or not any(notice.signed for notice in forged)

    @for_each("kind", lambda facts: facts.card_events)
    def test_a_webhook_about_a_stored_card_names_the_card_or_its_guest(
        self, psp: PspUnderTest, session: Session, kind: str
    ) -> None:
        card = session.collect().card

        (notice,) = session.adapter.read_webhook(signed(psp, psp.card_event(kind, card)))

        assert (notice.token_id, notice.page_reference) == (None, None)
        assert (notice.card_token, notice.guest_reference) in (
            (card.token, None),
            (None, card.guest_reference),
        )
        assert notice.merchant_account == MAIN

    @for_each("kind", lambda facts: facts.silent_events)
    def test_reading_a_webhook_about_another_subject_returns_no_notices(
        self, session: Session, kind: str
    ) -> None:
        assert list(session.adapter.read_webhook(signed(session.psp, session.event(kind)))) == []

    @for_each("fault", lambda facts: facts.broken_events)
    def test_a_malformed_webhook_is_rejected_even_if_it_is_signed(
        self, psp: PspUnderTest, adapter: PaymentProvider, fault: str
    ) -> None:
        assert_rejected(adapter, [signed(psp, psp.facts.broken_events[fault])])

    # Shows F33.
    @for_each("whom", lambda facts: facts.misdirected)
    def test_a_webhook_meant_for_another_recipient_is_rejected(
        self, psp: PspUnderTest, session: Session, whom: str
    ) -> None:
        assert_rejected(session.adapter, [psp.misdirect(whom, session.request, session.page)])


@needs(Ability.BATCHES)
class TestBatch:
    def test_every_event_in_a_batch_is_read(self, psp: PspUnderTest, session: Session) -> None:
        other = session.another()
        silent = session.event(psp.facts.silent_events[0])
        body = psp.batch([silent, session.event(), other.event()])

        notices = session.adapter.read_webhook(signed(psp, body))

        assert sessions_of(notices, session, other) == {
            session.request.token_id,
            other.request.token_id,
        }
        assert list(session.adapter.read_webhook(signed(psp, psp.batch([])))) == []


@needs(Ability.SIGNED_WEBHOOKS)
class TestSignature:
    @pytest.fixture
    def delivery(self, psp: PspUnderTest, session: Session) -> WebhookDelivery:
        return signed(psp, session.event())

    def test_a_webhook_signed_with_another_secret_is_rejected(
        self, psp: PspUnderTest, adapter: PaymentProvider, delivery: WebhookDelivery
    ) -> None:
        forged = [signed(psp, delivery.body, secret=secret) for secret in ("a guess", OTHER_SECRET)]
        forged.append(replace(delivery, merchant_account=OTHER))

        assert_rejected(adapter, forged)

    # Shows S13.
    def test_a_webhook_whose_body_was_changed_after_signing_is_rejected(
        self, adapter: PaymentProvider, delivery: WebhookDelivery
    ) -> None:
        body = delivery.body
        altered = (body + b" ", body.replace(b"a", b"b"), body[:-1], b"")

        assert_rejected(adapter, (replace(delivery, body=body) for body in altered))

    def test_a_webhook_with_a_missing_or_malformed_signature_is_rejected(
        self, adapter: PaymentProvider, delivery: WebhookDelivery
    ) -> None:
        malformed: list[Mapping[str, str]] = [{}]
        for value in ("", "x", "=", ",", "é", "\x00", "," * 9_999):
            malformed += ({**delivery.headers, name: value} for name in delivery.headers)

        assert_rejected(adapter, (replace(delivery, headers=headers) for headers in malformed))

    # Shows S13.
    def test_a_webhook_with_a_damaged_signature_is_either_rejected_or_read_unchanged(
        self, adapter: PaymentProvider, delivery: WebhookDelivery
    ) -> None:
        sound = adapter.read_webhook(delivery)

        for name, value in delivery.headers.items():
            for at in range(len(value)):
                # compare_digest() raises TypeError for text that is not ASCII.
                for damage in ("é", "", "0", "=", ","):
                    damaged = value[:at] + damage + value[at + 1 :]
                    headers = {**delivery.headers, name: damaged}
                    with suppress(WebhookRejected):
                        assert adapter.read_webhook(replace(delivery, headers=headers)) == sound

    # Shows S4.
    def test_the_signature_of_a_webhook_is_compared_in_constant_time(
        self,
        psp: PspUnderTest,
        adapter: PaymentProvider,
        delivery: WebhookDelivery,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        compared: list[bytes] = []
        really = hmac.compare_digest

        def compare(one: Any, other: Any) -> bool:  # Any: text or bytes, as the adapter passes them
            for each in (one, other):
                raw = each.encode() if isinstance(each, str) else bytes(each)
                compared.extend((raw, raw.hex().encode(), b64encode(raw)))
            return really(one, other)

        # A module may have imported compare_digest under another name. None stands for a module
        # that must not load.
        for module in filter(None, list(sys.modules.values())):
            for name in [name for name, each in vars(module).items() if each is really]:
                monkeypatch.setattr(module, name, compare)

        forged = signed(psp, delivery.body, secret="a guess")
        with pytest.raises(WebhookRejected):
            adapter.read_webhook(forged)

        headers = "\n".join(forged.headers.values()).encode()
        assert any(len(each) >= 16 and each in headers for each in compared)

    # Shows S13.
    @pytest.mark.parametrize("secrets", [[""], [" "], [SECRET, ""], ["\n", SECRET]])
    def test_an_adapter_refuses_a_blank_webhook_secret(
        self, psp: PspUnderTest, secrets: list[str]
    ) -> None:
        with pytest.raises(ValueError, match="secret"):
            psp.adapter(secrets)

    def test_a_signed_webhook_whose_body_is_not_an_event_is_rejected(
        self, psp: PspUnderTest, adapter: PaymentProvider
    ) -> None:
        assert_rejected(adapter, (signed(psp, body) for body in BROKEN_JSON))
        # An empty list may be an empty batch.
        with suppress(WebhookRejected):
            assert list(adapter.read_webhook(signed(psp, b"[]"))) == []

    # Shows F34.
    def test_each_of_two_webhook_secrets_is_accepted_during_a_rotation(
        self, psp: PspUnderTest, delivery: WebhookDelivery
    ) -> None:
        adapter = psp.adapter(["a new secret", SECRET])

        assert adapter.read_webhook(signed(psp, delivery.body, secret="a new secret"))
        assert adapter.read_webhook(delivery)

    # Shows F34.
    def test_the_old_webhook_secret_is_rejected_after_the_rotation(
        self, psp: PspUnderTest, delivery: WebhookDelivery
    ) -> None:
        assert_rejected(psp.adapter(["a new secret"]), [delivery])

    def test_removing_parts_of_a_forged_signature_does_not_make_it_valid(
        self, session: Session
    ) -> None:
        forged = signed(session.psp, session.event(), secret="a guess")

        for name, value in forged.headers.items():
            for begin, end in combinations(range(len(value) + 1), 2):
                headers = {**forged.headers, name: value[:begin] + value[end:]}
                with pytest.raises(WebhookRejected):
                    session.adapter.read_webhook(replace(forged, headers=headers))

    def test_the_rejection_of_a_signature_does_not_reveal_the_correct_signature(
        self, psp: PspUnderTest, session: Session, private: list[str]
    ) -> None:
        sound, forged = signed(psp, session.event()), signed(psp, session.event(), secret="a guess")
        # The `private` fixture looks for the secrets in exceptions and logs.
        for name, value in sound.headers.items():
            words = re.findall(r"[\w+/-]{16,}", value)
            private.extend(each for each in words if each not in forged.headers[name])

        with pytest.raises(WebhookRejected):
            session.adapter.read_webhook(forged)


@needs(Ability.SIGNED_WEBHOOKS, Ability.SIGNED_TIMES)
class TestSignedTime:
    @pytest.mark.parametrize("seconds", [-300, 300])
    def test_a_webhook_signed_up_to_300_seconds_ago_or_ahead_is_accepted(
        self, session: Session, seconds: int
    ) -> None:
        delivery = session.psp.sign(session.event(), at=session.psp.clock.now() + seconds * SECOND)

        assert session.adapter.read_webhook(delivery)

    # Shows S13.
    @pytest.mark.parametrize("seconds", [-(10**9), -301, 301, 10**9])
    def test_a_webhook_signed_more_than_300_seconds_ago_or_ahead_is_rejected(
        self, session: Session, seconds: int
    ) -> None:
        delivery = session.psp.sign(session.event(), at=session.psp.clock.now() + seconds * SECOND)

        assert_rejected(session.adapter, [delivery])

    @pytest.mark.parametrize("odd", ["²", "٣", "9" * 5_000, "-1", "nan", "1e9"])
    def test_a_webhook_whose_signed_time_is_not_a_number_is_rejected(
        self, session: Session, odd: str
    ) -> None:
        delivery = signed(session.psp, session.event())
        headers = {name: _TIME.sub(odd, value) for name, value in delivery.headers.items()}

        if headers != delivery.headers:
            assert_rejected(session.adapter, [replace(delivery, headers=headers)])

    @pytest.mark.parametrize("text", [r"\g<0>,\g<1>{now}", r"\g<1>{now},\g<0>"])
    def test_an_old_webhook_is_rejected_even_if_a_recent_time_was_added_to_its_header(
        self, session: Session, text: str
    ) -> None:
        now = session.psp.clock.now()
        replayed = session.psp.sign(session.event(), at=now - timedelta(hours=1))
        # The pattern includes the name before the time, as in "t=1790000000".
        both = re.compile(rf"([A-Za-z_]+=)?{_TIME.pattern}")
        text = text.format(now=int(now.timestamp()))
        headers = {name: both.sub(text, value) for name, value in replayed.headers.items()}

        assert_rejected(session.adapter, [replace(replayed, headers=headers)])


def each_call(facts: Facts) -> Iterator[tuple[Method, int]]:
    """Yield the method and a number for each call that a method makes. The first call is 1."""
    return (
        (method, call) for method in methods_of(facts) for call in range(1, facts.calls[method] + 1)
    )


def each_outage(facts: Facts) -> Iterator[tuple[object, ...]]:
    """Yield each kind of trouble at each call of each method.

    Each item contains the method, the number of the call, the trouble, and the number of calls that
    meet the trouble. This number is 1, or None if the trouble lasts until the PSP recovers. A wrong
    key, for example, causes trouble until an operator corrects it.
    """
    is_remote = Ability.REMOTE in facts.abilities
    lasting = [Trouble.CALL_LOST, Trouble.RESPONSE_LOST]
    single = [*lasting, *([Trouble.NONSENSE, Trouble.OUT_OF_ORDER] if is_remote else [])]
    if is_remote:  # the kinds from UNAUTHORIZED on
        lasting += list(Trouble)[list(Trouble).index(Trouble.UNAUTHORIZED) :]
    for method, call in each_call(facts):
        tells = method in (Method.OUTCOME, Method.OUTCOME_WITH_CARD, Method.CLOSE)
        misunderstood = (Trouble.NONSENSE, Trouble.UNKNOWN_STATUS) if tells else ()
        yield from ((method, call, trouble, None) for trouble in (*lasting, *misunderstood))
        yield from ((method, call, trouble, 1) for trouble in single)


def after(method: Method, before: object) -> object:
    """Return the `Session.effect` that is expected after one call of `method`.

    `before` is the `Session.effect` before the call.
    """
    match method, before:
        case Method.START, int(pages):
            return pages + 1
        case Method.CLOSE, _:
            return PageClosed()
        case ((Method.DISCARD | Method.FORGET_GUEST), _):
            return frozenset()
        case _:
            return before


def repeated(act: Callable[[], object]) -> object:
    """Call `act` again, and return its result.

    Return None if `act` raises NotFound, because the first call may have deleted the object.
    """
    with suppress(NotFound):
        return act()
    return None


@needs(Ability.STAND_IN)
class TestTrouble:
    # Shows F19, F20, F22, F23, S7.
    @for_each("method call trouble calls", each_outage)
    def test_repeating_a_method_after_a_temporary_outage_takes_effect_once(
        self, session: Session, method: Method, call: int, trouble: Trouble, calls: int | None
    ) -> None:
        psp, act = session.psp, session.prepare(method)
        before, first = session.effect(method), None
        psp.have(trouble, from_call=call, calls=calls)
        # A method may repeat a single call by itself.
        with suppress(ProviderUnavailable) if calls else pytest.raises(ProviderUnavailable):
            first = act()
        psp.recover()
        psp.clock.advance(psp.facts.list_lag)

        again = repeated(act)

        assert first in (None, again)
        psp.clock.advance(psp.facts.list_lag)
        assert repeated(act) == again
        assert session.effect(method) == after(method, before)
        if method is Method.START and Ability.IDEMPOTENCY_KEYS in psp.facts.abilities:
            assert len(psp.guests(MAIN)) == 2

    # Shows F47.
    @for_each("method call", each_call)
    def test_a_single_404_response_does_not_count_as_not_found(
        self, psp: PspUnderTest, session: Session, method: Method, call: int
    ) -> None:
        act, told = session.prepare(method), None
        before = session.effect(method)
        psp.have(Trouble.NOT_FOUND, from_call=call, calls=1)
        # An adapter may also repeat the call by itself.
        with suppress(NotFound, ProviderUnavailable):
            told = act()
            assert session.effect(method) == after(method, before), (
                "do not treat a single 404 as the end"
            )
        psp.recover()
        psp.clock.advance(psp.facts.list_lag)

        again = act()

        assert told in (None, again)
        assert session.effect(method) == after(method, before)
        if method is Method.START and Ability.IDEMPOTENCY_KEYS in psp.facts.abilities:
            assert len(psp.guests(MAIN)) == 2

    @for_each("method call", each_call)
    def test_a_method_whose_call_the_psp_refused_has_no_effect(
        self, psp: PspUnderTest, session: Session, method: Method, call: int
    ) -> None:
        act = session.prepare(method)
        before, guests = session.effect(method), psp.guests(MAIN)
        psp.have(Trouble.REFUSED, from_call=call)
        with pytest.raises((ProviderRefused, ProviderUnavailable)) as raised:
            act()
        psp.recover()
        if method is Method.START and session.effect(method) == before:
            assert isinstance(raised.value, ProviderRefused), "a refusal must be ProviderRefused"
            made = psp.guests(MAIN) - guests
            assert made <= {raised.value.guest_reference}, (
                "the refusal must contain the guest_reference of the new guest"
            )

        # ProviderUnavailable is allowed if an earlier call of the method may have acted.
        is_refused = isinstance(raised.value, ProviderRefused)
        assert is_refused or call > 1
        assert session.effect(method) == before or not is_refused
        if method is Method.START:
            before, act = session.effect(method), session.prepare(method)
        act()
        assert session.effect(method) == after(method, before)


def tried(act: Callable[[], HostedPage]) -> HostedPage | None:
    """Start a page with `act`, and return the page, or None if there is no usable response."""
    try:
        return act()
    except ProviderUnavailable:
        return None


@needs(Ability.STAND_IN)
class TestLists:
    """Tests of a PSP without idempotency keys, whose lists show a new page late."""

    @pytest.fixture
    def request_(self, psp: PspUnderTest, adapter: PaymentProvider) -> HostedPageRequest:
        """Return a request whose page was created, but whose response was lost."""
        request = a_request(psp)
        psp.have(Trouble.RESPONSE_LOST, from_call=psp.facts.calls[Method.START])
        made = tried(lambda: adapter.start(request))
        assert made is None, (
            "start returned a page, although the response to its last call was lost"
        )
        psp.recover()
        return request

    @for_each("part", lambda facts: (0, 0.3, 0.6, 0.9, 0.99) if facts.list_lag else ())
    def test_repeating_start_before_a_list_shows_the_page_does_not_create_a_second_page(
        self, psp: PspUnderTest, adapter: PaymentProvider, request_: HostedPageRequest, part: float
    ) -> None:
        # Within a second after `begun_at`, an adapter may create the page without reading the list.
        psp.clock.advance(max(psp.facts.list_lag * part, 1.5 * SECOND))
        early = tried(lambda: adapter.start(request_))
        psp.clock.advance(request_.begun_at + psp.facts.list_lag - psp.clock.now())

        later, count = adapter.start(request_), psp.count_pages()
        lag = psp.facts.list_lag.total_seconds()
        repeated = (
            f"start was repeated after {part * lag:.0f} s and after {lag:.0f} s (facts.list_lag)"
        )
        assert early in (None, later), f"{repeated}; it returned two different pages"
        assert count == 1, f"{repeated}; the PSP has {count} pages of the same attempt"

    @for_each(
        "seconds",
        lambda facts: (
            (2, 4, 5.5)
            if Ability.REMOTE in facts.abilities and Ability.IDEMPOTENCY_KEYS not in facts.abilities
            else ()
        ),
    )
    def test_a_call_that_the_psp_handles_late_does_not_lead_to_a_second_page(
        self, psp: PspUnderTest, adapter: PaymentProvider, seconds: float
    ) -> None:
        request = a_request(psp)
        psp.have(Trouble.CALL_LATE, from_call=psp.facts.calls[Method.START])
        assert tried(lambda: adapter.start(request)) is None
        psp.recover()
        psp.clock.advance(seconds * SECOND)
        early = tried(lambda: adapter.start(request))

        psp.handle_late_calls()
        psp.clock.advance(max(psp.facts.list_lag, 6 * SECOND) - seconds * SECOND)

        later, count = adapter.start(request), psp.count_pages()
        assert early in (None, later)
        assert count == 1, (
            f"start was repeated after {seconds} s, before the PSP handled the first call; the PSP has "
            f"{count} pages of the same attempt: the first call may take 5 seconds, so read the list later"
        )

    @for_each(
        "fault call",
        lambda facts: (
            (fault, call)
            for fault in (Trouble.CALL_LOST, Trouble.NONSENSE, Trouble.REFUSED, Trouble.FORBIDDEN)
            for call in range(1, facts.calls[Method.START] + 2)
            if facts.list_lag
        ),
    )
    def test_a_list_that_cannot_be_read_does_not_count_as_an_empty_list(
        self,
        psp: PspUnderTest,
        adapter: PaymentProvider,
        request_: HostedPageRequest,
        fault: Trouble,
        call: int,
    ) -> None:
        psp.clock.advance(psp.facts.list_lag)
        psp.have(fault, from_call=call, calls=1)
        # ProviderRefused would begin the next attempt although a page exists.
        with suppress(ProviderUnavailable):
            adapter.start(request_)
        psp.recover()
        psp.clock.advance(psp.facts.list_lag)

        adapter.start(request_)

        count = psp.count_pages()
        assert count == 1, (
            f"call {call} of a repeated start met {fault.name}; then the PSP had {count} pages: do not treat "
            "a list that cannot be read as an empty list"
        )


@needs(Ability.STAND_IN, Ability.REMOTE)
class TestPspInTrouble:
    @for_each("method", methods_of)
    @pytest.mark.parametrize(
        "trouble", [Trouble.RESPONSE_LOST, Trouble.OUT_OF_ORDER, Trouble.TOO_MANY]
    )
    def test_an_adapter_repeats_a_failing_call_only_a_few_times(
        self, psp: PspUnderTest, session: Session, trouble: Trouble, method: Method
    ) -> None:
        act, before = session.prepare(method), psp.count_calls()
        psp.have(trouble)

        with pytest.raises(ProviderUnavailable) as raised:
            act()

        # Without idempotency keys, a second call would create a second page. Retry-After is longer
        # than a method may take.
        is_once = trouble is Trouble.TOO_MANY or (
            method is Method.START and Ability.IDEMPOTENCY_KEYS not in psp.facts.abilities
        )
        calls, at_most = psp.count_calls() - before, 1 if is_once else MAX_TRIES
        made = f"{method.name} met {trouble.name}"
        assert calls <= at_most, f"{made} and made {calls} calls; at most {at_most} are allowed"
        if trouble is Trouble.TOO_MANY:
            wait = raised.value.retry_after
            assert wait == 17 * SECOND, (
                f"{made}: retry_after is {wait}; Retry-After said 17 seconds"
            )

    @for_each("method", methods_of)
    def test_an_adapter_works_again_after_an_outage_of_the_psp(
        self, psp: PspUnderTest, session: Session, monkeypatch: pytest.MonkeyPatch, method: Method
    ) -> None:
        act = session.prepare(method)
        psp.have(Trouble.RESPONSE_LOST)
        with pytest.raises(ProviderUnavailable):
            act()
        psp.recover()
        psp.clock.advance(psp.facts.list_lag)
        # The deadline of a client that lives as long as the adapter would have passed by now.
        now = time.monotonic
        monkeypatch.setattr(time, "monotonic", lambda: now() + LATER_SECONDS)

        act()


def bodies_of(psp: PspUnderTest, act: Callable[[], object]) -> list[bytes]:
    """Return the bodies of the PSP's responses to the calls that `act` makes."""
    bodies: list[bytes] = []

    def keep(_: int, body: bytes) -> bytes:
        bodies.append(body)
        return body

    psp.change_bodies(keep)
    act()
    psp.recover()
    return bodies


def instead(call: int, changed: bytes) -> Callable[[int, bytes], bytes]:
    """Return a function for `change_bodies` that replaces the body of one response by `changed`.

    `call` is the number of the call, counted from 1.
    """
    return lambda number, body: changed if number == call else body


@needs(Ability.STAND_IN, Ability.REMOTE)
class TestResponseAboutAnotherObject:
    @pytest.fixture
    def other(self, session: Session) -> Session:
        """Return a session of another guest."""
        return session.another(guest_id=OTHER_GUEST_ID)

    @needs(Ability.TELLS_OUTCOME)
    @pytest.mark.parametrize("has_card", [False, True])
    def test_a_response_about_another_page_is_not_mistaken_for_the_outcome(
        self, psp: PspUnderTest, session: Session, other: Session, has_card: bool
    ) -> None:
        if has_card:
            session.collect()
        other.collect(GuestCard.ANOTHER_GOOD)
        sound, bodies = session.outcome(), bodies_of(psp, other.outcome)
        psp.change_bodies(lambda call, body: bodies[call - 1] if call <= len(bodies) else body)
        with pytest.raises(ProviderUnavailable):
            session.outcome()

        for number, body in enumerate(bodies, 1):
            psp.change_bodies(instead(number, body))
            with suppress(ProviderUnavailable):
                assert session.outcome() == sound

    @needs(Ability.NAMES_SESSIONS)
    @for_each("call", lambda facts: range(1, facts.calls[Method.START] + 1))
    @pytest.mark.parametrize("guest_id", [GUEST_ID, OTHER_GUEST_ID])
    def test_a_response_about_another_session_or_guest_is_not_mistaken_for_the_new_page(
        self, psp: PspUnderTest, session: Session, other: Session, call: int, guest_id: GuestId
    ) -> None:
        bodies = bodies_of(psp, lambda: session.another(guest_id=guest_id))
        psp.change_bodies(instead(call, bodies[call - 1]))

        page = tried(lambda: session.adapter.start(a_request(psp)))

        assert page is None or page.guest_reference != other.page.guest_reference
        assert page is None or call < psp.facts.calls[Method.START]

    @for_each("call", lambda facts: {facts.calls[Method.START]} - {1})
    def test_start_does_not_return_a_page_if_a_response_names_another_guest(
        self, psp: PspUnderTest, session: Session, other: Session, call: int
    ) -> None:
        own, others = (each.page.guest_reference.encode() for each in (session, other))
        psp.change_bodies(lambda at, body: body.replace(own, others) if at == call else body)

        page = tried(lambda: session.adapter.start(a_request(psp)))

        # With a single call, nothing shows whether the PSP knew the guest.
        assert page is None or page.guest_reference == session.page.guest_reference

    @needs(Ability.READS_CARDS)
    @pytest.mark.parametrize("guest_id", [GUEST_ID, OTHER_GUEST_ID])
    def test_a_response_about_another_card_is_refused_when_a_card_is_read(
        self, session: Session, guest_id: GuestId
    ) -> None:
        guest = session.page.guest_reference if guest_id == GUEST_ID else None
        other = session.another(guest_id=guest_id, guest_reference=guest)
        card, others = session.collect().card, other.collect(GuestCard.ANOTHER_GOOD).card
        bodies = bodies_of(session.psp, lambda: other.read(others))
        session.psp.change_bodies(lambda call, _: bodies[call - 1])

        with pytest.raises(ProviderUnavailable):
            session.read(card)

    def test_a_response_that_names_another_guest_is_not_mistaken_for_the_outcome(
        self, session: Session, other: Session
    ) -> None:
        own, others = (each.page.guest_reference.encode() for each in (session, other))
        session.type_card()
        bodies = bodies_of(session.psp, session.outcome)
        for number, body in enumerate(bodies, 1):
            session.psp.change_bodies(instead(number, body.replace(own, others)))

            with suppress(ProviderUnavailable):
                assert not is_credible(session.outcome(), session.page) or own not in body


@needs(Ability.STAND_IN, Ability.REMOTE, Ability.JSON)
class TestDamagedResponse:
    """Tests with responses in which one value has another type, or is out of bounds."""

    @for_each(
        # The other methods have nothing left to do when they are repeated.
        "method",
        lambda facts: [
            each for each in methods_of(facts) if each not in (Method.DISCARD, Method.FORGET_GUEST)
        ],
    )
    def test_a_damaged_response_raises_only_exceptions_that_the_port_declares(
        self, session: Session, method: Method
    ) -> None:
        act = session.prepare(method)
        act()
        session.psp.clock.advance(session.psp.facts.list_lag)

        for call, sound in enumerate(bodies_of(session.psp, act), 1):
            for damaged in damages(sound):
                session.psp.change_bodies(instead(call, damaged))
                with suppress(ProviderUnavailable, ProviderRefused):
                    act()


def without(field: str, value: Json) -> Json:
    """Return a copy of the JSON value with null in each field named `field`."""
    if isinstance(value, dict):
        return {
            name: None if name == field else without(field, each) for name, each in value.items()
        }
    return [without(field, each) for each in value] if isinstance(value, list) else value


@needs(Ability.STAND_IN, Ability.REMOTE, Ability.JSON)
class TestNullField:
    """Tests with responses in which a nullable field is null.

    Such a response must not count as an outage, because a repeated call would get the same
    response.
    """

    # Shows F50.
    @for_each(
        "field", lambda facts: facts.nullable if facts.calls[Method.OUTCOME_WITH_CARD] else ()
    )
    def test_a_response_with_a_null_field_still_reports_the_token_of_the_card_or_a_closed_page(
        self, session: Session, field: str
    ) -> None:
        card = session.collect().card
        session.psp.change_bodies(
            lambda _, body: json.dumps(without(field, json.loads(body))).encode()
        )

        # A PSP may report the card a moment later. Once NotFound is confirmed, the page is closed.
        with suppress(NotFound):
            outcome = session.outcome()
            assert isinstance(outcome, CardCollected | NoCardCollected | PageClosed)
            assert isinstance(outcome, PageClosed) or outcome.token == card.token
            if isinstance(outcome, CardCollected):
                assert outcome.card.fingerprint in (card.fingerprint, card.token)


def damages(body: bytes, odd_values: Mapping[type, tuple[Json, ...]] = _ODD) -> Iterator[bytes]:
    """Yield copies of the JSON body. In each, one value is changed in one way."""
    for path, value in leaves(json.loads(body)):
        for odd in odd_values.get(type(value), ()):
            changed = json.loads(body)
            within = changed
            for key in path[:-1]:
                within = within[key]
            within[path[-1]] = odd
            yield json.dumps(changed).encode()


def leaves(value: Json, path: tuple[Json, ...] = ()) -> Iterator[tuple[tuple[Json, ...], Json]]:
    """Yield the path and the value of every leaf of a JSON value."""
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(each, (*path, key))
    elif path:
        yield path, value


@needs(Ability.STAND_IN, Ability.REMOTE)
class TestDeadline:
    """Tests that every method ends within 5 seconds, whatever the PSP sends."""

    # Shows F21.
    def test_each_method_ends_within_5_seconds_if_the_psp_is_slow_or_silent(
        self, psp: PspUnderTest, tmp_path: Path
    ) -> None:
        cases = list(product([*methods_of(psp.facts), None], (True, False)))
        acts: list[Callable[[], object]] = []

        def attempt(number: int) -> None:
            method, is_silent = cases[number]
            how = "was silent" if is_silent else "sent a response byte by byte"
            try:
                acts[number]()
            except ProviderUnavailable:
                return
            name = method.name if method else "START of a page that exists"
            pytest.fail(
                f"{name} returned, although the PSP {how}: a method must end within 5 seconds"
            )

        with ExitStack() as opened:
            for number, (method, is_silent) in enumerate(cases):
                folder = tmp_path / str(number)
                folder.mkdir()
                slow = opened.enter_context(closing(type(psp)(folder)))
                session = Session(slow, slow.adapter(), a_request(slow), [])
                act = session.prepare(method or Method.START)
                if method is None:  # START of a page that exists
                    act()
                    slow.clock.advance(slow.facts.list_lag)
                if is_silent:
                    # A method that waits longer than GIVE_UP_SECONDS fails when the PSP is closed.
                    slow.fall_silent()
                else:
                    # If a method makes several calls, each call alone stays below the deadline. An
                    # adapter without a deadline for the whole method finally gets a valid response.
                    slow.drip(5.5 / (slow.facts.calls[method] if method else 1))
                acts.append(act)
            at_once(len(acts), attempt)


@needs(Ability.REMOTE)
class TestMerchantAccountWithoutKeys:
    """Tests that the work of an account without keys waits, because keys may be set later."""

    def test_a_missing_key_for_a_merchant_account_does_not_count_as_a_refusal(
        self, session: Session
    ) -> None:
        elsewhere = replace(session.request, merchant_account=NOBODYS)
        page, adapter = session.page, session.adapter

        acts: list[Callable[[], object]] = [
            lambda: adapter.start(elsewhere),
            lambda: adapter.discard(NOBODYS, page.guest_reference, CardToken("token")),
        ]
        if Ability.TELLS_OUTCOME in session.psp.facts.abilities:
            acts.append(lambda: adapter.outcome(elsewhere, page, ()))
        for act in acts:
            with pytest.raises(ProviderUnavailable):
                act()

    @needs(Ability.CLOSES_PAGES)
    def test_closing_a_page_fails_if_the_keys_of_its_merchant_account_are_missing(
        self, session: Session
    ) -> None:
        elsewhere = replace(session.request, merchant_account=NOBODYS)

        with pytest.raises(ProviderUnavailable):
            session.adapter.close(elsewhere, session.page)

    # An address without a name means the account `default`, which has no keys here either.
    @pytest.mark.parametrize("account", [NOBODYS, None])
    def test_a_webhook_to_a_merchant_account_without_keys_is_rejected(
        self, psp: PspUnderTest, session: Session, account: MerchantAccount | None
    ) -> None:
        for secret in (SECRET, OTHER_SECRET):
            delivery = signed(psp, session.event(), secret=secret)

            with pytest.raises((ProviderUnavailable, WebhookRejected)):
                session.adapter.read_webhook(replace(delivery, merchant_account=account))


@needs(Ability.STAND_IN, Ability.REMOTE)
class TestIdentity:
    """Tests of the identity, which is optional because not every PSP identifies the merchant."""

    def test_an_identity_always_stands_for_the_same_merchant(
        self, psp: PspUnderTest, adapter: PaymentProvider
    ) -> None:
        main, other = (adapter.identity(account) for account in (MAIN, OTHER))
        psp.clock.advance(MINUTE)

        assert adapter.identity(MAIN) == main
        assert psp.adapter(["another secret"]).identity(MAIN) == main
        assert main is other is None or len({main, other, None}) == 3
        for identity in filter(None, (main, other)):
            if psp.facts.live_settings:
                assert re.search(r"\btest\b", identity), (
                    "an identity must contain the mode (test or live)"
                )
            assert not any(secret in identity for secret in (*psp.keys, SECRET, OTHER_SECRET))

    def test_a_merchant_account_without_keys_has_no_merchant_identity(
        self, adapter: PaymentProvider
    ) -> None:
        with suppress(ProviderUnavailable):
            assert adapter.identity(NOBODYS) is None

    def test_an_outage_of_the_psp_does_not_change_the_identity_of_a_merchant(
        self, psp: PspUnderTest, adapter: PaymentProvider
    ) -> None:
        sound = adapter.identity(MAIN)
        for trouble in (each for each in Trouble if each is not Trouble.UNKNOWN_STATUS):
            psp.have(trouble)
            with suppress(ProviderUnavailable, ProviderRefused):
                # None lets the keys of any merchant pass.
                assert adapter.identity(MAIN) in {sound, sound if trouble in OUTAGES else None}
            psp.recover()
            assert adapter.identity(MAIN) == sound


def checked(psp: PspUnderTest, adapter: PaymentProvider) -> Sequence[Finding]:
    check = psp.plugin.check
    return check(adapter, MAIN, "https://pay.example/webhooks/psp/main") if check else ()


@needs(Ability.STAND_IN, Ability.REMOTE)
class TestCheck:
    """Tests of the plugin's check, which is optional."""

    def test_each_finding_from_a_psp_check_is_one_line_without_a_secret(
        self, psp: PspUnderTest, adapter: PaymentProvider
    ) -> None:
        for trouble in (None, *Trouble):
            if trouble is not None:
                psp.have(trouble)
            found = checked(psp, adapter)
            psp.recover()

            assert found or psp.plugin.check is None
            for diagnosis, about, text in found:
                assert diagnosis in Diagnosis
                assert f"{about}{text}".isprintable()
                assert not any(secret in text for secret in (*psp.keys, SECRET, OTHER_SECRET))

    def test_a_psp_check_changes_nothing_at_the_psp(
        self, psp: PspUnderTest, adapter: PaymentProvider
    ) -> None:
        checked(psp, adapter)

        assert psp.count_pages() == 0
        assert not psp.guests(MAIN)

    def test_a_psp_check_reports_a_silent_or_slow_psp_within_5_seconds(
        self, psp: PspUnderTest, adapter: PaymentProvider, tmp_path: Path, raised: list[Exception]
    ) -> None:
        (tmp_path / "slow").mkdir()
        with closing(type(psp)(tmp_path / "slow")) as slow:
            psp.fall_silent()
            slow.drip(5.5)
            in_trouble = ((psp, adapter), (slow, watched(slow, slow.adapter(), raised)))

            def check(number: int) -> None:
                found = {diagnosis for diagnosis, *_ in checked(*in_trouble[number])}
                assert psp.plugin.check is None or Diagnosis.PROBLEM in found

            at_once(len(in_trouble), check)


class TestPlugin:
    def test_the_name_of_a_plugin_is_a_word_in_lower_case(self, psp: PspUnderTest) -> None:
        assert re.fullmatch("[a-z][a-z0-9_]*", psp.plugin.name)

    def test_the_page_of_a_psp_has_enough_room_for_a_consent_text(self, psp: PspUnderTest) -> None:
        assert psp.plugin.capabilities.shows(CONSENT)

    def test_the_capabilities_of_a_plugin_match_the_facts_that_its_tests_state(
        self, psp: PspUnderTest
    ) -> None:
        abilities, capabilities = psp.facts.abilities, psp.plugin.capabilities
        assert capabilities.checks_addresses == (Ability.CHECKS_ADDRESSES in abilities)
        # A stand-in may always close pages, even if the PSP can close them only at times.
        assert Ability.CLOSES_PAGES in abilities or not capabilities.closes_pages

    def test_a_plugin_states_correctly_whether_the_psp_deletes_guests(
        self, psp: PspUnderTest
    ) -> None:
        is_tested = Ability.FORGETS_GUESTS in psp.facts.abilities
        assert psp.plugin.capabilities.forgets_guests == is_tested

    def test_a_plugin_states_correctly_whether_the_psp_reports_stored_cards(
        self, psp: PspUnderTest
    ) -> None:
        is_tested = Ability.READS_CARDS in psp.facts.abilities
        assert psp.plugin.capabilities.reads_cards == is_tested

    def test_a_plugin_states_correctly_whether_the_psp_lists_stored_cards(
        self, psp: PspUnderTest
    ) -> None:
        is_tested = Ability.LISTS_CARDS in psp.facts.abilities
        assert psp.plugin.capabilities.lists_cards == is_tested


@needs(Ability.REMOTE)
class TestSettings:
    def test_a_psp_without_settings_is_not_set_up(self, psp: PspUnderTest) -> None:
        assert read(psp, {}) is None

    def test_the_settings_of_a_merchant_account_are_read(self, psp: PspUnderTest) -> None:
        settings = read(psp, settings_of(psp))

        assert settings is not None
        assert set(psp.plugin.accounts(settings) or [DEFAULT_MERCHANT_ACCOUNT]) == {
            DEFAULT_MERCHANT_ACCOUNT
        }

    def test_the_repr_of_the_settings_contains_no_secret(self, psp: PspUnderTest) -> None:
        settings = read(psp, settings_of(psp))

        for value in psp.settings.values():
            assert is_address(value) or value not in f"{settings!r} {settings}"

    @needs(Ability.SIGNED_WEBHOOKS)
    def test_a_webhook_signed_with_a_part_of_a_webhook_secret_is_rejected(
        self, psp: PspUnderTest, session: Session
    ) -> None:
        def accepts(secret: str, given: Mapping[str, str]) -> bool:
            delivery = replace(signed(psp, session.event(), secret=secret), merchant_account=None)
            try:
                return bool(
                    psp.plugin.make(read(psp, given), psp.clock, psp.ids).read_webhook(delivery)
                )
            except WebhookRejected:
                return False

        given, own = settings_of(psp), psp.plugin.account_settings
        secrets = {name: value for name, value in given.items() if accepts(value, given)}
        assert secrets, "no setting contains the secret of `sign`"
        for name, value in secrets.items():
            assert not accepts(value[0], given)
            assert not accepts(value[:-1], given)
            both = {**given, name: f"{value}, {value}2"}
            accepted = [accepts(value, both), accepts(f"{value}2", both)]
            # The second secret may be in another, optional setting.
            is_of_one = own is not None and bool(own.optional) and not any(accepted)
            assert all(accepted) or is_of_one, "operators must be able to set two secrets"

    def test_two_merchant_accounts_with_the_same_keys_are_refused(self, psp: PspUnderTest) -> None:
        with pytest.raises(PspSettingsError):
            read(psp, settings_of(psp) | settings_of(psp, MAIN))

    def test_the_error_about_incomplete_settings_names_the_missing_setting(
        self, psp: PspUnderTest
    ) -> None:
        given = settings_of(psp)

        for missing in given if len(given) > 1 else ():
            rest = {name: value for name, value in given.items() if name != missing}
            with pytest.raises(PspSettingsError, match=missing):
                read(psp, rest)

    def test_the_error_about_an_invalid_setting_does_not_show_its_value(
        self, psp: PspUnderTest
    ) -> None:
        for name, value in settings_of(psp).items():
            if is_address(value):
                continue
            given = {**settings_of(psp), name: "hidden-in-here é\n"}
            try:
                shown = repr(read(psp, given))
            except PspSettingsError as error:
                shown = str(error)
            assert "hidden-in-here" not in shown

    def test_the_error_about_an_address_without_https_names_the_setting(
        self, psp: PspUnderTest
    ) -> None:
        given = settings_of(psp)
        for name in (name for name, value in given.items() if is_address(value)):
            with pytest.raises(PspSettingsError, match=name):
                read(psp, {**given, name: "http://psp.example/v1"})

    @pytest.mark.parametrize("account", [DEFAULT_MERCHANT_ACCOUNT, OTHER])
    @for_each("what", lambda facts: facts.live_settings)
    def test_a_live_key_is_recognized(
        self, psp: PspUnderTest, what: str, account: MerchantAccount
    ) -> None:
        given = settings_of(psp, account)
        live = given | settings_of(psp, account, **psp.facts.live_settings)

        assert psp.plugin.live_setting(read(psp, given)) is None
        named = psp.plugin.live_setting(read(psp, live))
        assert named in {name for name in live if live[name] != given[name]}
        modes = [psp.plugin.is_live(read(psp, each), account) for each in (given, live)]
        assert modes in ([False, True], [None, None])

    @for_each("what", lambda facts: facts.live_settings)
    def test_the_word_live_or_test_in_the_middle_of_a_key_does_not_change_its_mode(
        self, psp: PspUnderTest, what: str
    ) -> None:
        test, live = psp.settings[what], psp.facts.live_settings[what]
        for value, is_live in ((f"{test}_live_0", False), (f"{live}_test_0", True)):
            changes = {**(psp.facts.live_settings if is_live else {}), what: value}
            given = settings_of(psp, DEFAULT_MERCHANT_ACCOUNT, **changes)
            # A setting that is no key, such as the mode itself, may have few values.
            with suppress(PspSettingsError):
                assert (psp.plugin.live_setting(read(psp, given)) is not None) is is_live


def is_address(value: str) -> bool:
    """Return whether a setting is an address, which is not secret."""
    return value.startswith(("http://", "https://"))


def settings_of(
    psp: PspUnderTest, account: MerchantAccount = DEFAULT_MERCHANT_ACCOUNT, **changes: str
) -> dict[str, str]:
    """Return the environment variables that an account needs.

    `changes` replaces values of `PspUnderTest.settings`.
    """
    own = psp.plugin.account_settings
    assert own is not None
    assert psp.settings.keys() == set(own.required), "give exactly the required settings"
    return {own.name(what, account): value for what, value in {**psp.settings, **changes}.items()}


def read(psp: PspUnderTest, environment: Mapping[str, str]) -> Any:  # Any: the plugin's own type
    """Read the settings of the plugin, as an installation with a public https address does."""
    file = Path("cardonfile.db")
    return psp.plugin.read(
        Surroundings(
            environment=environment, public_base_url="https://pay.example", database_file=file
        )
    )


@needs(Ability.STAND_IN)
class TestCalls:
    """Tests that `Facts.calls` states the right number of calls for each method.

    If the number were too low, the tests above would not make every call fail.
    """

    def test_reading_a_webhook_makes_no_call_to_the_psp(
        self, psp: PspUnderTest, session: Session
    ) -> None:
        delivery = signed(psp, session.event())
        psp.have(Trouble.CALL_LOST)

        assert session.adapter.read_webhook(delivery)

    @for_each("method", methods_of)
    def test_each_method_makes_at_most_the_stated_number_of_calls_to_the_psp(
        self, psp: PspUnderTest, session: Session, method: Method
    ) -> None:
        act = session.prepare(method)
        psp.have(Trouble.CALL_LOST, from_call=psp.facts.calls[method] + 1)

        act()

    def test_a_call_that_does_not_reach_the_psp_has_no_effect(
        self, psp: PspUnderTest, adapter: PaymentProvider
    ) -> None:
        psp.have(Trouble.CALL_LOST)
        with pytest.raises(ProviderUnavailable):
            adapter.start(a_request(psp))

        assert psp.count_pages() == 0

    def test_a_call_takes_full_effect_at_the_psp_even_if_its_response_is_lost(
        self, psp: PspUnderTest, adapter: PaymentProvider
    ) -> None:
        psp.have(Trouble.RESPONSE_LOST, from_call=psp.facts.calls[Method.START])
        with pytest.raises(ProviderUnavailable):
            adapter.start(a_request(psp))

        assert psp.count_pages() == 1
