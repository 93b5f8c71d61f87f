"""Every package that is installed is locked by version and hash."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]


# Shows S19.
def test_every_locked_package_has_a_hash_for_its_version() -> None:
    for lock in ROOT.glob("requirements*.txt"):
        lines = re.sub(r"\\\n\s*", " ", lock.read_text()).splitlines()
        packages = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]

        assert packages
        for package in packages:
            # No option such as --index-url, and no address instead of a version.
            assert re.match(r"[a-z0-9.\-]+==[^ ]+ .*--hash=sha256:[0-9a-f]{64}", package), package
