"""The demo's PSP: its faults happen to the next card."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from adapters.fake_psp.database import PspUnavailable
from adapters.psp.contract.clock import SettableClock
from adapters.psp.contract.ids import SeededIds
from domain.identifiers import CardToken
from entrypoints.demo.service import Fault, FaultyPsp
from tests.adapters.fake_psp.conftest import BASE_URL, card_entry, hosted_page_request


@pytest.fixture
def psp(tmp_path: Path) -> FaultyPsp:
    return FaultyPsp(tmp_path / "psp.db", base_url=BASE_URL, clock=SettableClock(), ids=SeededIds())


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Return the processes that are killed, with the signal. None is, and nobody waits."""
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *by: killed.append(by))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    return killed


def collected(psp: FaultyPsp, session: int) -> CardToken:
    reference = psp.start_page(hosted_page_request(session=session)).reference
    card = psp.try_card(reference, card_entry()).card
    assert card is not None
    return card.token


def test_the_service_is_killed_when_it_asks_about_the_next_card(
    psp: FaultyPsp, killed: list[tuple[int, int]]
) -> None:
    earlier = collected(psp, 1)
    psp.switch(frozenset({Fault.KILL}))
    assert psp.holds(earlier)
    token = collected(psp, 2)
    assert psp.holds(earlier)
    assert killed == []

    psp.holds(token)

    assert killed == [(os.getpid(), signal.SIGKILL)]


@pytest.mark.usefixtures("killed")
def test_the_psp_hangs_when_it_is_asked_about_the_next_card(psp: FaultyPsp) -> None:
    psp.switch(frozenset({Fault.HANG}))
    earlier = collected(psp, 1)
    psp.switch(frozenset({Fault.HANG}))
    assert psp.holds(earlier)
    token = collected(psp, 2)
    assert psp.holds(earlier)

    with pytest.raises(PspUnavailable):
        psp.holds(token)
