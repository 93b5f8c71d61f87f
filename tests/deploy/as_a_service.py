"""Tests the systemd units and the Dockerfile of docs/examples/ without systemd or containers.

The build of the Dockerfile runs in a folder. The commands of the units and of the image then run
as other users, whose files are read-only. `make test-deploy` runs these tests as root. `make test`
does not, because they need programs of the system.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGHUP, SIGTERM
from typing import Final

import pytest

from tests.deploy.root_folder import RootFolder
from tests.programs import ROOT, Server, free_port
from tests.waiting import LIMIT_SECONDS, wait_until

EXAMPLES: Final = ROOT / "docs" / "examples"
UNITS: Final = sorted(EXAMPLES.glob("*.service"))
TIMERS: Final = sorted(EXAMPLES.glob("*.timer"))
MOST_EXPOSED: Final = 15
"""Ten times the exposure that `systemd-analyze security` may find: from 0 to 100."""
USER: Final = 10_001
STATE: Final = "/var/lib/cardonfile"


def directives(unit: Path) -> dict[str, str]:
    """Return the directives of a unit. If several have the same name, the last counts."""
    return dict(re.findall(r"^(\w+)=(.*)$", unit.read_text(), re.MULTILINE))


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile with their texts, in order."""
    text = re.sub(r"^#.*\n", "", (EXAMPLES / "Dockerfile").read_text(), flags=re.MULTILINE)
    return re.findall(r"^([A-Z]+) +(.+)$", text.replace("\\\n", " "), re.MULTILINE)


def last(name: str) -> str:
    """Return the text of the last instruction of this name."""
    return [text for each, text in instructions() if each == name][-1]


HEALTHCHECK: Final[list[str]] = json.loads(last("HEALTHCHECK").partition("CMD")[2])


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> RootFolder:
    """Build both stages of the image in one folder."""
    root = RootFolder(tmp_path_factory.mktemp("root"))
    folder, environment = "/", {"EXTRAS": "granian"}
    for name, text in instructions():
        if name == "WORKDIR":
            folder = text
            root.path(folder).mkdir(parents=True, exist_ok=True)
        elif name == "COPY" and not text.startswith("--from="):
            *patterns, target = text.split()
            for source in (path for pattern in patterns for path in ROOT.glob(pattern)):
                inside = f"{folder}/{target}"
                root.copy(source, f"{inside}{source.name}" if target.endswith("/") else inside)
        elif name == "RUN":
            root.build(text, folder, environment)
    return root


class Installed(Server):
    """An installation of the built image. Commands run with the rights of a unit."""

    def __init__(self, root: RootFolder) -> None:
        """Create the database. Its address is a secret in a file."""
        self.root = root
        self.port = free_port()
        secret = root.path("/run/secrets/database-url")
        secret.parent.mkdir(parents=True)
        secret.write_text(f"sqlite:///{STATE}/cardonfile.db\n")
        assert self.run("cardonfile", "migrate")[0] == 0

    @contextmanager
    def running(self, *command: str, unit: Path = UNITS[0]) -> Iterator[subprocess.Popen[str]]:
        """Start a command that may write only where the unit may."""
        may_write = directives(unit).get("ReadWritePaths", "").split()
        with self.root.running(
            command,
            user=USER,
            writable=(STATE, *may_write),
            working_directory=STATE,
            environment={
                "PATH": "/opt/cardonfile/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "CARDONFILE_DATABASE_URL_FILE": "/run/secrets/database-url",
                "CARDONFILE_PUBLIC_BASE_URL": f"http://127.0.0.1:{self.port}",
            },
        ) as process:
            yield process

    def run(self, *command: str, unit: Path = UNITS[0]) -> tuple[int, str]:
        """Run a command, and return its exit status and its output."""
        with self.running(*command, unit=unit) as process:
            printed, complaint = process.communicate(timeout=LIMIT_SECONDS)
        return process.returncode, printed + complaint


@pytest.fixture(scope="module")
def installed(root: RootFolder) -> Installed:
    return Installed(root)


def command_of(unit: str) -> list[str]:
    """Return the command of a unit."""
    return shlex.split(directives(EXAMPLES / unit)["ExecStart"])


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze."""
    command = ["systemd-analyze", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_systemd_accepts_the_example_units(tmp_path: Path) -> None:
    for unit in (*UNITS, *TIMERS):
        # Its commands are elsewhere here.
        command = unit.read_text().replace("/opt/cardonfile/bin/cardonfile", "/bin/true")
        (tmp_path / unit.name).write_text(command)

    verified = analyze("verify", *map(str, tmp_path.iterdir()))

    assert (verified.returncode, verified.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_each_example_unit_has_few_rights(unit: Path) -> None:
    judged = analyze("security", "--offline=true", f"--threshold={MOST_EXPOSED}", str(unit))

    assert judged.returncode == 0, judged.stdout
    assert _limits(unit) == _limits(UNITS[0])


def _limits(unit: Path) -> str:
    _, _, limits = unit.read_text().partition("# What it may do")
    return limits.partition("[Install]")[0].strip()


@pytest.mark.parametrize(
    "command",
    [command_of("cardonfile.service"), [*json.loads(last("ENTRYPOINT")), *json.loads(last("CMD"))]],
    ids=["unit", "image"],
)
def test_the_server_works_with_the_rights_that_its_unit_grants(
    installed: Installed, command: list[str]
) -> None:
    with installed.running(*command, "--port", str(installed.port)) as server:
        wait_until(lambda: installed.status("/readyz") == 200)
        wait_until(lambda: installed.run(*HEALTHCHECK)[0] == 0)
        assert installed.run("touch", f"{STATE}/file")[0] == 0
        for folder in ("/opt/cardonfile", "/usr", "/etc", "/run/secrets"):
            assert "Read-only" in installed.run("touch", f"{folder}/file")[1]
        server.send_signal(SIGHUP)
        _, logged = server.communicate(timeout=LIMIT_SECONDS)

    assert server.returncode == 0, logged
    assert "stopped" in logged


def test_the_worker_works_with_the_rights_that_its_unit_grants(installed: Installed) -> None:
    with installed.running(*command_of("cardonfile-work.service")) as worker:
        assert worker.stderr is not None
        assert "working" in worker.stderr.readline()
        worker.send_signal(SIGTERM)
        worker.communicate(timeout=LIMIT_SECONDS)

    assert worker.returncode == 0


def test_the_backup_works_with_the_rights_that_its_unit_grants(installed: Installed) -> None:
    unit = EXAMPLES / "cardonfile-backup.service"

    status, printed = installed.run(*command_of(unit.name), unit=unit)

    assert status == 0, printed
    assert list(installed.root.path("/var/backups/cardonfile").rglob("*.db")), printed


def test_the_environment_of_the_caller_overrides_the_settings_file_of_the_installed_command(
    tmp_path: Path,
) -> None:
    file = tmp_path / "settings"
    file.write_text(
        "CARDONFILE_LOG_LEVEL=error\nCARDONFILE_DATABASE_URL=postgresql:///cardonfile\n"
    )
    before, _, _ = (EXAMPLES / "cardonfile.sh").read_text().partition("exec ")
    script = before.replace("/etc/cardonfile/settings", str(file)) + "env"
    given = {"PATH": os.environ["PATH"], "CARDONFILE_DATABASE_URL": "postgresql:///it's replaced"}

    printed = subprocess.run(
        ["sh", "-c", script], env=given, check=True, capture_output=True
    ).stdout

    settings = {line for line in printed.decode().splitlines() if line.startswith("CARDONFILE_")}
    assert settings == {
        "CARDONFILE_LOG_LEVEL=error",
        "CARDONFILE_DATABASE_URL=postgresql:///it's replaced",
    }


def test_the_container_image_contains_no_build_tools(installed: Installed) -> None:
    assert installed.run("cardonfile", "--version")[0] == 0
    packages = installed.root.path("/opt/cardonfile/lib").glob("*/site-packages/*")
    assert not {"pip", "setuptools"} & {package.name for package in packages}
