"""The fixtures of the contract suite: the PSP, its adapter, and the secrets that must not leak."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import closing
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from structlog.testing import capture_logs

from adapters.psp import http
from adapters.psp_suite.pytest_plugin import psps
from adapters.psp_suite.samples import a_page_request
from adapters.psp_suite.sessions import ADDRESS, Session, a_request, watched
from adapters.psp_suite.under_test import EXPIRY, OTHER_SECRET, SECRET, PspUnderTest
from domain.psps.payment_provider import FailureDetails, PaymentProvider

_WORD: Final = re.compile(r"[A-Za-z0-9_.:/\-\[\]]{1,100}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize a test with each PSP that has the required abilities.

    If there is no such PSP, the module `pytest_plugin` deselects the test.
    """
    marks = list(metafunc.definition.iter_markers())
    needed = {ability for mark in marks if mark.name == "psp_needs" for ability in mark.args}
    names, cases = next(
        (mark.args for mark in marks if mark.name == "psp_cases"), ((), lambda _: [()])
    )
    metafunc.parametrize(
        ("psp", *names),
        [
            pytest.param(psp, *case, id="-".join((name, *map(_shown, case))))
            for name, psp in psps(metafunc.config).items()
            if psp.facts.abilities >= needed
            for each in cases(psp.facts)
            for case in [each if isinstance(each, tuple) else (each,)]
        ]
        or [pytest.param(None, *names, id="nobody")],
        indirect=["psp"],
    )


def _shown(value: object) -> str:
    return value.name if isinstance(value, Enum) else str(value)


@pytest.fixture
def raised() -> list[Exception]:
    """Return a list that collects the exceptions of the adapters."""
    return []


@pytest.fixture
def psp(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    raised: list[Exception],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[PspUnderTest]:
    """Start a PSP without any records. Its adapters are wrapped by `watched`.

    An adapter that uses the default RetryPolicy of `adapters.psp.http` does not pause between two
    tries.
    """
    monkeypatch.setattr(http, "RetryPolicy", partial(http.RetryPolicy, pause_seconds=0))
    with closing(request.param(tmp_path)) as psp:
        adapter = psp.adapter
        monkeypatch.setattr(psp, "adapter", lambda *args: watched(psp, adapter(*args), raised))
        yield psp


@pytest.fixture
def adapter(psp: PspUnderTest) -> PaymentProvider:
    """Return an adapter of the PSP."""
    return psp.adapter()


@pytest.fixture
def session(psp: PspUnderTest, adapter: PaymentProvider, private: list[str]) -> Session:
    """Return a session with a page."""
    return Session(psp, adapter, a_request(psp), private)


@pytest.fixture(autouse=True)
def private(
    psp: PspUnderTest,
    raised: list[Exception],
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    recwarn: pytest.WarningsRecorder,
) -> Iterator[list[str]]:
    """Return a list of private texts, and check that they do not leak.

    After the test, no log, stream, warning or exception may contain them. The texts are keys,
    secrets, and data of the guest and the cards. A test may add further texts to the list.
    """
    guest = a_page_request()
    numbers = [card.number for card in psp.facts.cards.values()]
    last_fours = [number[-4:] for number in numbers]
    private = [SECRET, OTHER_SECRET, *psp.keys, *numbers, *last_fours, str(EXPIRY[1])]
    private += filter(None, (guest.guest_email, guest.guest_name, ADDRESS.address, ADDRESS.zipcode))
    caplog.set_level(logging.DEBUG)
    with capture_logs() as lines:
        yield private
    # `caplog.text` would include the records of the teardown.
    written = [record.getMessage() for record in caplog.get_records("call")]
    streams, warned = capfd.readouterr(), [str(warning.message) for warning in recwarn]
    told = [*map(str, (lines, written, streams, warned)), *map(_told_by, raised)]
    for text in dict.fromkeys(told):
        assert [each for each in private if _holds(text, each)] == [], text
    for error in raised:
        details = getattr(error, "details", FailureDetails())
        words = (details.error, details.code, details.param, details.request_id)
        assert all(each is None or _WORD.fullmatch(each) for each in words), (
            "each detail must be one word"
        )


def _told_by(error: BaseException) -> str:
    """Return the texts of an exception, of its attributes, and of the exceptions that caused it."""
    told = f"{error!r} {vars(error)}"
    led_to_it = error.__cause__ or error.__context__
    return told if led_to_it is None else f"{told} because of {_told_by(led_to_it)}"


def _holds(text: str, private: str) -> bool:
    # Compiling a pattern takes much longer than looking for plain text, which is seldom present.
    return private in text and re.search(rf"(?<!\w){re.escape(private)}(?!\w)", text) is not None
