"""The option `--psp` of the contract suite."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from adapters.psp_suite.pytest_plugin import load
from tests.programs import ROOT

SUITE: Final = ("--pyargs", "adapters.psp_suite")
UNDER_TEST: Final = "tests.adapters.fake_psp.under_test:FakePspUnderTest"


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a folder without settings, with only the suite's plugin. Others are slow."""
    plugin = ("-p", "adapters.psp_suite.pytest_plugin")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, *arguments],
        cwd=folder,
        env={"PYTHONPATH": f"{ROOT}", "PATH": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("named", "sentence"),
    [
        ([], "name the PSP to test: --psp MODULE:CLASS"),
        (["broken"], "--psp broken: expected MODULE:CLASS"),
        (["nowhere:Psp"], "--psp nowhere:Psp: nowhere cannot be imported (ModuleNotFoundError"),
        (["broken:Psp"], "--psp broken:Psp: broken cannot be imported (ZeroDivisionError"),
        ([f"{__name__}:Other"], "has no subclass of PspUnderTest named Other"),
        ([f"{__name__}:Path"], "has no subclass of PspUnderTest named Path"),
        (["unfinished:NotDone"], "NotDone lacks __init__, adapter, answer_challenge,"),
        ([UNDER_TEST, "broken"], "--psp broken: expected MODULE:CLASS"),
    ],
)
def test_a_mistake_in_the_pytest_option_psp_is_described_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: list[str], sentence: str
) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "unfinished.py").write_text(
        "from adapters.psp_suite.under_test import PspUnderTest\n"
        "class NotDone(PspUnderTest):\n"
        "    plugin = None\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(pytest.UsageError) as raised:
        load(named)

    assert sentence in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


def test_a_mistake_in_the_pytest_option_psp_ends_the_run_even_under_pytest_xdist(
    tmp_path: Path,
) -> None:
    ended = run(tmp_path, *SUITE, "-p", "xdist", "-n", "1", "--psp=nowhere:Psp")

    assert ended.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    assert "nowhere cannot be imported" in ended.stdout


def test_contract_tests_for_features_that_the_psp_lacks_are_not_collected(tmp_path: Path) -> None:
    ended = run(tmp_path, *SUITE, f"--psp={UNDER_TEST}", "--collect-only")

    assert ended.returncode == pytest.ExitCode.OK
    assert "TestBatch::test_every_event_in_a_batch_is_read[fake]" in ended.stdout
    assert "TestDeadline" not in ended.stdout


def test_a_pytest_run_of_other_tests_does_not_load_the_contract_suite(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(
        "import sys\n"
        "def test_other():\n"
        "    ours = {name for name in sys.modules if name.startswith(('adapters', 'domain'))}\n"
        "    assert ours == {'adapters', 'adapters.psp_suite', 'adapters.psp_suite.pytest_plugin'}\n"
    )

    ended = run(tmp_path, "test_other.py")

    assert ended.returncode == pytest.ExitCode.OK, ended.stdout
