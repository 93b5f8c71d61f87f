"""Every package that is installed is locked by version and hash."""

from __future__ import annotations

import json
import re
import subprocess
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


def test_every_locked_npm_package_has_a_hash_but_no_download_address() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "*package-lock.json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    locks = [ROOT / name for name in listed.stdout.split("\0") if name]

    assert locks
    for lock in locks:
        root, *packages = json.loads(lock.read_text())["packages"].items()
        assert root[0] == ""
        for name, package in packages:
            assert package["integrity"].startswith("sha512-"), name
            assert "resolved" not in package, name
