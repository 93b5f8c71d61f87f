"""The demo as a process: what it prints, and what is kept between two runs."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from adapters.sqlite.storage import SqliteStorage
from entrypoints.cli.main import main
from entrypoints.demo.demo import HOST, _environment, run_demo
from entrypoints.demo.service import Supervisor
from entrypoints.serve import ServeError
from entrypoints.settings import Settings
from tests.demo import running_demo
from tests.installation import OTHER_GOOD_CARD
from tests.integrating import browser, type_card
from tests.programs import free_port
from tests.waiting import LIMIT_SECONDS, wait_until


def test_a_demo_that_was_killed_keeps_its_cards_for_the_next_run(tmp_path: Path) -> None:
    port = free_port()
    with running_demo(tmp_path, port=port, with_signal=signal.SIGKILL) as demo:
        type_card(demo.add_card()["hosted_payment_uri"], f"{demo.shop}/")
        # The worker may be asking the PSP when the guest comes back, who is not kept waiting then.
        (card,) = wait_until(lambda: demo.call("")["accounts"])
        assert "payment_reference" in demo.call(f"/{card['account_id']}")

    # The services of the demo end too.
    wait_until(lambda: is_free(port))
    with running_demo(tmp_path, port=port, with_signal=signal.SIGINT) as demo:
        (kept,) = demo.call("")["accounts"]
        assert kept == card
        # The endpoint of the earlier run had another secret.
        type_card(demo.add_card()["hosted_payment_uri"], f"{demo.shop}/", OTHER_GOOD_CARD)
        with browser() as visitor:
            shown = partial(visitor.get, demo.shop, timeout=LIMIT_SECONDS)
            wait_until(lambda: "Signature verified" in shown().text)
        assert demo.docs == f"{demo.api}/docs#token={demo.token}"
    with SqliteStorage(tmp_path / f"cardonfile-demo-{port}.db").read() as unit:
        assert unit.event_endpoints.all() == ()
    assert "  4000 0000 0000 0002    The bank declines it\n" in demo.printed
    assert "The faults that you cause are expected" in demo.printed
    # Nothing but the welcome is on the console.
    assert (tmp_path / "printed").read_text() == demo.printed
    assert demo.log.read_text() == ""


def is_free(port: int) -> bool:
    """Return whether a program can listen on a port of the demo."""
    with suppress(OSError), socket.create_server((HOST, port)):
        return True
    return False


def test_the_demo_runs_without_card_testing_limits() -> None:
    assert Settings.read(_environment(8000)).card_testing_limits == ()


def test_a_demo_on_another_port_has_its_own_records() -> None:
    first, second = (Settings.read(_environment(port)).database for port in (8000, 9000))
    assert first != second


def test_the_demo_says_in_one_sentence_that_its_port_is_in_use() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        ran = CliRunner().invoke(main, ["demo", "--port", str(port)])

    assert ran.exit_code == 1
    assert ran.output == (
        f"Error: cannot listen on {HOST} port {port}: Address already in use; "
        "choose another port with --port, or make demo PORT=9000\n"
    )


def test_the_demo_refuses_a_public_base_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARDONFILE_PUBLIC_BASE_URL", "https://cards.example")

    with pytest.raises(ServeError, match="unset CARDONFILE_PUBLIC_BASE_URL"):
        run_demo(0)


def test_the_demo_reports_a_service_that_does_not_start(capfd: pytest.CaptureFixture[str]) -> None:
    environment = {**os.environ, "CARDONFILE_DATABASE_URL": "nowhere"}
    with socket.create_server((HOST, 0)) as listening:
        supervisor = Supervisor(listening, environment, lambda _: None)

        with pytest.raises(ServeError, match="the service has ended"):
            supervisor.run()

    assert "CARDONFILE_DATABASE_URL must look like" in capfd.readouterr().err
