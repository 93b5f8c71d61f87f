"""A PSP as another company would write it: a distribution of its own, installed beside cardonfile."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from adapters.psp.contract.samples import GUEST_ID
from adapters.psp.stand_in import StandInServer
from tests.builders import CENTER_ID
from tests.programs import ROOT, free_port
from tests.waiting import wait_until

DISTRIBUTION: Final = Path(__file__).with_name("cardonfile-acme")
CARD: Final = "4242424242424242"

pytestmark = pytest.mark.slow


class Site:
    """A virtual environment with cardonfile and the distribution, in a folder of an operator."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "operator"
        self.folder.mkdir()
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder)}
        own = folder / "venv"
        self._bin = own / "bin"
        run(sys.executable, "-m", "venv", "--without-pip", str(own))
        packages = own / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
        # What cardonfile depends on, and pytest, are there already; cardonfile itself is not taken
        # from there, because this environment's own packages come first.
        (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
        wheels = [wheel_of(ROOT, folder / "a"), wheel_of(DISTRIBUTION, folder / "b")]
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(own))
        run(*pip, "install", "--quiet", "--no-deps", "--no-index", *map(str, wheels))

    def run(self, *words: str) -> str:
        """Run a program of the environment to its end, which must be a good one."""
        return run(str(self._bin / words[0]), *words[1:], cwd=self.folder, env=self.environment)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a command of cardonfile that goes on."""
        return subprocess.Popen(
            [str(self._bin / "cardonfile"), *words], cwd=self.folder, env=self.environment
        )


def run(*words: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def wheel_of(source: Path, folder: Path) -> Path:
    """Build a distribution from a copy, because the build leaves files beside the source."""
    copy = folder / "source"
    names = ("pyproject.toml", "LICENSE", "domain", "adapters", "entrypoints", "acme_psp")
    for path in (source / name for name in names):
        if path.is_dir():
            shutil.copytree(path, copy / path.name)
        elif path.exists():
            copy.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
    run(
        *(sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"),
        *("--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(folder), str(copy)),
    )
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("outside"))


def test_it_passes_the_contract_suite(site: Site) -> None:
    printed = site.run(
        *("python", "-m", "pytest", "-q", "-p", "no:cacheprovider"),
        *("--pyargs", "adapters.psp.contract", "--psp", "acme_psp.under_test:AcmeUnderTest"),
    )

    count, outcome = printed.splitlines()[-1].split()[:2]
    assert (int(count) > 150, outcome.strip(",")) == (True, "passed"), printed


# Any: the module is not on the path of this project.
@pytest.fixture
def acme(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Give a fake Acme that listens, with one merchant."""
    monkeypatch.syspath_prepend(DISTRIBUTION)
    fake = import_module("acme_psp.fake_acme")
    acme = fake.FakeAcme(lambda: datetime.now(UTC))
    acme.merchants["key_of_spa"] = fake.Merchant("spa")
    with closing(StandInServer(acme.respond, api="/v1/")) as server:
        acme.url = server.url
        yield acme


class Answer(NamedTuple):
    status: int
    location: str
    text: str


def ask(port: int, method: str, url: str, token: str = "", body: object = None) -> Answer:
    """Ask as a client with a token, or as a browser that follows nothing."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        path = url.removeprefix(f"http://127.0.0.1:{port}")
        connection.request(
            method, path, json.dumps(body) if body else None, headers if token else {}
        )
        response = connection.getresponse()
        text = response.read().decode()
        return Answer(response.status, response.headers.get("Location", ""), text)


def test_a_card_is_added_with_it_over_http(site: Site, acme: Any) -> None:
    (site.folder / "centers.csv").write_text(f"id,name\n{CENTER_ID},Harbor Spa\n")
    (site.folder / "guests.csv").write_text(
        f"id,first_name,last_name,email\n{GUEST_ID},Zoë,Null,zoe@guests.example\n"
    )
    site.environment |= {
        "CARDONFILE_PSPS": "acme",
        "CARDONFILE_ACME_URL": f"{acme.url}/v1",
        "CARDONFILE_ACME_API_KEY": "key_of_spa",
        "CARDONFILE_ACME_WEBHOOK_SECRETS": "secret of webhooks",
    }
    site.run("cardonfile", "migrate")
    for what in ("centers", "guests"):
        site.run("cardonfile", "import", what, f"{what}.csv")
    assert "[acme|fake|stripe]" in site.run("cardonfile", "configure-payments", "--help")
    site.run("cardonfile", "configure-payments", CENTER_ID, "--provider", "acme")
    may = ("--permission", "guests:add", "--permission", "guests:view")
    token = site.run("cardonfile", "token", "issue", "--caller", "shop", *may).strip()
    port = free_port()

    with site.start("serve", "--port", str(port)) as process:
        try:
            wait_until(lambda: is_listening(port))
            asked = {"center_id": CENTER_ID, "redirect_uri": "https://shop.example/cards"}
            accounts = f"/api/v1/guests/{GUEST_ID}/accounts"
            link = json.loads(ask(port, "POST", accounts, token, asked).text)["hosted_payment_uri"]
            page = ask(port, "GET", link).location.rpartition("/")[2]
            acme.type_card(page, CARD, (9, 2031))
            back = ask(port, "GET", acme.page(page)["asked"]["ways_out"]["done"])
            listed = ask(port, "GET", f"{accounts}?center_id={CENTER_ID}", token)
        finally:
            process.terminate()

    assert back.location == "https://shop.example/cards"
    (card,) = json.loads(listed.text)["accounts"]
    assert (card["last_four"], card["card_logo"]) == (CARD[-4:], "visa")
    assert process.returncode == 0


def is_listening(port: int) -> bool:
    with closing(socket.socket()) as attempt:
        return attempt.connect_ex(("127.0.0.1", port)) == 0
