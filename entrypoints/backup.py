"""Backups: checked copies of every database of an installation, in a folder."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path

from entrypoints.settings import Settings


class BackupExists(Exception):
    """The folder already has a backup of this second."""


def back_up(settings: Settings, folder: Path, now: datetime) -> list[Path]:
    """Copy every database into a folder, which is created if missing; return the files.

    Only their owner may read the files. Either all are written and checked, or none is left. The
    service may run meanwhile. Raises BackupExists, OSError, and the errors that `plain_errors`
    describes.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    end = f"{_mark(settings)}-{_stamp(now)}"
    files = {folder / f"{name}-{end}{suffix}": copy for name, suffix, copy in _copies(settings)}
    with _all_or_none(files) as unfinished:
        for file, copy in files.items():
            copy(unfinished[file])
    return list(files)


def prune(settings: Settings, folder: Path, keep: int, now: datetime) -> list[Path]:
    """Delete all but the newest backups of an installation in a folder; return the deleted files.

    Files with other names and of other installations stay. Backups dated in the future stay and do
    not count, because a clock was ahead. Remains of a killed backup are deleted with the backups of
    their time.
    """
    ours = re.compile(
        rf"\.?[a-z0-9_]+-{_mark(settings)}-([0-9]{{8}}T[0-9]{{6}}Z)\.(?:db|dump)(\.partial)?"
    )
    found = [
        match
        for file in folder.iterdir()
        if (match := ours.fullmatch(file.name)) and stat.S_ISREG(file.lstat().st_mode)
    ]
    made = {match[1] for match in found if not match[2] and match[1] <= _stamp(now)}
    kept = sorted(made)[-keep:]
    deleted = sorted(folder / match[0] for match in found if kept and match[1] < kept[0])
    for file in deleted:
        file.unlink()
    return deleted


def open_to_others(folder: Path) -> Path | None:
    """Return the folder, or its parent, if others may replace the backups there; otherwise None.

    With the sticky bit, only the owner of an entry may replace it.
    """
    folder = folder.resolve()
    for each in (folder, *folder.parents):
        mode = each.stat().st_mode
        may_write = mode & (stat.S_IWGRP | stat.S_IWOTH)
        if may_write and (each == folder or not mode & stat.S_ISVTX):
            return each
    return None


def _mark(settings: Settings) -> str:
    """Return an installation's mark in the names of its backups: 8 hexadecimal digits.

    The database's address alone would not be enough: SQLite's file may have the same path on each
    machine.
    """
    database = settings.database
    address = database.resolve() if isinstance(database, Path) else database
    return sha256(f"{settings.public_base_url}\n{address}".encode()).hexdigest()[:8]


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
    """Yield an empty file beside each file; rename them at the end, or delete them after an error."""
    unfinished: dict[Path, Path] = {}
    try:
        for file in files:
            if file.exists():
                raise BackupExists(f"{file} exists")
            beside = file.with_name(f".{file.name}.partial")
            os.close(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            unfinished[file] = beside
        yield unfinished
        for file, beside in unfinished.items():
            beside.rename(file)
    finally:
        for beside in unfinished.values():
            beside.unlink(missing_ok=True)
