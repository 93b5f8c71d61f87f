"""The demo's PSP. A fault affects only the session for which it is switched on."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from adapters.fake_psp.database import PspUnavailable
from adapters.psp_suite.clock import SettableClock
from adapters.psp_suite.ids import SeededIds
from domain.identifiers import TOKEN_PREFIX_LENGTH, TokenId
from domain.psps.hosted_page import HostedPageRequest
from entrypoints.demo.service import HANG, Fault, FaultyPsp
from tests.adapters.fake_psp.conftest import BASE_URL, card_entry, hosted_page_request


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
def psp(tmp_path: Path, clock: SettableClock) -> FaultyPsp:
    return FaultyPsp(tmp_path / "psp.db", base_url=BASE_URL, clock=clock, ids=SeededIds())


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Collect the processes to kill, with their signals, instead of killing them."""
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *by: killed.append(by))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    return killed


def a_request(session: int) -> HostedPageRequest:
    token_id = TokenId(f"{session:08}-0000-4000-8000-000000000000")
    return replace(hosted_page_request(), token_id=token_id)


def collected(psp: FaultyPsp, session: int) -> str:
    """Let the PSP collect a card, and return the reference of the page."""
    reference = psp.start_page(a_request(session)).reference
    psp.try_card(reference, card_entry())
    return reference


def shown(session: int) -> str:
    """Return the part of this session's token that logs show."""
    return a_request(session).token_id[:TOKEN_PREFIX_LENGTH]


def test_the_demo_service_dies_when_it_asks_about_the_card_of_a_session_with_the_fault_kill(
    psp: FaultyPsp, killed: list[tuple[int, int]]
) -> None:
    psp.faults = {shown(1): [Fault.KILL]}
    mine, other = collected(psp, 1), collected(psp, 2)
    assert psp.page(other).card
    assert killed == []

    psp.page(mine)

    assert killed == [(os.getpid(), signal.SIGKILL)]


@pytest.mark.usefixtures("killed")
def test_the_demo_psp_is_unavailable_for_a_while_in_a_session_with_the_fault_hang(
    psp: FaultyPsp, clock: SettableClock
) -> None:
    psp.faults = {shown(1): [Fault.HANG]}
    with capture_logs() as lines:
        mine, other = collected(psp, 1), collected(psp, 2)
    assert psp.page(other).card

    with pytest.raises(PspUnavailable):
        psp.page(mine)

    # The page hangs for a while, and then has its card, even if nobody asks in the meantime.
    assert (Fault.HANG, shown(1)) in [(line["event"], line["session"]) for line in lines]
    clock.advance(HANG)
    assert psp.page(mine).card


@pytest.mark.usefixtures("killed")
def test_the_browser_does_not_return_to_the_shop_in_a_session_with_the_fault_close(
    psp: FaultyPsp,
) -> None:
    psp.faults = {shown(1): [Fault.CLOSE]}

    with pytest.raises(PspUnavailable):
        collected(psp, 1)


@pytest.mark.usefixtures("killed")
def test_the_demo_psp_drops_the_webhook_of_a_session_with_the_lose_fault(
    psp: FaultyPsp, clock: SettableClock
) -> None:
    psp.faults = {shown(1): [Fault.LOSE]}
    collected(psp, 1)
    collected(psp, 2)

    with capture_logs() as lines:
        taken = [psp.take_due_event(clock.now(), until=clock.now() + HANG) for _ in range(3)]

    assert [event and json.loads(event.body)["events"][0]["token_id"] for event in taken] == [
        None,
        a_request(2).token_id,
        None,
    ]
    assert [(line["event"], line["session"]) for line in lines] == [
        (Fault.LOSE, shown(1)),
        ("psp_webhook", shown(2)),
    ]


def test_the_demo_psp_logs_a_declined_card_with_its_session(psp: FaultyPsp) -> None:
    reference = psp.start_page(a_request(1)).reference

    with capture_logs() as lines:
        psp.try_card(reference, card_entry("4000000000000002"))

    assert [(line["event"], line["session"]) for line in lines] == [("psp_declined", shown(1))]
