"""The wheel, outside of the source tree, and a new PSP of another company beside it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final, Self

import pytest

from adapters.psp.contract.samples import GUEST_ID
from tests.adapters.http.api import ACCOUNTS, GOOD_BODY
from tests.builders import CENTER_ID
from tests.programs import ROOT, RUNTIME, Server, free_port, got
from tests.waiting import LIMIT_SECONDS, wait_until

BUILD: Final = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"


class Site:
    """A virtual environment with cardonfile and a new PSP, in the folder of its author."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "author"
        self.folder.mkdir()
        environment = folder / "venv"
        self.bin = environment / "bin"
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder)}
        run(sys.executable, "-m", "venv", "--without-pip", str(environment))
        version = f"python{sysconfig.get_python_version()}"
        packages = environment / "lib" / version / "site-packages"
        # The dependencies and pytest come from this project's environment. Its cardonfile does not:
        # the packages of the new environment come first. A line that imports is run at each start.
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
        """Run a program of the environment, which must succeed; returns what it prints."""
        env = {**self.environment, **variables}
        return run(str(self.bin / words[0]), *words[1:], cwd=self.folder, env=env)


class Served(Server):
    """`cardonfile serve` of the environment, which stops at the end of a block."""

    def __init__(self, site: Site, token: str) -> None:
        self.port, self.token = free_port(), token
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


def run(*words: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def cardonfile(copy: Path) -> Path:
    """Copy what the wheel is built from, because the build leaves files beside it."""
    for path in (ROOT / name for name in ("domain", "adapters", "entrypoints")):
        shutil.copytree(path, copy / path.name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    return copy


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("outside"))


def test_a_new_psp_passes_the_contract_suite(site: Site) -> None:
    printed = site.run(
        *site.run_suite,
        *("--psp", "harborpay_psp.under_test:HarborpayWithoutKeysUnderTest"),
        # Without idempotency keys it makes pages in its own way, and tries a call once.
        *("-k", "not WithoutKeys or TestStart or TestTrouble or TestPspInTrouble or TestCalls"),
        # Of pytest's plugins only the suite's own: others take long to load.
        *("-q", "-p", "no:cacheprovider"),
        PYTEST_DISABLE_PLUGIN_AUTOLOAD="1",
    )

    count, outcome = printed.splitlines()[-1].split()[:2]
    assert (int(count) > 100, outcome.strip(",")) == (True, "passed"), printed


def test_a_card_is_added_with_it(site: Site) -> None:
    added = json.loads(site.run("python", "-m", "harborpay_psp.add_a_card"))

    assert added["back"] == "https://shop.example/cards"
    assert (added["last_four"], added["card_logo"]) == ("4242", "visa")


def test_every_file_comes_with_the_wheel(site: Site) -> None:
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
def served(site: Site) -> Iterator[Served]:
    """Run `cardonfile serve`, with a center whose guests read German."""
    (site.folder / "centers.csv").write_text(f"id,name\n{CENTER_ID},Harbor Spa\n")
    (site.folder / "guests.csv").write_text(
        f"id,first_name,last_name,email,language\n{GUEST_ID},Ada,Sample,,de\n"
    )
    site.run("cardonfile", "migrate")
    for records in ("centers", "guests"):
        site.run("cardonfile", "import", records, f"{records}.csv")
    site.run("cardonfile", "configure-payments", CENTER_ID, "--provider", "fake")
    site.run("cardonfile", "consent", "set", "--center", CENTER_ID, "--language", "de")
    issue = ("token", "issue", "--caller", "web", "--permission", "guests:add")
    token = site.run("cardonfile", *issue).strip()
    with Served(site, token) as served:
        yield served


def test_it_shows_the_api(served: Served) -> None:
    for path in ("/docs", "/docs/docs.css", "/docs/show.js", "/docs/swagger_bundle.js"):
        assert served.status(path) == 200, path


def test_it_shows_a_hosted_page_in_the_language_of_the_guest(served: Served) -> None:
    with closing(served.connect()) as connection:
        headers = {"Authorization": f"bearer {served.token}", "Content-Type": "application/json"}
        connection.request("POST", ACCOUNTS, json.dumps(GOOD_BODY), headers)
        link = json.load(connection.getresponse())["hosted_payment_uri"]
        page = got(connection, link).headers["Location"]
        connection.request("GET", page)
        shown = connection.getresponse().read().decode()

    assert '<html lang="de"' in shown
    assert "Karte" in shown


def test_the_command_is_installed(site: Site) -> None:
    assert "[fake|harborpay|mollie|stripe]" in site.run(
        "cardonfile", "configure-payments", "--help"
    )
