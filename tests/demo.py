"""The real demo, started as a separate process."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.request import ProxyHandler, Request, build_opener

from entrypoints.demo.sample import GUESTS, SPA
from tests.programs import ROOT, RUNTIME
from tests.waiting import LIMIT_SECONDS, wait_until

RUN_DEMO: Final = "from entrypoints.demo.demo import run_demo; run_demo"
ADA: Final = GUESTS[0].id
LAST_LINE: Final = "Stop with Ctrl-C."


@dataclass(frozen=True, kw_only=True)
class Demo:
    """A running demo, and what it has printed."""

    printed: str
    shop: str
    """The shop's address."""
    api: str
    """The API's address."""
    token: str
    """An access token for its API."""
    docs: str
    """The address of the API docs, with that token."""
    charge_key: str
    """The key that charges cards at its fake PSP."""
    settings: Mapping[str, str]
    log: Path

    def call(self, path: str, body: object = None, *, method: str | None = None) -> Any:  # JSON
        """Call the API about Ada's cards with the printed token."""
        request = Request(
            f"{self.api}/api/v1/guests/{ADA}/accounts{path}",
            data=json.dumps(body).encode() if body else None,
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
            method=method,
        )
        with build_opener(ProxyHandler({})).open(request, timeout=LIMIT_SECONDS) as response:
            return json.load(response)

    def add_card(self, redirect_uri: str | None = None) -> Any:  # JSON
        """Begin to add a card for Ada. She returns to `redirect_uri`, or else to the shop."""
        back = redirect_uri or f"{self.shop}/"
        return self.call("", {"center_id": SPA.center.id, "redirect_uri": back})

    def remove_cards(self) -> None:
        """Remove every card of Ada."""
        for card in self.call("?size=100")["accounts"]:
            self.call(f"/{card['account_id']}", method="DELETE")


@contextmanager
def running_demo(
    folder: Path,
    settings: Mapping[str, str] | None = None,
    *,
    port: int = 0,
    with_signal: signal.Signals = signal.SIGTERM,
) -> Iterator[Demo]:
    """Run a demo in a folder, end it by a signal, and check its exit status."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("CARDONFILE_")
    }
    printed, log = folder / "printed", folder / "log"
    with printed.open("wb") as stdout, log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-c", f"{RUNTIME}{RUN_DEMO}({port})"],
            cwd=folder,
            env={**environment, **(settings or {}), "PYTHONPATH": str(ROOT)},
            stdout=stdout,
            stderr=stderr,
        )
    try:
        wait_until(lambda: LAST_LINE in printed.read_text() or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        said = printed.read_text()
        names = dict(re.findall(r"^  (Shop|API|Token|Docs|Key) +(\S+)", said, re.MULTILINE))
        yield Demo(
            printed=said,
            shop=names["Shop"],
            api=names["API"],
            token=names["Token"],
            docs=names["Docs"],
            charge_key=names["Key"],
            settings=settings or {},
            log=log,
        )
        process.send_signal(with_signal)
        expected = -with_signal if with_signal == signal.SIGKILL else 0
        assert process.wait(LIMIT_SECONDS) == expected, log.read_text()
    finally:
        process.kill()
        process.wait()
