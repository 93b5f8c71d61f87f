"""The examples of docs/integrating.md, run from the page, against a demo in a process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urljoin
from uuid import uuid4

import playwright
import pytest
import requests

from entrypoints.demo.sample import SPA
from tests.browser.chromium import prepare_driver
from tests.demo import ADA, Demo, running_demo
from tests.event_receiver import EventReceiver, Received
from tests.installation import DECLINED_CARD, GOOD_CARD, OTHER_GOOD_CARD
from tests.waiting import LIMIT_SECONDS, wait_until

ROOT: Final = Path(__file__).resolve().parents[2]
BACK: Final = "https://shop.example/card/back"
PAUSED: Final = "[paused]"
GET_A_TOKEN, CENTER, GUEST, ADD, EVENT, READ, CARDS, LINK, TEST = 1, 3, 4, 5, 8, 9, 10, 11, 14
"""Sections of the page."""

_SECTION: Final = re.compile(r"^## (\d+)\. ", re.MULTILINE)
_FENCE: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NODE: Final = Path(playwright.__file__).parent / "driver" / "node"
"""Playwright's own, so that none needs to be installed."""
_PROGRAMS: Final = {"sh": "sh", "python": sys.executable, "js": str(_NODE)}
_FILES: Final = {"sh": "examples.sh", "python": "examples.py", "js": "examples.mjs"}
# What runs between two examples: it evaluates each line that it reads, until an empty one.
_BEGIN: Final = {
    "sh": "set -eu",
    "python": "",
    "js": """import { createInterface } from "node:readline";
        const $lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
        const $read = async () => { console.log("[paused]"); return (await $lines.next()).value; };
    """,
}
_PAUSE: Final = {
    "sh": 'while echo "[paused]"; read -r line; [ "$line" ]; do eval "$line"; done',
    "python": """
while (print("[paused]", flush=True), line := input())[1]:
    print(__import__("json").dumps(eval(line)))
""",
    "js": """
for (let $line; ($line = await $read()); ) console.log(JSON.stringify(await eval($line)));
""",
}


class Examples:
    """The examples in one language, as one program that pauses after each of them.

    `left` has the sections of those that did not run yet.
    """

    def __init__(self, folder: Path, language: str, environment: Mapping[str, str]) -> None:
        page = (ROOT / "docs" / "integrating.md").read_text()
        _, *parts = _SECTION.split(page)
        examples = [
            (int(number), code)
            for number, text in zip(parts[::2], parts[1::2], strict=True)
            for name, code in _FENCE.findall(text)
            if name == language
        ]
        self.left = [number for number, _ in examples]
        file = folder / _FILES[language]
        pause = _PAUSE[language]
        codes = [f"{code}\n{pause}" for _, code in examples]
        file.write_text("\n".join([_BEGIN[language], pause, *codes]))
        self._program = subprocess.Popen(
            [_PROGRAMS[language], file],
            cwd=folder,
            env={**os.environ, "NO_PROXY": "127.0.0.1", **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._read()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._program.kill()
        self._program.communicate()

    def through(self, section: int) -> str:
        """Run the examples up to the end of a section. Return what those in it print."""
        printed = ""
        while self.left and self.left[0] <= section:
            output = self.run("")
            printed += output if self.left.pop(0) == section else ""
        return printed

    def run(self, line: str) -> str:
        """Run a line, and return what it prints; without one, run the next example."""
        assert self._program.stdin
        self._program.stdin.write(f"{line}\n")
        self._program.stdin.flush()
        return self._read()

    def value(self, expression: str) -> Any:  # JSON
        """Return the value of an expression in Python or JavaScript."""
        return json.loads(self.run(expression).splitlines()[-1])

    def _read(self) -> str:
        assert self._program.stdout
        printed = ""
        for line in self._program.stdout:
            if line.rstrip().endswith(PAUSED):
                return printed + line.rstrip().removesuffix(PAUSED)
            printed += line
        raise AssertionError(printed)


def documents(text: str) -> list[Any]:  # JSON
    """Return the JSON documents that stand one after the other."""
    found, decoder = [], json.JSONDecoder()
    while text := text.strip():
        document, end = decoder.raw_decode(text)
        found.append(document)
        text = text[end:]
    return found


def type_card(hosted_payment_uri: str, number: str = GOOD_CARD) -> None:
    """Do what the guest's browser does, up to the return."""
    with requests.Session() as browser:
        browser.trust_env = False
        page = browser.get(hosted_payment_uri, timeout=LIMIT_SECONDS)
        action, form_token = re.findall(r'(?:action|name="form_token" value)="([^"]+)"', page.text)
        card = {"number": number, "expiry": "09/31", "cvc": "123"}
        address, form = urljoin(page.url, unescape(action)), {"form_token": form_token, **card}
        response = browser.post(address, form, allow_redirects=False, timeout=LIMIT_SECONDS)
        while (address := urljoin(address, response.headers["Location"])) != BACK:
            response = browser.get(address, allow_redirects=False, timeout=LIMIT_SECONDS)


def get(address: str) -> None:
    """Open an address, and follow no redirect."""
    with requests.Session() as browser:
        browser.trust_env = False
        browser.get(address, allow_redirects=False, timeout=LIMIT_SECONDS)


def examples_in(folder: Path, language: str, environment: Mapping[str, str]) -> Examples:
    return Examples(folder, language, {**environment, "GUEST": str(uuid4())})


@dataclass(frozen=True)
class Given:
    """What the examples need: where events arrive, and the variables.

    `shell` has run the first section, which adds the endpoint; it cannot be added again.
    """

    folder: Path
    demo: Demo
    receiver: EventReceiver
    environment: dict[str, str]
    shell: Examples

    def examples(self, language: str) -> Examples:
        """Start the examples, about a guest of their own."""
        return examples_in(self.folder, language, self.environment)

    def event_of(self, token_id: str) -> Received:
        """Wait for the event about a session."""
        events = self.receiver.received

        def find() -> Received | None:
            return next((e for e in events if e.content["data"]["token_id"] == token_id), None)

        return wait_until(find)


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Given]:
    """A demo, and an endpoint whose secret the first section prints."""
    prepare_driver(tell=print)
    folder = tmp_path_factory.mktemp("demo")
    # The page names the database of port 8000; this demo is on another port.
    settings = {"CARDONFILE_DATABASE_URL": "sqlite:///cardonfile-demo-8000.db"}
    with EventReceiver() as receiver, running_demo(folder, settings) as demo:
        environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "API": demo.api,
            "CENTER": SPA.center.id,
            "EVENTS_URL": receiver.url,
        }
        with examples_in(folder, "sh", environment) as shell:
            shell.through(GET_A_TOKEN)
            token, secret = shell.run('echo "$TOKEN $EVENTS_SECRET"').split()
            known = {**environment, "TOKEN": token, "EVENTS_SECRET": secret}
            yield Given(folder, demo, receiver, known, shell)


def test_the_curl_examples_work(given: Given) -> None:
    shell = given.shell
    (center,) = documents(shell.through(CENTER))
    (guest,) = documents(shell.through(GUEST))
    (added,) = documents(shell.through(ADD))
    assert (center["takes_cards"], guest["success"]) == (True, True)
    type_card(added["hosted_payment_uri"])
    event = given.event_of(added["token_id"]).content
    assert event["type"] == "account.stored"
    account = event["data"]["account_id"]
    shell.run(f"SESSION={added['token_id']} ACCOUNT={account}")

    (session,) = documents(shell.through(READ))
    listed, chosen, card, removed = documents(shell.through(CARDS))
    (link,) = documents(shell.through(LINK))
    assert shell.left == []

    assert (session["status"], session["account_id"]) == ("completed", account)
    assert [each["account_id"] for each in listed["accounts"]] == [account]
    assert card["payment_reference"]["provider"] == "fake"
    assert all(each["success"] for each in (chosen, removed, link))


@pytest.mark.parametrize(
    ("language", "verify", "right", "wrong"),
    [("python", "on_event", 204, 400), ("js", "verify", True, False)],
)
def test_the_examples_of_a_language_work(
    language: str, verify: str, right: object, wrong: object, given: Given
) -> None:
    with given.examples(language) as examples:
        examples.through(ADD)
        added = examples.value("added")
        type_card(added["hosted_payment_uri"])
        event = given.event_of(added["token_id"])
        headers, body = json.dumps(dict(event.headers)), json.dumps(event.body.decode())

        examples.through(EVENT)
        assert examples.value(f"{verify}({body}, {headers})") == right
        assert examples.value(f"{verify}({body} + ' ', {headers})") == wrong
        caught_up = examples.value(CATCH_UP[language])
        assert caught_up.count(event.content) == 1
        # The session may have ended before the guest returned, as `progress` tells.
        status, _, account = examples.through(READ).split()
        assert (status, account) == ("completed", event.content["data"]["account_id"])
        examples.through(CARDS)
        assert examples.value("card")["last_four"] == "4242"
        assert examples.value("reference")["provider"] == "fake"
        examples.through(LINK)
        assert examples.value("cancelled")["progress"] == "cancelled"
        examples.through(TEST)
        assert examples.left == []
        tested = examples.value(ADD_AGAIN[language])
        examples.run(f'{TYPE_CARD[language]}("{tested["hosted_payment_uri"]}")')
        assert given.event_of(tested["token_id"]).content["type"] in (
            "account.stored",
            "session.failed",
        )
        tested = examples.value(ADD_AGAIN[language])
        with pytest.raises(AssertionError, match="no card was added: 303 /fake-psp/pages/"):
            examples.run(
                f'{TYPE_CARD[language]}("{tested["hosted_payment_uri"]}", "{DECLINED_CARD}")'
            )


CATCH_UP: Final = {
    "python": "(lambda read: catch_up(read.append) or read)([])",
    "js": "(async (read) => (await catchUp((each) => read.push(each)), read))([])",
}
ADD_AGAIN: Final = {
    "python": """call("POST", f"/api/v1/guests/{GUEST}/accounts", body)""",
    "js": """call("POST", `/api/v1/guests/${GUEST}/accounts`, link)""",
}
TYPE_CARD: Final = {"python": "type_card", "js": "typeCard"}
# Ends the waits of the example at once, and keeps their seconds in `waits`.
END_WAITS: Final = {
    "python": "globals().update(waits=[]) or setattr(__import__('time'), 'sleep', waits.append)",
    "js": (
        "globalThis.waits = []; globalThis.setTimeout = ((set) => (go, ms, ...more) => "
        "ms === 3000 ? (waits.push(3), set(go, 0)) : set(go, ms, ...more))(setTimeout)"
    ),
}


@pytest.mark.parametrize(("language", "read"), [("python", "how_it_ended"), ("js", "howItEnded")])
def test_the_examples_poll_the_session_for_a_minute_after_the_return(
    language: str, read: str, given: Given
) -> None:
    with given.examples(language) as examples:
        examples.through(ADD)
        added = examples.value("added")
        type_card(added["hosted_payment_uri"])
        given.event_of(added["token_id"])
        examples.run(END_WAITS[language])
        examples.through(LINK)
        link = examples.value(ADD_AGAIN[language])
        hosted = f"{given.environment['API']}/hosted-payments"

        def look() -> tuple[str, str]:
            found = examples.value(f'{read}("{link["token_id"]}")')
            return found["status"], found["progress"]

        assert look() == ("open", "created")
        get(link["hosted_payment_uri"])
        assert look() == ("open", "opened")
        get(f"{hosted}/cancel?token_id={link['token_id']}")
        assert look() == ("open", "cancelled")
        assert examples.value("waits") == []
        get(f"{hosted}/return?token_id={link['token_id']}")
        assert look() == ("open", "returned")
        assert 57 <= sum(examples.value("waits")) <= 60
        with pytest.raises(AssertionError, match=r"not_found"):
            examples.run("call('GET', '/v1/nowhere')")


def test_the_nightly_job_of_the_fake_psp_charges_cards_of_the_demo(given: Given) -> None:
    page = (ROOT / "docs" / "fake-psp.md").read_text()
    job, printed = (
        next(
            code
            for name, code in _FENCE.findall(page.split("### A nightly job")[1])
            if name == language
        )
        for language in ("python", "text")
    )
    for number in (GOOD_CARD, OTHER_GOOD_CARD, "4000000000009995"):
        type_card(given.demo.add_card(redirect_uri=BACK)["hosted_payment_uri"], number)
    cards = wait_until(
        lambda: cards if len(cards := given.demo.call("")["accounts"]) == 3 else None
    )
    due = "booking,guest_id,account_id,amount,currency\n" + "".join(
        f"booking-{number},{ADA},{card['account_id']},84.00,EUR\n"
        for number, card in enumerate(cards, 1)
    )
    keys = {"TOKEN": given.demo.token, "CHARGE_KEY": given.demo.charge_key}

    # It charges each booking once, although it runs twice.
    for _ in range(2):
        ran = subprocess.run(
            [sys.executable, "-c", job],
            input=due,
            env={**os.environ, "NO_PROXY": "127.0.0.1", "API": given.demo.api, **keys},
            capture_output=True,
            text=True,
            check=True,
        )
        assert ran.stdout == printed

    with requests.Session() as session:
        session.trust_env = False
        headers = {"Authorization": f"Bearer {given.demo.charge_key}"}
        address = f"{given.demo.api}/fake-psp/charges"
        charges = session.get(address, headers=headers, timeout=LIMIT_SECONDS).json()["charges"]
    assert [(each["idempotency_key"], each["status"]) for each in charges] == [
        ("booking-3", "declined"),
        ("booking-2", "approved"),
        ("booking-1", "approved"),
    ]


def test_the_command_in_the_docs_prints_the_charge_key(given: Given) -> None:
    page = (ROOT / "docs" / "fake-psp.md").read_text()
    (command,) = (code for name, code in _FENCE.findall(page) if "charge key" in code)
    file = f"{given.demo.settings['CARDONFILE_DATABASE_URL'].removeprefix('sqlite:///')}"
    file = file.replace(".db", "-fake-psp.db")

    printed = subprocess.run(
        ["sh", "-c", command.replace("cardonfile-fake-psp.db", file)],
        cwd=given.folder,
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert printed.strip() == given.demo.charge_key
