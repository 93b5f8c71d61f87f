"""Runs the examples of docs/integrating.md against a demo in a separate process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin

import requests

from entrypoints.demo.sample import SPA
from tests.demo import Demo, running_demo
from tests.event_receiver import EventReceiver, Received
from tests.installation import GOOD_CARD
from tests.programs import ROOT
from tests.waiting import LIMIT_SECONDS, wait_until

PAGE: Final = ROOT / "docs" / "integrating.md"
GET_A_TOKEN: Final = 1
"""The section that sets the token and the secret."""

_PAUSED: Final = "[paused]"
# This runs between two examples. It reads lines and evaluates them, until a line is empty.
_PAUSE: Final = f'while echo "{_PAUSED}"; read -r line; [ "$line" ]; do eval "$line"; done'
_SECTION: Final = re.compile(r"^## (\d+)\. ", re.MULTILINE)
_FENCE: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(text: str, language: str) -> list[str]:
    """Return the examples on a page that are written in a language, such as `sh`."""
    return [code for name, code in _FENCE.findall(text) if name == language]


class Shell:
    """The commands of the page as one program, which pauses after each block."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        _, *parts = _SECTION.split(PAGE.read_text())
        commands = [
            (int(number), code)
            for number, text in zip(parts[::2], parts[1::2], strict=True)
            for code in blocks(text, "sh")
        ]
        self.left = [number for number, _ in commands]
        file = folder / "examples.sh"
        file.write_text("\n".join(["set -eu", _PAUSE, *(f"{c}\n{_PAUSE}" for _, c in commands)]))
        self._program = subprocess.Popen(
            ["sh", file],
            cwd=folder,
            env={**os.environ, "NO_PROXY": "127.0.0.1", **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._read()

    def close(self) -> None:
        """End the program."""
        self._program.kill()
        self._program.communicate()

    def through(self, section: int) -> str:
        """Run the commands up to the end of a section. Return what they print."""
        printed = ""
        while self.left and self.left[0] <= section:
            self.left.pop(0)
            printed += self.run("")
        return printed

    def run(self, line: str) -> str:
        """Run a line, or the next block if no line is given. Return the output."""
        assert self._program.stdin
        self._program.stdin.write(f"{line}\n")
        self._program.stdin.flush()
        return self._read()

    def _read(self) -> str:
        assert self._program.stdout
        printed = ""
        for line in self._program.stdout:
            if line.rstrip().endswith(_PAUSED):
                return printed + line.rstrip().removesuffix(_PAUSED)
            printed += line
        raise AssertionError(printed)


def documents(text: str) -> list[Any]:  # JSON
    """Return the JSON documents that follow one another in the text."""
    found, decoder = [], json.JSONDecoder()
    while text := text.strip():
        document, end = decoder.raw_decode(text)
        found.append(document)
        text = text[end:]
    return found


@dataclass(frozen=True, kw_only=True)
class Given:
    """A running demo, an endpoint for its events, and the variables that the page sets.

    `shell` has run the first section, which adds the endpoint.
    """

    folder: Path
    demo: Demo
    receiver: EventReceiver
    environment: Mapping[str, str]
    shell: Shell

    def event_of(self, token_id: str) -> Received:
        """Wait for the event about a session."""
        events = self.receiver.received

        def find() -> Received | None:
            return next((e for e in events if e.content["data"]["token_id"] == token_id), None)

        return wait_until(find)


@contextmanager
def given_demo(folder: Path) -> Iterator[Given]:
    """Run a demo in a folder, and the commands in the first section of the page."""
    # The page names the database of port 8000; this demo is on another port.
    settings = {"CARDONFILE_DATABASE_URL": "sqlite:///cardonfile-demo-8000.db"}
    with EventReceiver() as receiver, running_demo(folder, settings) as demo:
        environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "NO_PROXY": "127.0.0.1",
            "API": demo.api,
            "CENTER": SPA.center.id,
            "SHOP": receiver.url.removesuffix("/events"),
        }
        with closing(Shell(folder, environment)) as shell:
            shell.through(GET_A_TOKEN)
            token, secret = shell.run('echo "$TOKEN $EVENTS_SECRET"').split()
            known = {**os.environ, **environment, "TOKEN": token, "EVENTS_SECRET": secret}
            yield Given(folder=folder, demo=demo, receiver=receiver, environment=known, shell=shell)


def type_card(hosted_payment_uri: str, back: str, number: str = GOOD_CARD) -> None:
    """Act as the guest's browser until it returns to the address `back`."""
    with browser() as guest:
        page = guest.get(hosted_payment_uri, timeout=LIMIT_SECONDS)
        action, form_token = re.findall(r'(?:action|name="form_token" value)="([^"]+)"', page.text)
        card = {"number": number, "expiry": "09/31", "cvc": "123"}
        address, form = urljoin(page.url, unescape(action)), {"form_token": form_token, **card}
        response = guest.post(address, form, allow_redirects=False, timeout=LIMIT_SECONDS)
        while (address := urljoin(address, response.headers["Location"])) != back:
            response = guest.get(address, allow_redirects=False, timeout=LIMIT_SECONDS)


def browser() -> requests.Session:
    """Return a browser that uses no proxy."""
    session = requests.Session()
    session.trust_env = False
    return session


def buys_at(shop: str, given: Given, command: Sequence[str | Path], folder: Path) -> None:
    """Run the page's shop, which listens at `shop`, and add a card as its guest.

    Checks that the shop shows the guest that the card was added, does not show this to another
    visitor, and accepts only signed events.
    """
    said = given.shell.run(f"cardonfile events add {shop}/events --type account.stored")
    secret = said.split()[-1]
    printed = folder / "printed"
    environment = {**given.environment, "SHOP": shop, "EVENTS_SECRET": secret}
    with (
        printed.open("w") as stdout,
        subprocess.Popen(command, cwd=folder, env=environment, stdout=stdout) as program,
    ):
        try:
            _buy(shop, printed)
        finally:
            program.kill()


def _buy(shop: str, printed: Path) -> None:
    with browser() as guest, browser() as stranger:

        def is_open() -> bool:
            try:
                return guest.get(shop, timeout=LIMIT_SECONDS).ok
            except requests.ConnectionError:
                return False

        wait_until(is_open)
        to_link = guest.post(f"{shop}/card", allow_redirects=False, timeout=LIMIT_SECONDS)
        assert to_link.status_code == 303
        type_card(to_link.headers["Location"], f"{shop}/back")
        token_id = re.findall("token_id=([0-9a-f-]+)", to_link.headers["Location"])[0]

        def shown() -> str:
            return guest.get(f"{shop}/back", timeout=LIMIT_SECONDS).text

        wait_until(lambda: shown() == "completed")
        assert not stranger.get(f"{shop}/back", timeout=LIMIT_SECONDS).ok
        forged = stranger.post(f"{shop}/events", json={}, timeout=LIMIT_SECONDS)
        assert forged.status_code == 400
    wait_until(lambda: f" account.stored {token_id}\n" in printed.read_text())
