from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from adapters.http.server import THREADS
from adapters.psp_slots import (
    HANGS_BEFORE_REST,
    REST_SECONDS,
    PspSlots,
    Rest,
    SlottedProvider,
)
from adapters.psp_slots.outages import OutageLog
from domain.hosted_pages import Pending
from domain.identifiers import CardToken, MerchantAccount
from domain.ports import ProviderRefused, ProviderUnavailable
from entrypoints.container import FAKE
from tests.installation import MERCHANT, Installation, Trouble


def test_a_hanging_psp_holds_half_of_the_threads_and_no_more(installation: Installation) -> None:
    session = installation.add_card()
    slots = installation.container.psp_slots()
    with ExitStack() as hanging:
        for _ in range(THREADS // 2):
            hanging.enter_context(slots.one())
        with pytest.raises(ProviderUnavailable):
            installation.open_page(session)
        assert installation.add_card().token_id != session.token_id

    assert installation.open_page(session)


def test_a_burst_of_guests_is_served(installation: Installation) -> None:
    sessions = [installation.add_card() for _ in range(48)]

    with ThreadPoolExecutor(THREADS) as pool:
        addresses = set(pool.map(installation.open_page, sessions))

    assert len(addresses) == 48


class TestRest:
    """What is spared a PSP that hangs, on a clock of its own."""

    @pytest.fixture(autouse=True)
    def _own_time(self) -> None:
        self.seconds = 0.0
        self.rest = Rest(FAKE, lambda: self.seconds)

    def call(self, *, takes: float, fault: Exception | None = None) -> None:
        with self.rest.around_call():
            self.seconds += takes
            if fault is not None:
                raise fault

    def hang(self, times: int = HANGS_BEFORE_REST) -> None:
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
        assert lines == [{"event": "psp_hangs", "log_level": "warning", "provider": FAKE}]

    def test_after_a_while_one_call_finds_out_whether_it_still_hangs(self) -> None:
        self.hang()
        self.seconds += REST_SECONDS
        with self.rest.around_call(), pytest.raises(ProviderUnavailable, match="left alone"):
            self.call(takes=0)
        self.call(takes=0)

    def test_one_that_still_hangs_is_left_alone_again_at_once(self) -> None:
        self.hang()
        self.seconds += REST_SECONDS
        self.hang(1)
        with pytest.raises(ProviderUnavailable, match="left alone"):
            self.call(takes=0)

    @pytest.mark.parametrize(
        ("takes", "fault"),
        [(1, None), (1, ProviderUnavailable("503")), (5, ProviderRefused("no")), (5, None)],
    )
    def test_any_answer_in_between_counts(self, takes: float, fault: Exception | None) -> None:
        self.hang(2)
        with suppress(ProviderUnavailable, ProviderRefused):
            self.call(takes=takes, fault=fault)
        self.hang(2)
        self.call(takes=0)

    def test_each_psp_rests_for_itself(self, installation: Installation) -> None:
        sick = SlottedProvider(FAKE, installation.provider, PspSlots(1), self.rest)
        well = SlottedProvider(FAKE, installation.provider, PspSlots(1), Rest(FAKE))
        session = installation.opened_session()
        request, page = session.current_attempt.request, session.current_attempt.page
        assert page is not None
        self.hang()

        for call in (
            lambda: sick.start(request),
            lambda: sick.outcome(request, page, ()),
            lambda: sick.close(request, page),
            lambda: sick.discard(MERCHANT, page.guest_reference, CardToken("card_1")),
        ):
            with pytest.raises(ProviderUnavailable, match="left alone"):
                call()
        assert well.outcome(request, page, ()) == Pending()


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
        outages = OutageLog(FAKE)
        with capture_logs() as lines:
            for account in (MERCHANT, MerchantAccount("harbor")):
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
        outages = OutageLog(FAKE)
        with capture_logs() as lines:
            for failure in (ProviderUnavailable, ProviderRefused, ProviderRefused):
                with suppress(failure), outages.around_call(MERCHANT, "start"):
                    raise failure

        assert [line["event"] for line in lines] == ["psp_away", "psp_refuses"]

    def test_a_psp_that_is_spared_a_call_is_in_no_other_state(
        self, installation: Installation
    ) -> None:
        session = installation.opened_session()
        slots = installation.container.psp_slots()
        with capture_logs() as lines, ExitStack() as hanging:
            for _ in range(THREADS // 2):
                hanging.enter_context(slots.one())
            installation.return_to_shop(session)

        assert lines == []
