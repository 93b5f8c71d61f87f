"""Runs the examples of docs/integrating.md and docs/fake-psp.md as they are printed."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from tests.demo import ADA
from tests.installation import DECLINED_CARD, GOOD_CARD, OTHER_GOOD_CARD
from tests.integrating import (
    PAGE,
    Given,
    blocks,
    browser,
    buys_at,
    documents,
    given_demo,
    type_card,
)
from tests.programs import ROOT, free_port
from tests.waiting import LIMIT_SECONDS

REQUESTS, COMES_BACK, CARDS, LINK = 4, 6, 8, 9
"""Sections of the page."""

BACK: Final = "https://shop.example/card/back"


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Given]:
    with given_demo(tmp_path_factory.mktemp("demo")) as given:
        yield given


def test_the_curl_examples_in_the_docs_work(given: Given) -> None:
    shell = given.shell
    center, guest, added = documents(shell.through(REQUESTS))
    assert (center["takes_cards"], guest["success"]) == (True, True)
    type_card(added["hosted_payment_uri"], BACK)
    event = given.event_of(added["token_id"]).content
    assert event["type"] == "account.stored"
    account = event["data"]["account_id"]
    shell.run(f"SESSION={added['token_id']} ACCOUNT={account}")

    (session,) = documents(shell.through(COMES_BACK))
    listed, chosen, card, removed = documents(shell.through(CARDS))
    (link,) = documents(shell.through(LINK))
    assert shell.left == []

    assert (session["status"], session["account_id"]) == ("completed", account)
    assert [each["account_id"] for each in listed["accounts"]] == [account]
    assert card["payment_reference"]["provider"] == "fake"
    assert all(each["success"] for each in (chosen, removed, link))


def test_the_python_shop_in_the_docs_runs_as_printed(given: Given, tmp_path: Path) -> None:
    shop, _ = blocks(PAGE.read_text(), "python")
    (tmp_path / "shop.py").write_text(shop)
    port = free_port()

    buys_at(
        f"http://127.0.0.1:{port}",
        given,
        [sys.executable, "-m", "flask", "--app", "shop", "run", "--port", str(port)],
        tmp_path,
    )


def test_the_function_type_card_in_the_docs_adds_a_card_or_reports_its_refusal(
    given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    _, example = blocks(PAGE.read_text(), "python")
    known: dict[str, Any] = {}
    exec(example, known)  # noqa: S102 - our own page

    def added() -> Any:  # JSON
        return given.demo.add_card(redirect_uri=BACK)

    first = added()
    known["type_card"](first["hosted_payment_uri"])
    given.event_of(first["token_id"])
    with pytest.raises(ValueError, match="no card was added: 303 /fake-psp/pages/"):
        known["type_card"](added()["hosted_payment_uri"], DECLINED_CARD)
    given.demo.remove_cards()


def test_the_nightly_charging_job_in_the_docs_charges_each_booking_once(
    given: Given, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "fake-psp.md").read_text()
    _, nightly = page.split("### A nightly job")
    (job,), (printed,) = blocks(nightly, "python"), blocks(nightly, "text")
    charge_key = _printed_charge_key(given, page)
    keys = {"TOKEN": given.demo.token, "CHARGE_KEY": charge_key}

    def run(*due: tuple[str, str, str]) -> str:
        lines = (f"{booking},{ADA},{account},{amount},EUR\n" for booking, account, amount in due)
        ran = subprocess.run(
            [sys.executable, "-c", job],
            cwd=tmp_path,
            input="booking,guest_id,account_id,amount,currency\n" + "".join(lines),
            env={**os.environ, "NO_PROXY": "127.0.0.1", "API": given.demo.api, **keys},
            capture_output=True,
            text=True,
            check=True,
        )
        return ran.stdout

    def alter(change: str) -> None:
        with closing(sqlite3.connect(tmp_path / "charges.db")) as database, database:
            database.execute(f"UPDATE attempts SET {change}")

    good = _account_of(given, GOOD_CARD)
    declined = _account_of(given, "4000000000009995")
    other = _account_of(given, OTHER_GOOD_CARD)
    first, second, third = [
        (f"booking-{number}", account, "84.00")
        for number, account in enumerate((good, declined, other), 1)
    ]
    assert run(first, second, third) == printed

    # The next run repeats all. Another card has replaced the declined card. The first run was killed
    # before it stored a result.
    alter("result = NULL WHERE booking = 'booking-3'")
    refused, second = ("booking-0", good, "84"), ("booking-2", good, "84.00")
    before, *after = run(refused, first, second, third).splitlines()
    assert before.startswith("booking-0 failed: 400 ")
    assert after == [f"booking-{number} approved" for number in (1, 2, 3)]

    # The PSP may no longer know the key.
    alter("result = NULL, started = started - 3600 WHERE booking = 'booking-3'")
    assert run(third) == "booking-3 unknown\n"

    headers = {"Authorization": f"Bearer {charge_key}"}
    with browser() as client:
        address = f"{given.demo.api}/fake-psp/charges"
        charges = client.get(address, headers=headers, timeout=LIMIT_SECONDS).json()["charges"]
    assert [(each["idempotency_key"], each["status"]) for each in charges] == [
        ("booking-2-2", "approved"),
        ("booking-3-1", "approved"),
        ("booking-2-1", "declined"),
        ("booking-1-1", "approved"),
    ]


def _account_of(given: Given, number: str) -> str:
    """Add a card of the guest Ada, and return its account."""
    added = given.demo.add_card(redirect_uri=BACK)
    type_card(added["hosted_payment_uri"], BACK, number)
    event = given.event_of(added["token_id"]).content
    return str(event["data"]["account_id"])


def _printed_charge_key(given: Given, page: str) -> str:
    """Run the command of the page that prints the charge key."""
    (command,) = (code for code in blocks(page, "sh") if "charge key" in code)
    file = given.demo.settings["CARDONFILE_DATABASE_URL"].removeprefix("sqlite:///")
    command = command.replace("cardonfile-fake-psp.db", file.replace(".db", "-fake-psp.db"))
    printed = subprocess.check_output(["sh", "-c", command], cwd=given.folder, text=True).strip()
    assert printed == given.demo.charge_key
    return printed
