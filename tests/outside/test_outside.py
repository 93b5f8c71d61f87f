"""Tests the installed wheel outside of the source tree, with a PSP plug-in by another author."""

from __future__ import annotations

import http.client
import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self

import pytest

from adapters.psp_example.fake_acme import GOOD, FakeAcme, Merchant
from adapters.psp_suite.stand_in import StandInServer
from domain.identifiers import CenterId
from tests.adapters.http.api import ACCOUNTS, GOOD_BODY
from tests.builders import CENTER_ID, OTHER_CENTER_ID, a_guest
from tests.installation import Installation
from tests.programs import ROOT, RUNTIME, Server, free_port, got
from tests.waiting import LIMIT_SECONDS, wait_until

WITHOUT_KEYS: Final = "WithoutKeys and (TestStart or TestTrouble or TestPspInTrouble or TestCalls)"
BY_WEBHOOK: Final = "ByWebhook and (TestOutcome or TestEvidence or TestCard or TestWebhook)"
BUILD: Final = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"


class Site:
    """A virtual environment with cardonfile and a new PSP plug-in, and the folder of its author."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "author"
        self.folder.mkdir()
        environment = folder / "venv"
        self.bin = environment / "bin"
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder)}
        run(sys.executable, "-m", "venv", "--without-pip", str(environment))
        version = f"python{sysconfig.get_python_version()}"
        packages = environment / "lib" / version / "site-packages"
        # The dependencies and pytest come from this project's environment. cardonfile comes from
        # the new environment, whose packages take precedence. Python executes the import in this
        # file whenever it starts.
        (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n{RUNTIME}\n")
        self._install(cardonfile(folder / "source"))
        printed = self.run("cardonfile", "psp", "new", "harborpay")
        self.run_suite = shlex.split(printed.splitlines()[-1])
        self._install(self.folder / "cardonfile-harborpay")

    def _install(self, source: Path) -> None:
        run(sys.executable, "-c", BUILD, str(source), cwd=source)
        (wheel,) = source.glob("*.whl")
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
        options = ("--quiet", "--no-deps", "--no-index", "--no-compile")
        run(*pip, "--python", str(self.bin.parent), "install", *options, str(wheel))

    def run(self, *words: str, **variables: str) -> str:
        """Run a program of the environment. Return its output. The program must succeed."""
        env = {**self.environment, **variables}
        return run(str(self.bin / words[0]), *words[1:], cwd=self.folder, env=env)


class Served(Server):
    """The `cardonfile serve` of the environment. It stops at the end of a `with` block."""

    def __init__(self, site: Site, token: str) -> None:
        self.port = free_port()
        self.headers = {"Authorization": f"bearer {token}", "Content-Type": "application/json"}
        self._log = (site.folder / "log").open("wb")
        self._process = subprocess.Popen(
            [site.bin / "cardonfile", "serve", "--port", str(self.port)],
            cwd=site.folder,
            env=site.environment,
            stderr=self._log,
        )

    def __enter__(self) -> Self:
        wait_until(lambda: self.status("/readyz") == 200)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(LIMIT_SECONDS)
        self._log.close()

    def opened_page(self, connection: http.client.HTTPConnection, center: CenterId) -> str:
        """Add a card at a center, open the link, and return the address of the PSP's page."""
        body = json.dumps({**GOOD_BODY, "center_id": center})
        connection.request("POST", ACCOUNTS, body, self.headers)
        link = json.load(connection.getresponse())["hosted_payment_uri"]
        return str(got(connection, link).headers["Location"])


def run(*words: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def cardonfile(copy: Path) -> Path:
    """Copy the sources of the wheel, because the build leaves files beside them."""
    for path in (ROOT / name for name in ("domain", "adapters", "entrypoints")):
        shutil.copytree(path, copy / path.name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    return copy


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("outside"))


def test_a_new_psp_plugin_passes_the_contract_suite(site: Site) -> None:
    printed = site.run(
        *site.run_suite,
        *("--psp", "harborpay_psp.under_test:HarborpayWithoutKeysUnderTest"),
        *("--psp", "harborpay_psp.under_test:HarborpayByWebhookUnderTest"),
        # Test only what the two variants do not inherit. The first creates pages
        # differently and tries a call only once. The second reads outcomes from webhooks.
        *("-k", f"HarborpayUnderTest or {WITHOUT_KEYS} or {BY_WEBHOOK}"),
        # Load only the suite's own pytest plugin, because other plugins take long to load.
        *("-q", "-p", "no:cacheprovider"),
        PYTEST_DISABLE_PLUGIN_AUTOLOAD="1",
    )

    count, outcome = printed.splitlines()[-1].split()[:2]
    assert (int(count) > 100, outcome.strip(",")) == (True, "passed"), printed


def test_the_wheel_contains_every_file_of_the_packages(site: Site) -> None:
    printed = site.run("python", "-c", "import domain; print(domain.__path__[0])")
    installed = Path(printed.strip()).parent
    files = [
        path.relative_to(ROOT)
        for package in ("adapters", "domain", "entrypoints")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]

    assert not installed.is_relative_to(ROOT)
    assert {"adapters/catalogs/de.toml", "adapters/http/templates/docs.html"} <= set(
        map(str, files)
    )
    assert [str(file) for file in files if not (installed / file).is_file()] == []


@pytest.fixture(scope="module")
def harborpay(site: Site) -> Iterator[FakeAcme]:
    """Run the fake of the new PSP, and put its keys into the settings."""
    fake = FakeAcme(lambda: datetime.now(UTC))
    fake.merchants["key_of_spa"] = Merchant("spa")
    with closing(StandInServer(fake.respond, api="/v1/")) as server:
        fake.url = server.url
        site.environment |= {
            "CARDONFILE_PSPS": "harborpay",
            "CARDONFILE_HARBORPAY_URL": f"{server.url}/v1",
            "CARDONFILE_HARBORPAY_API_KEY": "key_of_spa",
            "CARDONFILE_HARBORPAY_WEBHOOK_SECRETS": "secret of webhooks",
        }
        yield fake


@pytest.fixture(scope="module")
def served(site: Site, harborpay: FakeAcme) -> Iterator[Served]:
    """Run `cardonfile serve` with a guest who reads German and a center for each of two PSPs."""
    installation = Installation(site.folder)
    installation.has_guest(a_guest(language="de"))
    installation.has_other_center()
    installation.container.set_consent()(CENTER_ID, "de")
    clock = installation.clock
    clock.advance(datetime.now(UTC) - clock.now())
    token = installation.token_for(installation.caller)
    installation.close()
    site.environment["CARDONFILE_DATABASE_URL"] = f"sqlite:///{installation.database}"
    site.run("cardonfile", "configure-payments", OTHER_CENTER_ID, "--provider", "harborpay")
    with Served(site, token) as served:
        yield served


def test_the_installed_service_serves_the_api_docs(served: Served) -> None:
    for path in ("/docs", "/docs/docs.css", "/docs/show.js", "/docs/swagger_bundle.js"):
        assert served.status(path) == 200, path


def test_the_installed_service_shows_a_page_in_the_language_of_the_guest(
    served: Served,
) -> None:
    with closing(served.connect()) as connection:
        page = served.opened_page(connection, CENTER_ID)
        connection.request("GET", page)
        shown = connection.getresponse().read().decode()

    assert '<html lang="de"' in shown
    assert "Karte" in shown


def test_a_card_can_be_added_with_a_new_psp_plugin(served: Served, harborpay: FakeAcme) -> None:
    with closing(served.connect()) as connection:
        page = served.opened_page(connection, OTHER_CENTER_ID).rpartition("/")[2]
        harborpay.type_card(page, GOOD, (9, 2031))
        way_out = harborpay.page(page)["asked"]["ways_out"]["done"]
        back = got(connection, way_out).headers["Location"]
        connection.request("GET", ACCOUNTS, headers=served.headers)
        (card,) = json.load(connection.getresponse())["accounts"]

    assert back == GOOD_BODY["redirect_uri"]
    assert (card["last_four"], card["card_logo"]) == ("4242", "visa")


def test_the_installed_command_offers_the_new_psp(site: Site) -> None:
    assert "[fake|harborpay|mollie|stripe]" in site.run(
        "cardonfile", "configure-payments", "--help"
    )
