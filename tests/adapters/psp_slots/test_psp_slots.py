from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import pytest
from structlog.testing import capture_logs

from adapters.psp_slots import (
    HANGS_BEFORE_REST,
    REST_SECONDS,
    PspSlots,
    Rest,
    SlottedProvider,
)
from domain.hosted_pages import Pending
from domain.identifiers import CardToken
from domain.ports import ProviderRefused, ProviderUnavailable
from entrypoints.container import FAKE, PSP_CALLS_AT_ONCE
from entrypoints.serve import THREADS
from tests.installation import MERCHANT, Installation


def test_a_hanging_psp_holds_half_of_the_threads_and_no_more(installation: Installation) -> None:
    session = installation.add_card()
    slots = installation.container.psp_slots()
    with ExitStack() as hanging:
        assert THREADS // 2 == PSP_CALLS_AT_ONCE
        for _ in range(PSP_CALLS_AT_ONCE):
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
        sick = SlottedProvider(installation.provider, PspSlots(1), self.rest)
        well = SlottedProvider(installation.provider, PspSlots(1), Rest(FAKE))
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
