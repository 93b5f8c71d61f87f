"""Everything that is installed is named by version and hash, and by no address of an index."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[1]
LOCKS: Final = sorted(ROOT.glob("requirements*.txt"))


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_package_has_its_version_and_a_hash(lock: Path) -> None:
    lines = re.sub(r"\\\n\s*", " ", lock.read_text()).splitlines()
    packages = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]

    assert packages
    for package in packages:
        assert re.match(r"[a-z0-9.\-]+==[^ ]+ .*--hash=sha256:[0-9a-f]{64}", package), package


def test_nothing_is_installed_without_its_hash() -> None:
    makefile = (ROOT / "Makefile").read_text()
    installed = re.findall(r"\$\(PIP\)[^\n]* install .*", makefile)

    assert len(installed) >= 4
    for line in installed:
        # The tree itself, and the tool that makes the locks.
        assert "--require-hashes" in line or "--no-deps" in line or line.endswith(" uv"), line
