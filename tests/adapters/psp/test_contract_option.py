"""The option `--psp`: what is named is asked, and a mistake ends in one sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.programs import ROOT

SUITE: Final = "adapters.psp.contract"
UNDER_TEST: Final = "tests.adapters.fake_psp.under_test:FakePspUnderTest"


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a folder without settings of its own; this project is on the path."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs", *arguments],
        cwd=folder,
        env={"PYTHONPATH": f"{ROOT}", "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "acme.py").write_text(
        "from adapters.psp.contract.under_test import PspUnderTest\n"
        "class NotDone(PspUnderTest):\n"
        "    plugin = None\n"
        "class Psp: ...\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("named", "sentence"),
    [
        ([], "the contract suite needs to know what to ask: --psp MODULE:CLASS"),
        (["acme"], "--psp acme: expected MODULE:CLASS"),
        (["nowhere:Psp"], "--psp nowhere:Psp: nowhere cannot be imported (ModuleNotFoundError"),
        (["broken:Psp"], "--psp broken:Psp: broken cannot be imported (ZeroDivisionError"),
        (["acme:Other"], "acme has no subclass of PspUnderTest named Other"),
        (["acme:Psp"], "acme has no subclass of PspUnderTest named Psp"),
        (["acme:NotDone"], "NotDone lacks __init__, adapter, answer_challenge,"),
        ([UNDER_TEST, "acme"], "--psp acme: expected MODULE:CLASS"),
    ],
)
def test_a_mistake_ends_in_one_sentence(folder: Path, named: list[str], sentence: str) -> None:
    ended = run(folder, SUITE, *(f"--psp={each}" for each in named))

    assert ended.returncode == pytest.ExitCode.USAGE_ERROR
    assert ended.stderr.startswith("ERROR: ")
    assert sentence in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1


def test_a_mistake_is_no_success_in_several_processes(folder: Path) -> None:
    ended = run(folder, SUITE, "-n", "2", "--psp=acme:Psp")

    assert ended.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    assert "acme has no subclass" in ended.stdout


def test_the_class_that_is_named_is_asked_and_nothing_that_it_is_unable_to(folder: Path) -> None:
    ended = run(folder, SUITE, f"--psp={UNDER_TEST}", "-k", "TestBatch or TestDeadline", "-vv")

    assert ended.returncode == pytest.ExitCode.OK
    assert "test_every_event_of_it_is_read[fake] PASSED" in ended.stdout
    assert "TestDeadline" not in ended.stdout


def test_other_runs_load_nothing_of_the_suite(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(
        "import sys\n"
        "def test_other():\n"
        "    ours = {name for name in sys.modules if name.startswith(('adapters', 'domain'))}\n"
        "    assert ours == {'adapters', 'adapters.psp', 'adapters.psp.contract',\n"
        "                    'adapters.psp.contract.pytest_plugin'}\n"
    )

    ended = run(tmp_path, "test_other.py")

    assert ended.returncode == pytest.ExitCode.OK, ended.stdout


def test_it_can_be_left_out(tmp_path: Path) -> None:
    ended = run(tmp_path, "-p", "no:cardonfile-psp", "--help")

    assert ended.returncode == pytest.ExitCode.OK
    assert "--psp" not in ended.stdout
