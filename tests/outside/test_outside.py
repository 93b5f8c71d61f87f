"""A PSP of another company: a distribution of its own, installed beside cardonfile."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

import pytest

from tests.programs import ROOT

DISTRIBUTION: Final = ROOT / "adapters" / "psp" / "example"
BUILD: Final = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"


class Site:
    """A virtual environment with cardonfile and the distribution, in a folder of an operator."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "operator"
        self.folder.mkdir()
        environment = folder / "venv"
        self._bin = environment / "bin"
        run(sys.executable, "-m", "venv", "--without-pip", str(environment))
        version = f"python{sysconfig.get_python_version()}"
        packages = environment / "lib" / version / "site-packages"
        # The dependencies and pytest come from this project's environment. Its cardonfile does not:
        # the packages of the new environment come first.
        (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
        wheels = [wheel_of(ROOT, folder / "a"), wheel_of(DISTRIBUTION, folder / "b")]
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
        options = ("--quiet", "--no-deps", "--no-index", "--no-compile")
        run(*pip, "--python", str(environment), "install", *options, *map(str, wheels))

    def run(self, *words: str, **variables: str) -> str:
        """Run a program of the environment, which must succeed; returns what it prints."""
        env = {"PATH": os.environ["PATH"], "HOME": str(self.folder), **variables}
        return run(str(self._bin / words[0]), *words[1:], cwd=self.folder, env=env)


def run(*words: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def wheel_of(source: Path, folder: Path) -> Path:
    """Build a wheel from a copy, because the build leaves files beside the source."""
    copy = folder / "source"
    names = ("pyproject.toml", "LICENSE", "domain", "adapters", "entrypoints", "acme_psp")
    for path in (source / name for name in names):
        if path.is_dir():
            shutil.copytree(path, copy / path.name, ignore=shutil.ignore_patterns("__pycache__"))
        elif path.exists():
            copy.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
    run(sys.executable, "-c", BUILD, str(folder), cwd=copy)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("outside"))


def test_it_passes_the_contract_suite(site: Site) -> None:
    printed = site.run(
        # Of pytest's plugins only the suite's own: others take long to load.
        *("python", "-m", "pytest", "-q", "-p", "no:cacheprovider"),
        *("-p", "adapters.psp.contract.pytest_plugin", "--pyargs", "adapters.psp.contract"),
        *("--psp", "acme_psp.under_test:AcmeUnderTest"),
        *("--psp", "acme_psp.under_test:AcmeWithoutKeysUnderTest"),
        PYTEST_DISABLE_PLUGIN_AUTOLOAD="1",
    )

    count, outcome = printed.splitlines()[-1].split()[:2]
    assert (int(count) > 100, outcome.strip(",")) == (True, "passed"), printed


def test_a_card_is_added_with_it(site: Site) -> None:
    added = json.loads(site.run("python", "-m", "acme_psp.add_a_card"))

    assert added["back"] == "https://shop.example/cards"
    assert (added["last_four"], added["card_logo"]) == ("4242", "visa")


def test_the_example_comes_with_the_wheel(site: Site) -> None:
    printed = site.run("python", "-c", "import adapters.psp as psp; print(psp.__path__[0])")
    example = Path(printed.strip()) / "example"

    assert not example.is_relative_to(ROOT)
    names = {path.name for path in example.rglob("*")}
    assert names >= {"adapter.py", "fake_acme.py", "pyproject.toml", "under_test.py"}


def test_the_command_is_installed(site: Site) -> None:
    assert "[acme|fake|stripe]" in site.run("cardonfile", "configure-payments", "--help")
