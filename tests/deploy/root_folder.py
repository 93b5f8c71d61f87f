"""A folder that programs take for the root of the file system, as in a container. It needs root."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from signal import SIGKILL
from typing import Final

# Folders of the system are shown, and can be read only.
_SHOW_SYSTEM: Final = """
set -e
cd "$0"
mkdir -p tmp proc dev
mount --bind . .
cd "$0"
for folder in /usr /bin /lib /lib64 /etc; do
    test -d $folder || continue
    mkdir -p .$folder
    mount --bind $folder .$folder
    mount --options remount,bind,ro .$folder
done
mount --rbind /dev dev
mount --types tmpfs tmpfs tmp
"""
_BUILD: Final = f"""{_SHOW_SYSTEM}
mount --types proc proc proc
exec chroot . sh -c "$1"
"""
# The systemd units ask for this: see PrivateTmp, ProcSubset, ProtectProc and ProtectSystem.
_RUN: Final = f"""{_SHOW_SYSTEM}
mount --types proc --options hidepid=invisible,subset=pid proc proc
user=$1 writable=$2
shift 2
for folder in $writable; do
    mount --bind .$folder .$folder
done
mount --options remount,bind,ro .
exec chroot . setpriv --reuid $user --regid $user --clear-groups --no-new-privs \\
    --inh-caps=-all --bounding-set=-all -- env --chdir "$WORKING_DIRECTORY" "$@"
"""
_SYSTEM: Final = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


class RootFolder:
    """A folder into which files are copied, and in which commands and services run."""

    def __init__(self, folder: Path) -> None:
        """`folder` must be empty."""
        self.folder = folder
        # Other users get in.
        folder.chmod(0o755)

    def path(self, inside: str) -> Path:
        """Return the path in the test for a path inside the folder."""
        return self.folder / inside.lstrip("/")

    def copy(self, source: Path, inside: str) -> None:
        """Copy a file or a folder."""
        target = self.path(inside)
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)

    def build(self, command: str, folder: str, environment: Mapping[str, str]) -> None:
        """Run a shell command in a folder as root. Only the system's folders are read-only."""
        in_folder = f"cd {folder} && {command}"
        subprocess.run(
            ["unshare", "--mount", "sh", "-c", _BUILD, str(self.folder), in_folder],
            env={**_SYSTEM, **_settings_of_pip(), **environment},
            check=True,
        )

    @contextmanager
    def running(
        self,
        command: Sequence[str],
        *,
        user: int,
        writable: Sequence[str],
        working_directory: str,
        environment: Mapping[str, str],
    ) -> Iterator[subprocess.Popen[str]]:
        """Start a command as another user, who can write only to `writable`. Kill it in the end.

        These folders belong to the user.
        """
        for inside in writable:
            self.path(inside).mkdir(parents=True, exist_ok=True)
            os.chown(self.path(inside), user, user)
        with subprocess.Popen(
            [
                *("unshare", "--mount", "sh", "-c", _RUN, str(self.folder)),
                *(str(user), " ".join(writable), *command),
            ],
            env={**_SYSTEM, **environment, "WORKING_DIRECTORY": working_directory},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                yield process
            finally:
                if process.returncode is None:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, SIGKILL)


def _settings_of_pip() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
