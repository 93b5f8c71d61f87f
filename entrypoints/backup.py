"""Backups: checked copies of every database of an installation, in a folder."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from entrypoints.settings import Settings

_NAME: Final = re.compile(r"\.?[a-z0-9_]+-([0-9]{8}T[0-9]{6}Z)\.(?:db|dump)(\.partial)?")
"""A backup, or with `.partial` what a killed command has left of one."""


class BackupExists(Exception):
    """There is a backup of this second in the folder."""


def back_up(settings: Settings, folder: Path, now: datetime) -> list[Path]:
    """Copy every database into a folder, which is made if it is missing; return the files.

    Only their owner may read them. All are written and checked, or none is there. The service may
    run meanwhile. Raises BackupExists, OSError, and what `plain_errors` describes.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    stamp = _stamp(now)
    files = {folder / f"{name}-{stamp}{suffix}": copy for name, suffix, copy in _copies(settings)}
    with _all_or_none(files) as unfinished:
        for file, copy in files.items():
            copy(unfinished[file])
    return list(files)


def prune(folder: Path, keep: int, now: datetime) -> list[Path]:
    """Delete all but the newest backups in a folder, and return what was deleted.

    Those of a time to come stay and do not count: a clock was ahead.
    """
    found = [match for file in folder.iterdir() if (match := _NAME.fullmatch(file.name))]
    made = {match[1] for match in found if not match[2] and match[1] <= _stamp(now)}
    kept = sorted(made)[-keep:]
    deleted = sorted(folder / match[0] for match in found if kept and match[1] < kept[0])
    for file in deleted:
        file.unlink()
    return deleted


def _stamp(now: datetime) -> str:
    return f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def _copies(settings: Settings) -> Iterator[tuple[str, str, Callable[[Path], None]]]:
    """Yield the name and suffix of each database, and the function that copies it to a file."""
    from adapters.sqlite.backup import copy

    if isinstance(settings.database, Path):
        yield "cardonfile", ".db", partial(copy, settings.database)
    else:
        from adapters.postgresql.backup import dump

        yield "cardonfile", ".dump", partial(dump, settings.database.url)
    for name, psp in settings.psps.items():
        if psp.database is not None and psp.database.exists():
            yield name, ".db", partial(copy, psp.database)


@contextmanager
def _all_or_none(files: Iterable[Path]) -> Iterator[dict[Path, Path]]:
    """Yield an empty file beside each; rename them at the end, or delete them after an error."""
    unfinished = {file: file.with_name(f".{file.name}.partial") for file in files}
    try:
        for file, beside in unfinished.items():
            if file.exists():
                raise BackupExists(f"{file} exists")
            os.close(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        yield unfinished
        for file, beside in unfinished.items():
            beside.rename(file)
    finally:
        for beside in unfinished.values():
            beside.unlink(missing_ok=True)
