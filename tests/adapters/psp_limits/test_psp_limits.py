from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import fields
from datetime import timedelta
from typing import Final

import pytest
from structlog.testing import capture_logs

from adapters.fake_psp.plugin import NAME as FAKE
from adapters.psp_limits import Bulkhead, GuardedProvider
from adapters.psp_limits.circuit_breaker import (
    HANGS_BEFORE_PAUSE,
    MAX_PAUSE,
    PAUSE_SECONDS,
    CircuitBreaker,
    CircuitBreakers,
)
from adapters.psp_limits.outages import OutageLog
from domain.identifiers import CardToken, MerchantAccount, PspAccount
from domain.ports import FailureDetails, PaymentProvider, ProviderRefused, ProviderUnavailable
from tests.installation import MERCHANT, Installation, Trouble

AT_FAKE: Final = PspAccount(FAKE, MERCHANT)
AT_HARBOR: Final = PspAccount(FAKE, MerchantAccount("harbor"))


def test_a_psp_that_hangs_leaves_threads_for_adding_cards(installation: Installation) -> None:
    session = installation.add_card()
    bulkhead = installation.container.bulkhead()
    with ExitStack() as hanging:
        for _ in range(installation.settings.psp_calls):
            hanging.enter_context(bulkhead.around_call())
        with pytest.raises(ProviderUnavailable):
            installation.open_page(session)
        assert installation.add_card().token_id != session.token_id

    assert installation.open_page(session)


def test_a_burst_of_guests_is_served(installation: Installation) -> None:
    sessions = [installation.add_card() for _ in range(48)]

    with ThreadPoolExecutor(16) as pool:
        addresses = set(pool.map(installation.open_page, sessions))

    assert len(addresses) == 48


class TestCircuitBreaker:
    """What is spared a PSP that hangs or asks for a pause, on a clock of its own."""

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

    def test_a_psp_that_hangs_three_times_in_a_row_is_left_alone(self) -> None:
        with capture_logs() as lines:
            self.hang()
        before = self.seconds

        for _ in range(100):
            with pytest.raises(ProviderUnavailable, match="left alone"):
                self.call(takes=5)
        assert self.seconds == before
        assert self.breaker.capacity(12) == 0
        assert [line["event"] for line in lines] == ["psp_paused"]
        assert lines[0]["provider"] == FAKE
        assert lines[0]["merchant_account"] == MERCHANT

    def test_after_a_while_one_call_finds_out_whether_it_still_hangs(self) -> None:
        self.hang()
        self.seconds += PAUSE_SECONDS
        assert self.breaker.capacity(12) == 1
        with self.breaker.around_call(), pytest.raises(ProviderUnavailable, match="left alone"):
            self.call(takes=0)
        self.call(takes=0)
        assert self.breaker.capacity(12) == 12

    def test_one_that_still_hangs_is_left_alone_again_at_once(self) -> None:
        self.hang()
        self.seconds += PAUSE_SECONDS
        self.hang(1)
        with pytest.raises(ProviderUnavailable, match="left alone"):
            self.call(takes=0)

    @pytest.mark.parametrize(
        ("takes", "fault"),
        [(1, None), (1, ProviderUnavailable("503")), (5, ProviderRefused("no")), (5, None)],
    )
    def test_any_response_in_between_counts(self, takes: float, fault: Exception | None) -> None:
        self.hang(2)
        with suppress(ProviderUnavailable, ProviderRefused):
            self.call(takes=takes, fault=fault)
        self.hang(2)
        self.call(takes=0)

    @pytest.mark.parametrize(
        ("asked", "seconds"), [(timedelta(seconds=7), 7), (timedelta(days=1), 60)]
    )
    def test_a_psp_gets_the_pause_that_it_asks_for_up_to_a_minute(
        self, asked: timedelta, seconds: int
    ) -> None:
        assert timedelta(minutes=1) == MAX_PAUSE
        with pytest.raises(ProviderUnavailable, match="429"):
            self.call(takes=0, fault=ProviderUnavailable("429", retry_after=asked))
        self.seconds += seconds - 1
        with pytest.raises(ProviderUnavailable, match="left alone"):
            self.call(takes=0)
        self.seconds += 1
        self.call(takes=0)

    def test_each_merchant_account_has_one_of_its_own(self, installation: Installation) -> None:
        breakers = CircuitBreakers(lambda: self.seconds)
        self.breaker = breakers.of(AT_FAKE)
        self.hang()
        guarded = guarded_provider(installation.provider, breakers)
        session = installation.opened_session()
        request, page = session.current_attempt.request, session.current_attempt.page
        assert page is not None

        for call in (
            lambda: guarded.start(request),
            lambda: guarded.outcome(request, page, ()),
            lambda: guarded.close(request, page),
            lambda: guarded.discard(MERCHANT, page.guest_reference, CardToken("card_1")),
        ):
            with pytest.raises(ProviderUnavailable, match="left alone"):
                call()
        guarded.discard(MerchantAccount("harbor"), page.guest_reference, CardToken("card_1"))
        assert breakers.capacities(12) == {AT_FAKE: 0, AT_HARBOR: 12}


def guarded_provider(provider: PaymentProvider, breakers: CircuitBreakers) -> PaymentProvider:
    return GuardedProvider(
        FAKE, provider, bulkhead=Bulkhead(1), breakers=breakers, outages=OutageLog()
    )


class TestOutages:
    """What the log says of a PSP that fails, in the service as it is put together."""

    def test_an_outage_is_logged_once_and_so_is_its_end(self, installation: Installation) -> None:
        sessions = [installation.opened_session() for _ in range(3)]
        with capture_logs() as lines:
            installation.provider.have(Trouble.AFTER_IT_ACTED)
            for session in sessions:
                installation.return_to_shop(session)
            installation.provider.recover()
            for session in sessions:
                installation.return_to_shop(session)

        assert [(line["event"], line["log_level"]) for line in lines] == [
            ("psp_away", "error"),
            ("psp_back", "warning"),
        ]
        for line in lines:
            assert line["provider"] == FAKE
            assert line["merchant_account"] == MERCHANT
            assert line["operation"] == "outcome"

    def test_a_discard_that_the_psp_refuses_is_logged(self, installation: Installation) -> None:
        installation.removed_card()
        installation.provider.have(Trouble.REFUSED)
        with capture_logs() as lines:
            installation.reconcile()
            installation.clock.advance(timedelta(minutes=1))
            installation.reconcile()

        (line,) = [each for each in lines if each["event"].startswith("psp_")]
        assert line["event"] == "psp_refuses"
        assert line["operation"] == "discard"

    def test_each_merchant_account_and_operation_has_a_state_of_its_own(self) -> None:
        outages = OutageLog()
        with capture_logs() as lines:
            for account in (AT_FAKE, AT_HARBOR):
                for operation in ("start", "discard"):
                    for _ in range(2):
                        with (
                            suppress(ProviderUnavailable),
                            outages.around_call(account, operation),
                        ):
                            raise ProviderUnavailable
                with outages.around_call(account, "close"):
                    pass

        assert [(line["merchant_account"], line["operation"]) for line in lines] == [
            (MERCHANT, "start"),
            (MERCHANT, "discard"),
            ("harbor", "start"),
            ("harbor", "discard"),
        ]

    def test_a_refusal_in_the_middle_of_an_outage_is_another_state(self) -> None:
        outages = OutageLog()
        with capture_logs() as lines:
            for failure in (ProviderUnavailable, ProviderRefused, ProviderRefused):
                with suppress(failure), outages.around_call(AT_FAKE, "start"):
                    raise failure

        assert [line["event"] for line in lines] == ["psp_away", "psp_refuses"]

    @pytest.mark.parametrize("failure", [ProviderUnavailable, ProviderRefused])
    def test_the_details_of_a_failure_are_in_its_line_as_far_as_they_are_known(
        self, failure: type[ProviderUnavailable | ProviderRefused]
    ) -> None:
        with (
            capture_logs() as lines,
            suppress(failure),
            OutageLog().around_call(AT_FAKE, "start"),
        ):
            raise failure("zoe@", details=FailureDetails(status=402, code="odd"))

        (line,) = lines
        assert line.keys() - {"event", "log_level", "exc_info"} == {
            "provider",
            "merchant_account",
            "operation",
            "status",
            "code",
        }
        assert (line["status"], line["code"]) == (402, "odd")

    def test_no_detail_takes_the_place_of_what_every_line_has(self) -> None:
        its_own = {"event", "level", "timestamp", "exc_info", "fault", "where"}
        its_own |= {*PspAccount._fields, "operation"}
        assert its_own.isdisjoint(field.name for field in fields(FailureDetails))

    def test_a_psp_that_is_spared_a_call_is_in_no_other_state(
        self, installation: Installation
    ) -> None:
        session = installation.opened_session()
        bulkhead = installation.container.bulkhead()
        with capture_logs() as lines, ExitStack() as hanging:
            for _ in range(installation.settings.psp_calls):
                hanging.enter_context(bulkhead.around_call())
            installation.return_to_shop(session)

        assert lines == []
