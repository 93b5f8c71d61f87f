"""What every PSP adapter promises (`PaymentProvider` in domain/storage.py).

How to test an adapter of your own: `docs/adding-a-provider.md`.
"""

from __future__ import annotations

import hmac
import json
import re
import sys
import time
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import pytest

from adapters.psp.contract.concurrency import at_once
from adapters.psp.contract.samples import GUEST_ID, OTHER_GUEST_ID, a_uuid
from adapters.psp.contract.sessions import (
    ADDRESS,
    MINUTE,
    SECOND,
    Session,
    a_request,
    for_each,
    needs,
    watched,
)
from adapters.psp.contract.under_test import (
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
from adapters.psp.settings import PspSettingsError
from domain.billing import AvsResult, BillingInfo
from domain.identifiers import (
    DEFAULT_MERCHANT_ACCOUNT,
    CardToken,
    CenterId,
    GuestReference,
    MerchantAccount,
    TokenId,
)
from domain.psps.card import Card
from domain.psps.hosted_page import (
    CardCollected,
    Consent,
    Evidence,
    EvidenceOrigin,
    HostedPage,
    PageClosed,
    Pending,
    WebhookDelivery,
    WebhookNotice,
    consent_for,
)
from domain.psps.payment_provider import (
    PaymentProvider,
    ProviderRefused,
    ProviderUnavailable,
    WebhookRejected,
)

NOBODYS: Final = MerchantAccount("nobodys")
"""A merchant account without keys."""
JUNK: Final = ("", "{}", "null", "7", "[]", "<html>", "\x00", "\udc80", "é" * 4_096, "[" * 4_096)
NAMES: Final = (
    "Harbor *Spa* <b> & <script>Spa</script> &amp; &#42;",
    "_Harbor_ **Spa** `1` ~~2~~ # 3 [Spa](https://spa.example) https://www.spa.example",
    "{{ Harbor }} {% Spa %} $1 %s \\*",
)
"""Names of centers that hold HTML, Markdown and templates, which some PSPs would render."""
_TIME: Final = re.compile("[0-9]{10,}")
UNKNOWN: Final = ("0", "?0")
"""What makes another reference of one. A path must quote it."""
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


class TestStart:
    def test_a_page_has_a_reference_a_web_address_and_a_guest(self, session: Session) -> None:
        assert session.page.reference
        assert session.page.address.startswith(("https://", "http://"))
        assert session.page.guest_reference

    # Shows F2.
    def test_the_same_key_gives_the_same_page_again(
        self, psp: PspUnderTest, session: Session, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        psp.clock.advance(11 * MINUTE)
        slept: list[float] = []
        monkeypatch.setattr(time, "sleep", slept.append)

        assert session.adapter.start(session.request) == session.page
        assert psp.adapter().start(session.request) == session.page
        assert not any(slept), "an adapter waits only before it repeats a call that failed"

    @needs(Ability.STAND_IN)
    def test_the_same_key_gives_the_same_page_when_it_has_its_card(
        self, psp: PspUnderTest, session: Session
    ) -> None:
        session.type_card()
        psp.clock.advance(psp.facts.list_lag)

        assert session.adapter.start(session.request).reference == session.page.reference

    def test_the_next_attempt_and_another_session_have_pages_of_their_own(
        self, session: Session
    ) -> None:
        pages = [each.page for each in (session, session.next_attempt(), session.another())]

        assert len({page.reference for page in pages}) == 3
        assert len({page.address for page in pages}) == 3

    @pytest.mark.parametrize("minutes", [15, 120])
    def test_a_page_ends_at_live_until_or_later(
        self, psp: PspUnderTest, adapter: PaymentProvider, minutes: int
    ) -> None:
        request = a_request(psp, live_until=psp.clock.now() + minutes * MINUTE)

        assert adapter.start(request).ends_at >= request.live_until

    @pytest.mark.parametrize("guest_name", ["Zoë Null", ""])
    def test_neither_a_billing_address_nor_an_email_address_nor_a_name_is_needed(
        self, psp: PspUnderTest, adapter: PaymentProvider, guest_name: str
    ) -> None:
        assert adapter.start(
            a_request(psp, billing_info=None, avs=False, guest_name=guest_name, guest_email=None)
        ).reference

    @needs(Ability.STAND_IN, Ability.IDEMPOTENCY_KEYS)
    def test_concurrent_starts_with_one_key_make_one_page(
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


@needs(Ability.STAND_IN)
class TestPage:
    def test_the_guest_reads_the_longest_consent_that_it_shows(
        self, psp: PspUnderTest, session: Session
    ) -> None:
        assert session.request.consent.text in psp.read_page(session.page)
        consent = Consent(
            version="long", text="a" * (psp.plugin.capabilities.max_consent_length - 1) + "z"
        )

        assert consent.text in psp.read_page(session.another(consent=consent).page)

    @pytest.mark.parametrize("name", NAMES)
    def test_the_guest_reads_markup_in_the_consent_as_text(
        self, psp: PspUnderTest, session: Session, name: str
    ) -> None:
        consent = Consent(version="marked up", text=f"You allow {name} to charge the card.")

        page = session.another(center_name=name, consent=consent).page

        assert consent.text in psp.read_page(page)

    def test_it_leads_back_to_the_two_addresses_of_the_request(
        self, psp: PspUnderTest, session: Session
    ) -> None:
        ways_out = psp.ways_out(session.page)

        # A PSP may add to the query. A second "?" would be read as a part of the last value.
        for way_out, requested in (
            (ways_out.with_card, session.request.return_uri),
            (ways_out.without, session.request.cancel_uri),
        ):
            assert way_out.partition("?")[0] == requested.partition("?")[0]
            query = parse_qs(urlsplit(way_out).query, strict_parsing=True)
            assert query.items() >= parse_qs(urlsplit(requested).query).items()

    def test_it_takes_a_card_up_to_its_end(self, psp: PspUnderTest, session: Session) -> None:
        psp.clock.advance(session.page.ends_at - psp.clock.now() - SECOND)
        assert session.outcome() == Pending()

        session.collect()

    def test_it_takes_no_card_from_its_end_on(self, psp: PspUnderTest, session: Session) -> None:
        psp.clock.advance(session.page.ends_at - psp.clock.now())

        session.type_card()
        session.close()

        assert session.outcome() == PageClosed()
        assert psp.tokens(MAIN) == frozenset()


class TestGuestReference:
    def test_a_guest_who_is_known_keeps_the_reference(self, session: Session) -> None:
        reference = session.page.guest_reference

        assert session.another(guest_reference=reference).page.guest_reference == reference

    @pytest.mark.parametrize("was_known", [True, False])
    def test_a_guest_whom_the_psp_does_not_know_gets_a_new_one(
        self, psp: PspUnderTest, session: Session, was_known: bool
    ) -> None:
        reference = session.page.guest_reference if was_known else GuestReference("guest_of_nobody")
        if was_known:
            psp.forget_guest(MAIN, reference)

        again = session.another(guest_reference=reference)

        assert again.page.guest_reference not in ("", reference)

    def test_another_guest_has_another_one(self, session: Session) -> None:
        other = session.another(guest_id=OTHER_GUEST_ID)

        assert other.page.guest_reference != session.page.guest_reference

    # Shows S28.
    @pytest.mark.parametrize(
        "changes", [{"center_id": CenterId(a_uuid(2))}, {"guest_name": "", "guest_email": None}]
    )
    def test_a_guest_has_another_one_at_another_center_and_without_a_name(
        self, session: Session, changes: Mapping[str, Any]
    ) -> None:
        assert session.another(**changes).page.guest_reference != session.page.guest_reference

    @pytest.mark.parametrize("is_known", [True, False])
    def test_a_guest_is_somebody_else_at_another_merchant_account(
        self, session: Session, is_known: bool
    ) -> None:
        reference = session.page.guest_reference if is_known else None

        there = session.another(merchant_account=OTHER, guest_reference=reference)

        assert there.page.guest_reference != session.page.guest_reference


class TestOutcome:
    def test_nothing_typed_is_pending(self, session: Session) -> None:
        assert session.outcome() == Pending()

    @pytest.mark.parametrize("suffix", UNKNOWN)
    def test_an_unknown_page_is_closed(self, session: Session, suffix: str) -> None:
        unknown = replace(session.page, reference=session.page.reference + suffix)

        assert session.adapter.outcome(session.request, unknown, ()) == PageClosed()

    @pytest.mark.parametrize("origin", EvidenceOrigin)
    def test_forged_evidence_changes_nothing(
        self, session: Session, origin: EvidenceOrigin
    ) -> None:
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
    return [Evidence(origin=origin, content=each, received_at=now) for each in contents]


@needs(Ability.STAND_IN)
class TestCard:
    @pytest.mark.parametrize("typed", [GuestCard.GOOD, GuestCard.ANOTHER_GOOD])
    def test_a_card_has_every_field(
        self, psp: PspUnderTest, session: Session, typed: GuestCard
    ) -> None:
        outcome = session.collect(typed, expiry=(9, 2031))

        printed, card = psp.facts.cards[typed], outcome.card
        assert card == Card(
            guest_reference=session.page.guest_reference,
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

    def test_the_outcome_is_always_the_same(self, psp: PspUnderTest, session: Session) -> None:
        psp.clock.advance(5 * MINUTE)
        typed_at = psp.clock.now()
        session.type_card()
        psp.clock.advance(2 * MINUTE)

        outcome = session.outcome()

        assert isinstance(outcome, CardCollected)
        # Exact to the unit of the PSP's times, without further rounding.
        assert timedelta(0) <= typed_at - outcome.collected_at < psp.facts.resolution
        assert outcome.collected_at.tzinfo is UTC
        psp.clock.advance(24 * 60 * MINUTE)
        assert session.outcome() == outcome

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

    def test_after_a_refused_card_the_page_takes_another(
        self, psp: PspUnderTest, session: Session
    ) -> None:
        session.type_card(GuestCard.REFUSED)
        assert session.outcome() == psp.facts.after_refusal
        assert psp.tokens(MAIN) == frozenset()

        assert session.collect().card.last_four == psp.facts.cards[GuestCard.GOOD].number[-4:]

    def test_a_card_is_pending_during_the_challenge(
        self, psp: PspUnderTest, session: Session
    ) -> None:
        session.type_card(GuestCard.CHALLENGED)
        assert session.outcome() == Pending()
        assert psp.tokens(MAIN) == frozenset()

        psp.answer_challenge(session.page, confirmed=True)

        outcome = session.outcome()
        assert isinstance(outcome, CardCollected)
        assert psp.tokens(MAIN) == {outcome.card.token}

    def test_after_a_failed_challenge_the_page_takes_another_card(
        self, psp: PspUnderTest, session: Session
    ) -> None:
        session.type_card(GuestCard.CHALLENGED)
        psp.answer_challenge(session.page, confirmed=False)
        assert session.outcome() == psp.facts.after_refusal
        assert psp.tokens(MAIN) == frozenset()

        session.collect()

    def test_a_refused_card_does_not_hide_what_comes_later(self, session: Session) -> None:
        session.type_card(GuestCard.REFUSED)
        session.type_card(GuestCard.CHALLENGED)
        assert isinstance(session.outcome(), Pending)

        session.close()

        assert isinstance(session.outcome(), PageClosed)

    # Shows I5.
    def test_a_card_belongs_to_the_page_that_it_was_typed_on(self, session: Session) -> None:
        session.another(guest_reference=session.page.guest_reference).collect()

        assert session.outcome() == Pending()

    # Shows I5.
    def test_it_is_stored_where_it_was_asked_for(self, psp: PspUnderTest, session: Session) -> None:
        there = session.another(merchant_account=OTHER)
        card = there.collect().card

        assert psp.tokens(MAIN) == frozenset()
        assert psp.tokens(OTHER) == {card.token}
        there.discard(card)
        assert psp.tokens(OTHER) == frozenset()

    def test_forged_evidence_hides_no_card(self, psp: PspUnderTest, session: Session) -> None:
        session.type_card()
        junk = [each for origin in EvidenceOrigin for each in evidence_of(psp, origin, *JUNK)]
        evidence = [*junk, *psp.evidence(session.page), *junk]

        outcome = session.adapter.outcome(session.request, session.page, evidence)

        assert outcome == session.outcome()

    def test_its_fingerprint_depends_on_the_number_alone(self, session: Session) -> None:
        first = session.collect(expiry=(9, 2031)).card
        second = session.another(guest_id=OTHER_GUEST_ID).collect(expiry=(1, 2033)).card
        another = session.another(guest_id=GUEST_ID).collect(GuestCard.ANOTHER_GOOD).card

        assert first.fingerprint == second.fingerprint != another.fingerprint


class TestClose:
    def test_a_page_may_be_closed_twice(self, session: Session) -> None:
        session.close()
        session.close()

        assert session.outcome() == PageClosed()
        assert session.outcome() == PageClosed()

    @pytest.mark.parametrize("suffix", UNKNOWN)
    def test_a_page_that_is_unknown_may_be_closed(self, session: Session, suffix: str) -> None:
        unknown = replace(session.page, reference=session.page.reference + suffix)

        session.adapter.close(session.request, unknown)

        assert session.outcome() == Pending()

    def test_a_page_is_closed_where_it_was_made(self, session: Session) -> None:
        there = session.another(merchant_account=OTHER)
        assert there.outcome() == Pending()

        there.close()

        assert there.outcome() == PageClosed()

    def test_the_next_attempt_is_not_closed_with_it(self, session: Session) -> None:
        following = session.next_attempt()

        session.close()

        assert following.outcome() == Pending()


@needs(Ability.STAND_IN)
class TestClosedPage:
    def test_it_takes_no_card(self, psp: PspUnderTest, session: Session) -> None:
        session.close()

        session.type_card()

        assert session.outcome() == PageClosed()
        assert psp.tokens(MAIN) == frozenset()

    def test_its_challenge_is_over_too(self, psp: PspUnderTest, session: Session) -> None:
        session.type_card(GuestCard.CHALLENGED)
        session.close()

        psp.answer_challenge(session.page, confirmed=True)

        assert session.outcome() == PageClosed()
        assert psp.tokens(MAIN) == frozenset()

    def test_it_keeps_the_card_that_it_had(self, psp: PspUnderTest, session: Session) -> None:
        outcome = session.collect()

        session.close()

        assert session.outcome() == outcome
        assert psp.tokens(MAIN) == {outcome.card.token}


class TestDiscard:
    def test_a_token_that_is_unknown_may_be_discarded(self, session: Session) -> None:
        unknown = CardToken("token_of_nothing")

        session.adapter.discard(MAIN, session.page.guest_reference, unknown)
        session.adapter.discard(MAIN, GuestReference("guest_of_nobody"), unknown)


@needs(Ability.STAND_IN)
class TestDiscardedToken:
    def test_it_alone_is_gone_and_may_be_discarded_twice(
        self, psp: PspUnderTest, session: Session
    ) -> None:
        kept = session.another().collect(GuestCard.ANOTHER_GOOD).card
        card = session.collect().card

        session.discard(card)
        session.discard(card)

        assert psp.tokens(MAIN) == {kept.token}

    def test_it_stays_when_another_merchant_account_discards_it_or_another_token_is_discarded(
        self, psp: PspUnderTest, session: Session
    ) -> None:
        card = session.collect().card

        session.adapter.discard(OTHER, card.guest_reference, card.token)
        for suffix in UNKNOWN:
            session.discard(replace(card, token=CardToken(card.token + suffix)))

        assert psp.tokens(MAIN) == {card.token}

    # Shows F11.
    def test_its_page_does_not_bring_it_back(self, psp: PspUnderTest, session: Session) -> None:
        session.discard(session.collect().card)

        assert session.outcome() in (Pending(), PageClosed())
        # A PSP may attach a card to its guest for a while after it was typed.
        psp.clock.advance(session.page.ends_at - psp.clock.now() + 5 * MINUTE)
        assert session.outcome() == PageClosed()

    def test_the_same_card_may_be_added_again(self, psp: PspUnderTest, session: Session) -> None:
        card = session.collect().card
        session.discard(card)
        psp.clock.advance(MINUTE)

        again = session.another(guest_reference=card.guest_reference).collect()

        assert again.card.fingerprint == card.fingerprint
        assert psp.tokens(MAIN) == {again.card.token}
        assert timedelta(0) <= psp.clock.now() - again.collected_at < psp.facts.resolution


def sessions_of(notices: Iterable[WebhookNotice], *known: Session) -> set[TokenId | None]:
    """Return the sessions that notices name, among those known; None for any other."""
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
    @for_each(("kind",), lambda facts: ((kind,) for kind in facts.telling_events))
    def test_one_about_a_session_names_it_and_no_guest(
        self, psp: PspUnderTest, session: Session, kind: str
    ) -> None:
        body = session.event(kind)

        notices = session.adapter.read_webhook(signed(psp, body))

        assert sessions_of(notices, session) == {session.request.token_id}
        assert {notice.merchant_account for notice in notices} == {MAIN}
        assert session.request.guest_email is not None
        for notice in notices:
            assert session.request.guest_email not in notice.content
            assert session.request.guest_name not in notice.content
            assert len(notice.content) < len(body), "content is the whole body"
        # Its content is the same when it is delivered again, and readable as evidence.
        psp.clock.advance(MINUTE)
        assert list(psp.adapter().read_webhook(signed(psp, body))) == list(notices)
        contents = [notice.content for notice in notices]
        evidence = evidence_of(psp, EvidenceOrigin.WEBHOOK, *contents, *contents)
        session.adapter.outcome(session.request, session.page, evidence)

    @for_each(("kind",), lambda facts: ((kind,) for kind in facts.silent_events))
    def test_one_about_something_else_names_no_session(
        self, psp: PspUnderTest, session: Session, kind: str
    ) -> None:
        assert list(session.adapter.read_webhook(signed(psp, session.event(kind)))) == []

    @for_each(("fault",), lambda facts: ((fault,) for fault in facts.broken_events))
    def test_a_broken_one_is_rejected_even_if_it_is_signed(
        self, psp: PspUnderTest, adapter: PaymentProvider, fault: str
    ) -> None:
        assert_rejected(adapter, [signed(psp, psp.facts.broken_events[fault])])

    # Shows F33.
    @for_each(("whom",), lambda facts: ((whom,) for whom in facts.misdirected))
    def test_one_that_is_meant_for_somebody_else_is_rejected(
        self, psp: PspUnderTest, session: Session, whom: str
    ) -> None:
        assert_rejected(session.adapter, [psp.misdirect(whom, session.request, session.page)])


@needs(Ability.BATCHES)
class TestBatch:
    def test_every_event_of_it_is_read(self, psp: PspUnderTest, session: Session) -> None:
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

    def test_by_another_secret_it_is_rejected(
        self, psp: PspUnderTest, adapter: PaymentProvider, delivery: WebhookDelivery
    ) -> None:
        forged = [signed(psp, delivery.body, secret=each) for each in ("a guess", OTHER_SECRET)]
        forged.append(replace(delivery, merchant_account=OTHER))

        assert_rejected(adapter, forged)

    # Shows S13.
    def test_over_another_body_it_is_rejected(
        self, adapter: PaymentProvider, delivery: WebhookDelivery
    ) -> None:
        body = delivery.body
        altered = (body + b" ", body.replace(b"a", b"b"), body[:-1], b"")

        assert_rejected(adapter, (replace(delivery, body=each) for each in altered))

    def test_one_that_is_missing_or_malformed_is_rejected(
        self, adapter: PaymentProvider, delivery: WebhookDelivery
    ) -> None:
        malformed: list[Mapping[str, str]] = [{}]
        for value in ("", "x", "=", ",", "é", "\x00", "," * 9_999):
            malformed += ({**delivery.headers, name: value} for name in delivery.headers)

        assert_rejected(adapter, (replace(delivery, headers=each) for each in malformed))

    # Shows S13.
    def test_one_that_is_damaged_anywhere_is_rejected_or_means_the_same(
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
    def test_it_is_compared_in_constant_time(
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

        # A module may have imported it under a name of its own.
        for module in list(sys.modules.values()):
            for name in [name for name, each in vars(module).items() if each is really]:
                monkeypatch.setattr(module, name, compare)

        forged = signed(psp, delivery.body, secret="a guess")
        with pytest.raises(WebhookRejected):
            adapter.read_webhook(forged)

        headers = "\n".join(forged.headers.values()).encode()
        assert any(len(each) >= 16 and each in headers for each in compared)

    # Shows S13.
    @pytest.mark.parametrize("secrets", [[""], [" "], [SECRET, ""], ["\n", SECRET]])
    def test_a_blank_secret_is_refused_when_the_adapter_is_made(
        self, psp: PspUnderTest, secrets: list[str]
    ) -> None:
        with pytest.raises(ValueError, match="secret"):
            psp.adapter(secrets)

    def test_over_a_body_that_is_no_event_it_is_rejected(
        self, psp: PspUnderTest, adapter: PaymentProvider
    ) -> None:
        assert_rejected(adapter, (signed(psp, body) for body in BROKEN_JSON))
        # An empty list may be an empty batch.
        with suppress(WebhookRejected):
            assert list(adapter.read_webhook(signed(psp, b"[]"))) == []

    # Shows F34.
    def test_while_secrets_change_the_old_and_the_new_are_accepted(
        self, psp: PspUnderTest, delivery: WebhookDelivery
    ) -> None:
        adapter = psp.adapter(["a new secret", SECRET])

        assert adapter.read_webhook(signed(psp, delivery.body, secret="a new secret"))
        assert adapter.read_webhook(delivery)

    # Shows F34.
    def test_after_secrets_have_changed_the_old_is_rejected(
        self, psp: PspUnderTest, delivery: WebhookDelivery
    ) -> None:
        assert_rejected(psp.adapter(["a new secret"]), [delivery])


@needs(Ability.SIGNED_WEBHOOKS, Ability.SIGNED_TIMES)
class TestSignedTime:
    @pytest.mark.parametrize("seconds", [-300, 300])
    def test_it_may_be_300_seconds_off(
        self, psp: PspUnderTest, session: Session, seconds: int
    ) -> None:
        delivery = psp.sign(session.event(), at=psp.clock.now() + seconds * SECOND)

        assert session.adapter.read_webhook(delivery)

    # Shows S13.
    @pytest.mark.parametrize("seconds", [-(10**9), -301, 301, 10**9])
    def test_too_old_or_too_far_ahead_it_is_rejected(
        self, psp: PspUnderTest, session: Session, seconds: int
    ) -> None:
        delivery = psp.sign(session.event(), at=psp.clock.now() + seconds * SECOND)

        assert_rejected(session.adapter, [delivery])

    @pytest.mark.parametrize("odd", ["²", "٣", "9" * 5_000, "-1", "nan", "1e9"])
    def test_one_that_is_no_number_is_rejected(
        self, psp: PspUnderTest, session: Session, odd: str
    ) -> None:
        delivery = signed(psp, session.event())
        headers = {name: _TIME.sub(odd, value) for name, value in delivery.headers.items()}

        if headers != delivery.headers:
            assert_rejected(session.adapter, [replace(delivery, headers=headers)])


def each_call(facts: Facts) -> Iterator[tuple[Method, int]]:
    """Yield each call that each method makes."""
    return ((method, call) for method in Method for call in range(1, facts.calls[method] + 1))


def each_outage(facts: Facts) -> Iterator[tuple[object, ...]]:
    """Yield troubles at each call of each method, which last, or at this call alone (1).

    None of them is permanent: it passes, or an operator corrects the key or the address.
    """
    is_remote = Ability.REMOTE in facts.abilities
    lasting = [Trouble.CALL_LOST, Trouble.RESPONSE_LOST]
    single = [*lasting, *([Trouble.NONSENSE, Trouble.OUT_OF_ORDER] if is_remote else [])]
    if is_remote:  # those that are declared from 401 on
        lasting += list(Trouble)[list(Trouble).index(Trouble.UNAUTHORIZED) :]
    for method, call in each_call(facts):
        tells = method in (Method.OUTCOME, Method.OUTCOME_WITH_CARD, Method.CLOSE)
        misunderstood = (Trouble.NONSENSE, Trouble.UNKNOWN_STATUS) if tells else ()
        yield from ((method, call, trouble, None) for trouble in (*lasting, *misunderstood))
        yield from ((method, call, trouble, 1) for trouble in single)


def after(method: Method, before: object) -> object:
    """Return the effect of a method that was done once."""
    match method, before:
        case Method.START, int(pages):
            return pages + 1
        case Method.CLOSE, _:
            return PageClosed()
        case Method.DISCARD, _:
            return frozenset()
        case _:
            return before


@needs(Ability.STAND_IN)
class TestTrouble:
    # Shows F19, F20, F22, F23, S7.
    @for_each(("method", "call", "trouble", "calls"), each_outage)
    def test_that_passes_lets_a_method_do_its_work_once(
        self,
        psp: PspUnderTest,
        session: Session,
        method: Method,
        call: int,
        trouble: Trouble,
        calls: int | None,
    ) -> None:
        act = session.prepare(method)
        before, first = session.effect(method), None
        psp.have(trouble, from_call=call, calls=calls)
        # A method may send a single call again by itself.
        with suppress(ProviderUnavailable) if calls else pytest.raises(ProviderUnavailable):
            first = act()
        psp.recover()
        psp.clock.advance(psp.facts.list_lag)

        again = act()

        assert first in (None, again)
        psp.clock.advance(psp.facts.list_lag)
        assert act() == again
        assert session.effect(method) == after(method, before)
        if method is Method.START and Ability.IDEMPOTENCY_KEYS in psp.facts.abilities:
            assert len(psp.guests(MAIN)) == 2

    @for_each(("method", "call"), each_call)
    def test_that_is_a_refusal_means_that_nothing_was_done(
        self, psp: PspUnderTest, session: Session, method: Method, call: int
    ) -> None:
        act = session.prepare(method)
        before = session.effect(method)
        psp.have(Trouble.REFUSED, from_call=call)
        with pytest.raises((ProviderRefused, ProviderUnavailable)) as raised:
            act()
        psp.recover()

        # ProviderUnavailable, if an earlier call of the method may have done something.
        is_refused = isinstance(raised.value, ProviderRefused)
        assert is_refused or call > 1
        assert session.effect(method) == before or not is_refused
        if method is Method.START:
            before, act = session.effect(method), session.prepare(method)
        act()
        assert session.effect(method) == after(method, before)


@needs(Ability.STAND_IN, Ability.REMOTE)
class TestDeadline:
    """Every method ends within 5 seconds, whatever the PSP sends."""

    # Shows F21.
    def test_a_response_that_drips_or_never_comes_ends_each_method(
        self, psp: PspUnderTest, tmp_path: Path
    ) -> None:
        # Each call by itself stays below the deadline if the method makes several. An adapter
        # without a deadline for the whole method gets a sound response in the end.
        def attempt(number: int) -> None:
            method = [*Method, None][number // 2]
            folder = tmp_path / str(number)
            folder.mkdir()
            with closing(type(psp)(folder)) as dripping:
                adapter = watched(dripping, dripping.adapter(), [])
                session = Session(dripping, adapter, a_request(dripping), [])
                act = session.prepare(method or Method.START)
                calls = dripping.facts.calls[method] if method else 1
                if method is None:  # a page that exists already
                    act()
                    dripping.clock.advance(dripping.facts.list_lag)
                if number % 2:
                    dripping.fall_silent()
                else:
                    dripping.drip(5.5 / calls)
                with pytest.raises(ProviderUnavailable):
                    act()

        at_once(2 * len([*Method, None]), attempt)


@needs(Ability.REMOTE)
class TestMerchantAccountWithoutKeys:
    """Its sessions and discards wait, because it may get keys again."""

    def test_no_call_is_refused_for_good(self, session: Session) -> None:
        elsewhere = replace(session.request, merchant_account=NOBODYS)
        page, adapter = session.page, session.adapter

        for act in (
            lambda: adapter.start(elsewhere),
            lambda: adapter.outcome(elsewhere, page, ()),
            lambda: adapter.close(elsewhere, page),
            lambda: adapter.discard(NOBODYS, page.guest_reference, CardToken("token")),
        ):
            with pytest.raises(ProviderUnavailable):
                act()

    # An address without a name means the account `default`, which has no keys here either.
    @pytest.mark.parametrize("account", [NOBODYS, None])
    def test_no_webhook_to_it_is_accepted(
        self, psp: PspUnderTest, session: Session, account: MerchantAccount | None
    ) -> None:
        for secret in (SECRET, OTHER_SECRET):
            delivery = signed(psp, session.event(), secret=secret)

            with pytest.raises((ProviderUnavailable, WebhookRejected)):
                session.adapter.read_webhook(replace(delivery, merchant_account=account))


@needs(Ability.STAND_IN, Ability.REMOTE)
class TestIdentity:
    """None is fine: not every PSP identifies the merchant of a key."""

    def test_it_is_always_the_same_for_a_merchant_and_another_for_any_other(
        self, psp: PspUnderTest, adapter: PaymentProvider
    ) -> None:
        main, other = (adapter.identity(account) for account in (MAIN, OTHER))
        psp.clock.advance(MINUTE)

        assert adapter.identity(MAIN) == main
        assert psp.adapter(["another secret"]).identity(MAIN) == main
        assert main is other is None or len({main, other, None}) == 3
        for identity in filter(None, (main, other)):
            if psp.facts.live_settings:
                assert re.search(r"\btest\b", identity), "an identity tells the mode"
            assert not any(secret in identity for secret in (*psp.keys, SECRET, OTHER_SECRET))

    def test_without_keys_there_is_none(self, adapter: PaymentProvider) -> None:
        with suppress(ProviderUnavailable):
            assert adapter.identity(NOBODYS) is None

    def test_an_outage_does_not_change_it(
        self, psp: PspUnderTest, adapter: PaymentProvider
    ) -> None:
        sound = adapter.identity(MAIN)
        for trouble in (each for each in Trouble if each is not Trouble.UNKNOWN_STATUS):
            psp.have(trouble)
            with suppress(ProviderUnavailable, ProviderRefused):
                assert adapter.identity(MAIN) in (None, sound)
            psp.recover()
            assert adapter.identity(MAIN) == sound


class TestPlugin:
    def test_it_has_a_name_that_settings_and_addresses_can_hold(self, psp: PspUnderTest) -> None:
        assert re.fullmatch("[a-z][a-z0-9_]*", psp.plugin.name)

    def test_its_page_has_room_for_a_consent(self, psp: PspUnderTest) -> None:
        assert psp.plugin.capabilities.max_consent_length >= len(consent_for("Harbor Spa").text)


@needs(Ability.REMOTE)
class TestSettings:
    def test_without_any_the_psp_is_not_set_up(self, psp: PspUnderTest) -> None:
        assert read(psp, {}) is None

    def test_an_account_is_read_and_its_secrets_are_not_shown(self, psp: PspUnderTest) -> None:
        settings = read(psp, settings_of(psp))

        assert settings is not None
        assert set(psp.plugin.accounts(settings) or [DEFAULT_MERCHANT_ACCOUNT]) == {
            DEFAULT_MERCHANT_ACCOUNT
        }
        for value in psp.settings.values():
            assert is_address(value) or value not in f"{settings!r} {settings}"

    @needs(Ability.SIGNED_WEBHOOKS)
    def test_an_adapter_made_from_them_accepts_each_secret_and_nothing_shorter(
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

        given = settings_of(psp)
        secrets = {name: value for name, value in given.items() if accepts(value, given)}
        assert secrets, "no setting is the secret of `sign`"
        for name, value in secrets.items():
            assert not accepts(value[0], given)
            assert not accepts(value[:-1], given)
            both = {**given, name: f"{value}, {value}2"}
            assert accepts(value, both) == accepts(f"{value}2", both)

    def test_two_accounts_with_the_same_are_refused(self, psp: PspUnderTest) -> None:
        with pytest.raises(PspSettingsError):
            read(psp, settings_of(psp) | settings_of(psp, MAIN))

    def test_a_missing_one_is_named(self, psp: PspUnderTest) -> None:
        given = settings_of(psp)

        for missing in given if len(given) > 1 else ():
            rest = {name: value for name, value in given.items() if name != missing}
            with pytest.raises(PspSettingsError, match=missing):
                read(psp, rest)

    def test_the_value_of_a_wrong_one_is_not_shown(self, psp: PspUnderTest) -> None:
        for name, value in settings_of(psp).items():
            if is_address(value):
                continue
            given = {**settings_of(psp), name: "hidden-in-here é\n"}
            try:
                shown = repr(read(psp, given))
            except PspSettingsError as error:
                shown = str(error)
            assert "hidden-in-here" not in shown


def is_address(value: str) -> bool:
    """Return whether a setting is an address, which is no secret."""
    return value.startswith(("http://", "https://"))


def settings_of(
    psp: PspUnderTest, account: MerchantAccount = DEFAULT_MERCHANT_ACCOUNT, **changes: str
) -> dict[str, str]:
    """Return the environment variables that an account needs."""
    own = psp.plugin.account_settings
    assert own is not None
    assert psp.settings.keys() == set(own.required), "state `settings` of an account"
    return {own.name(what, account): value for what, value in {**psp.settings, **changes}.items()}


def read(psp: PspUnderTest, environment: Mapping[str, str]) -> Any:  # Any: the plugin's own type
    """Read the settings of an installation on the internet."""
    file = Path("cardonfile.db")
    return psp.plugin.read(
        Surroundings(
            environment=environment, public_base_url="https://pay.example", database_file=file
        )
    )


@needs(Ability.STAND_IN)
class TestCalls:
    """Without these, the tests above might fail no call, or not each."""

    def test_reading_a_webhook_makes_none(self, psp: PspUnderTest, session: Session) -> None:
        delivery = signed(psp, session.event())
        psp.have(Trouble.CALL_LOST)

        assert session.adapter.read_webhook(delivery)

    @pytest.mark.parametrize("method", Method)
    def test_each_other_method_makes_as_many_as_stated(
        self, psp: PspUnderTest, session: Session, method: Method
    ) -> None:
        act = session.prepare(method)
        psp.have(Trouble.CALL_LOST, from_call=psp.facts.calls[method] + 1)

        act()

    def test_a_lost_call_does_nothing_and_one_whose_response_is_lost_does_all(
        self, psp: PspUnderTest, adapter: PaymentProvider
    ) -> None:
        request = a_request(psp)
        psp.have(Trouble.CALL_LOST)
        with pytest.raises(ProviderUnavailable):
            adapter.start(request)
        assert psp.count_pages() == 0
        psp.recover()

        psp.have(Trouble.RESPONSE_LOST, from_call=psp.facts.calls[Method.START])
        with pytest.raises(ProviderUnavailable):
            adapter.start(request)
        assert psp.count_pages() == 1
