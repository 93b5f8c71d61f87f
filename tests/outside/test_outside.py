"""A new PSP of another company: a distribution of its own, installed beside cardonfile."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

import pytest

from tests.programs import ROOT

BUILD: Final = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"


class Site:
    """A virtual environment with cardonfile and a new PSP, in the folder of its author."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "author"
        self.folder.mkdir()
        environment = folder / "venv"
        self._bin = environment / "bin"
        run(sys.executable, "-m", "venv", "--without-pip", str(environment))
        version = f"python{sysconfig.get_python_version()}"
        packages = environment / "lib" / version / "site-packages"
        # The dependencies and pytest come from this project's environment. Its cardonfile does not:
        # the packages of the new environment come first.
        (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
        self._install(cardonfile(folder / "source"))
        printed = self.run("cardonfile", "psp", "new", "harborpay")
        self.run_suite = shlex.split(printed.splitlines()[-1])
        self._install(self.folder / "cardonfile-harborpay")

    def _install(self, source: Path) -> None:
        run(sys.executable, "-c", BUILD, str(source), cwd=source)
        (wheel,) = source.glob("*.whl")
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
        options = ("--quiet", "--no-deps", "--no-index", "--no-compile")
        run(*pip, "--python", str(self._bin.parent), "install", *options, str(wheel))

    def run(self, *words: str, **variables: str) -> str:
        """Run a program of the environment, which must succeed; returns what it prints."""
        env = {"PATH": os.environ["PATH"], "HOME": str(self.folder), **variables}
        return run(str(self._bin / words[0]), *words[1:], cwd=self.folder, env=env)


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


def test_the_command_is_installed(site: Site) -> None:
    assert "[fake|harborpay|stripe]" in site.run("cardonfile", "configure-payments", "--help")
