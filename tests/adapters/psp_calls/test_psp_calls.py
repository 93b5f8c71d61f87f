from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest
from structlog.testing import capture_logs

from adapters.fake_psp.plugin import NAME as FAKE
from adapters.psp_calls.bulkhead import Bulkhead
from adapters.psp_calls.circuit_breaker import (
    HANGS_BEFORE_PAUSE,
    PAUSE_SECONDS,
    CircuitBreaker,
    CircuitBreakers,
)
from adapters.psp_calls.guarded_provider import GuardedProvider
from adapters.psp_calls.outages import OutageLog
from domain.identifiers import CardToken, MerchantAccount, PspAccount
from domain.psps.payment_provider import (
    FailureDetails,
    NotFound,
    ProviderRefused,
    ProviderUnavailable,
)
from domain.psps.recognize_merchant import AnotherMerchant
from domain.sessions.polling import ASK_AGAIN_AFTER
from tests.installation import DECLINED_CARD, MERCHANT, Installation, Trouble

AT_FAKE: Final = PspAccount(FAKE, MERCHANT)
AT_HARBOR: Final = PspAccount(FAKE, MerchantAccount("harbor"))


class TestBulkhead:
    # Shows F22.
    def test_a_hanging_psp_leaves_threads_free_for_other_requests(
        self, installation: Installation
    ) -> None:
        session, opened = installation.add_card(), installation.opened_session()
        bulkhead = installation.container.bulkhead()
        with capture_logs() as lines, ExitStack() as hanging:
            for _ in range(installation.settings.psp_calls):
                hanging.enter_context(bulkhead.around_call())
            with pytest.raises(ProviderUnavailable):
                installation.open_page(session)
            installation.return_to_shop(opened)
            assert installation.add_card().token_id != session.token_id

        # A call that the bulkhead stops says nothing about the PSP.
        assert [line for line in lines if line["event"].startswith("psp_")] == []
        installation.clock.advance(ASK_AGAIN_AFTER)
        assert installation.open_page(session)

    def test_many_guests_can_open_their_pages_concurrently(
        self, installation: Installation
    ) -> None:
        sessions = [installation.add_card() for _ in range(24)]

        with ThreadPoolExecutor(12) as pool:
            addresses = set(pool.map(installation.open_page, sessions))

        assert len(addresses) == 24


class TestCircuitBreaker:
    @pytest.fixture(autouse=True)
    def _own_time(self) -> None:
        self.seconds = 0.0
        self.breaker = CircuitBreaker(AT_FAKE, lambda: self.seconds)

    def call(self, *, takes: float, fault: Exception | None = None) -> None:
        with self.breaker.around_call():
            self.seconds += takes
            if fault is not None:
                raise fault

    def hang(self, times: int = HANGS_BEFORE_PAUSE) -> None:
        for _ in range(times):
            with pytest.raises(ProviderUnavailable, match="timed out"):
                self.call(takes=5, fault=ProviderUnavailable("timed out"))

    def assert_open(self) -> None:
        with pytest.raises(ProviderUnavailable, match="breaker is open"):
            self.call(takes=0)

    # Shows F22.
    def test_the_circuit_breaker_opens_after_three_timeouts_in_a_row(self) -> None:
        with capture_logs() as lines:
            self.hang()

        self.assert_open()
        assert self.breaker.capacity(12) == 0
        (line,) = lines
        assert (line["event"], line["provider"], line["merchant_account"]) == (
            "psp_paused",
            *AT_FAKE,
        )

    def test_a_successful_trial_call_after_the_pause_closes_the_circuit_breaker(self) -> None:
        self.hang()
        self.seconds += PAUSE_SECONDS
        assert self.breaker.capacity(12) == 1
        with self.breaker.around_call():
            self.assert_open()
        self.call(takes=0)
        assert self.breaker.capacity(12) == 12

    def test_a_trial_call_that_times_out_reopens_the_circuit_breaker(self) -> None:
        self.hang()
        self.seconds += PAUSE_SECONDS
        self.hang(1)
        self.assert_open()

    @pytest.mark.parametrize(
        ("takes", "fault"),
        [(1, None), (1, ProviderUnavailable("503")), (5, ProviderRefused("no")), (5, None)],
    )
    def test_any_response_resets_the_circuit_breakers_count_of_timeouts(
        self, takes: float, fault: Exception | None
    ) -> None:
        self.hang(2)
        with suppress(ProviderUnavailable, ProviderRefused):
            self.call(takes=takes, fault=fault)
        self.hang(2)
        self.call(takes=0)

    def be_limited(self, asked: timedelta, *, takes: float = 0) -> None:
        with pytest.raises(ProviderUnavailable, match="429"):
            self.call(takes=takes, fault=ProviderUnavailable("429", retry_after=asked))

    @pytest.mark.parametrize(
        ("hangs", "takes", "asked", "seconds"),
        [
            (0, 0, timedelta(seconds=7), 7),
            (0, 0, timedelta(days=1), 60),
            (HANGS_BEFORE_PAUSE - 1, 5, timedelta(seconds=3), PAUSE_SECONDS),
            (HANGS_BEFORE_PAUSE - 1, 5, timedelta(seconds=30), 30),
        ],
    )
    def test_the_circuit_breaker_stays_open_for_the_pause_requested_by_the_psp_up_to_a_minute(
        self, hangs: int, takes: float, asked: timedelta, seconds: float
    ) -> None:
        self.hang(hangs)
        self.be_limited(asked, takes=takes)
        self.seconds += seconds - 1
        self.assert_open()
        self.seconds += 1
        self.call(takes=0)

    def test_each_merchant_account_has_its_own_circuit_breaker(
        self, installation: Installation
    ) -> None:
        breakers = CircuitBreakers(lambda: self.seconds)
        self.breaker = breakers.of(AT_FAKE)
        self.hang()
        guarded = GuardedProvider(
            FAKE,
            installation.provider,
            bulkhead=Bulkhead(1),
            breakers=breakers,
            outages=OutageLog(),
            merchants=installation.container.merchants(),
        )
        attempt = installation.opened_session().current_attempt
        request, page, card = attempt.request, attempt.page, CardToken("card_1")
        assert page is not None

        for call in (
            lambda: guarded.start(request),
            lambda: guarded.outcome(request, page, ()),
            lambda: guarded.close(request, page),
            lambda: guarded.discard(MERCHANT, page.guest_reference, card),
        ):
            with pytest.raises(ProviderUnavailable, match="breaker is open"):
                call()
        with pytest.raises(NotFound):
            guarded.discard(AT_HARBOR.merchant_account, page.guest_reference, card)
        assert breakers.capacities(12) == {AT_FAKE: 0, AT_HARBOR: 12}


def fail(
    outages: OutageLog,
    failure: Exception | None = None,
    *,
    at: PspAccount = AT_FAKE,
    operation: str = "start",
) -> None:
    """Let a call fail, by default because the PSP is unavailable."""
    failure = failure or ProviderUnavailable("away")
    with suppress(type(failure)), outages.around_call(at, operation):
        raise failure


class TestOutages:
    def test_an_outage_is_logged_only_at_its_start_and_end(
        self, installation: Installation
    ) -> None:
        sessions = [installation.opened_session() for _ in range(2)]
        with capture_logs() as lines:
            installation.provider.have(Trouble.AFTER_IT_ACTED)
            for session in sessions:
                installation.return_to_shop(session)
            installation.provider.recover()
            installation.clock.advance(ASK_AGAIN_AFTER)
            for session in sessions:
                installation.return_to_shop(session)

        assert [(line["event"], line["log_level"]) for line in lines] == [
            ("psp_away", "error"),
            ("psp_back", "warning"),
        ]
        for line in lines:
            assert (line["provider"], line["merchant_account"]) == AT_FAKE
            assert line["operation"] == "outcome"

    def test_outages_are_logged_separately_for_each_operation_of_a_merchant_account(self) -> None:
        outages = OutageLog()
        with capture_logs() as lines:
            for account in (AT_FAKE, AT_HARBOR):
                for operation in ("start", "discard", "start"):
                    fail(outages, at=account, operation=operation)
                with outages.around_call(account, "close"):
                    pass

        assert [(line["merchant_account"], line["operation"]) for line in lines] == [
            (MERCHANT, "start"),
            (MERCHANT, "discard"),
            ("harbor", "start"),
            ("harbor", "discard"),
        ]

    def test_a_refusal_during_an_outage_is_logged_separately(self) -> None:
        outages = OutageLog()
        with capture_logs() as lines:
            fail(outages)
            for _ in range(2):
                fail(outages, ProviderRefused("no"))

        assert [line["event"] for line in lines] == ["psp_away", "psp_refuses"]

    def test_a_not_found_response_from_the_psp_does_not_count_as_an_outage(self) -> None:
        outages = OutageLog()
        with capture_logs() as lines:
            fail(outages, NotFound(details=FailureDetails(status=404)), operation="outcome")

        assert [(line["event"], line["log_level"], line["status"]) for line in lines] == [
            ("psp_does_not_find", "info", 404)
        ]

    def test_a_recurring_outage_is_logged_once_a_minute(self) -> None:
        seconds = [0.0]
        outages = OutageLog(now=lambda: seconds[0])
        with capture_logs() as lines:
            for seconds[0] in map(float, range(120)):
                fail(outages)
                with outages.around_call(AT_FAKE, "start"):
                    pass

        assert [line["event"] for line in lines] == ["psp_away", "psp_back"] * 2

    @pytest.mark.parametrize("failure", [ProviderUnavailable, ProviderRefused])
    def test_the_log_line_about_an_outage_contains_the_known_details_of_the_failure(
        self, failure: type[ProviderUnavailable | ProviderRefused]
    ) -> None:
        with capture_logs() as lines:
            fail(OutageLog(), failure("zoe@", details=FailureDetails(status=402, code="odd")))

        (line,) = lines
        assert line.keys() - {"event", "log_level", "exc_info", *AT_FAKE._fields, "operation"} == {
            "status",
            "code",
        }
        assert (line["status"], line["code"]) == (402, "odd")

    def test_keys_that_belong_to_another_merchant_do_not_count_as_a_fault_of_the_adapter(
        self,
    ) -> None:
        results: list[str] = []
        outages = OutageLog(lambda *call: results.append(call[3]))

        fail(outages, AnotherMerchant(kept="acct_main test", given=None))

        assert results == ["unavailable"]


def test_a_reported_card_that_belongs_to_another_guest_is_not_stored(
    installation: Installation,
) -> None:
    session = installation.opened_session()
    guest = installation.type_card(session).guest_reference
    with installation.psp._database.write() as db:
        db.execute("UPDATE pages SET page = replace(page, ?, 'guest_of_somebody_else')", [guest])

    with capture_logs() as lines:
        installation.return_to_shop(session)

    assert [(line["event"], line["error"]) for line in lines] == [("psp_away", "NotCredible")]
    assert installation.accounts() == ()


def test_a_refused_card_with_a_malformed_code_is_counted_without_the_code(
    installation: Installation,
) -> None:
    session = installation.session_with_card(DECLINED_CARD)
    told = installation.provider.outcome
    installation.provider.outcome = lambda *asked: replace(  # its PSP never says this
        told(*asked), refusal_code="the bank said no"
    )

    installation.settle(session.token_id)

    with installation.storage.read() as unit:
        (refused,) = unit.refused_cards.of(session.token_id)
    assert refused.code is None
