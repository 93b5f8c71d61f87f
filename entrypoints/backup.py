"""Back up an installation: copy all its databases into a folder, and check the copies."""

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
    """The folder already contains a backup that was made in the same second."""


def back_up(settings: Settings, folder: Path, now: datetime) -> list[Path]:
    """Copy every database into a folder, and return the written files.

    The service may be running. The folder is created if it is missing. Only the owner can read the
    files. If any file cannot be written or fails its check, all files of this backup are deleted.
    Raises BackupExists, OSError, and the errors that `plain_errors` describes.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    end = f"{_mark(settings)}-{_stamp(now)}"
    files = {folder / f"{name}-{end}{suffix}": copy for name, suffix, copy in _copies(settings)}
    with _all_or_none(files) as unfinished:
        for file, copy in files.items():
            copy(unfinished[file])
    return list(files)


def missing(settings: Settings) -> list[Path]:
    """Return the databases of PSPs whose files do not exist. `back_up` does not copy them.

    Raises OSError if a file may exist, for example because its folder cannot be searched.
    """
    found = []
    for psp in settings.psps.values():
        if psp.database is not None:
            try:
                psp.database.stat()
            except (FileNotFoundError, NotADirectoryError):
                found.append(psp.database)
    return found


def prune(settings: Settings, folder: Path, keep: int, now: datetime) -> list[Path]:
    """Delete all but the newest `keep` backups in a folder, and return the deleted files.

    Only backups of this installation are counted and deleted. Other files, and the backups of other
    installations, are kept. A backup with a time in the future, which was made while a clock was
    ahead, is kept too and does not count towards `keep`. Partial files that a killed command left
    behind are deleted if they are older than the oldest backup that is kept.
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
    """Return a folder that lets other users replace the backups, or None.

    `folder` is examined first, then each folder above it, and the first such folder is returned. A
    folder above `folder` does not count if its sticky bit is set, because only the owner of an
    entry can then replace that entry.
    """
    folder = folder.resolve()
    for each in (folder, *folder.parents):
        mode = each.stat().st_mode
        may_write = mode & (stat.S_IWGRP | stat.S_IWOTH)
        if may_write and (each == folder or not mode & stat.S_ISVTX):
            return each
    return None


def _mark(settings: Settings) -> str:
    """Return the 8 hexadecimal digits that identify an installation in the names of its backups.

    The database's address is not enough, because an SQLite file may have the same path on several
    machines.
    """
    database = settings.database
    address = database.resolve() if isinstance(database, Path) else database
    return sha256(f"{settings.public_base_url}\n{address}".encode()).hexdigest()[:8]


def _stamp(now: datetime) -> str:
    return f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def _copies(settings: Settings) -> Iterator[tuple[str, str, Callable[[Path], None]]]:
    """Yield the prefix and the suffix of each copy's name, and the function that makes the copy."""
    from adapters.sqlite.backup import copy

    if isinstance(settings.database, Path):
        yield "cardonfile", ".db", partial(copy, settings.database)
    else:
        from adapters.postgresql.backup import dump

        yield "cardonfile", ".dump", partial(dump, settings.database.url)
    not_copied = missing(settings)
    for name, psp in settings.psps.items():
        if psp.database is not None and psp.database not in not_copied:
            yield name, ".db", partial(copy, psp.database)


@contextmanager
def _all_or_none(files: Iterable[Path]) -> Iterator[dict[Path, Path]]:
    """Yield a temporary file for each file.

    At the end of the `with` block, each temporary file is renamed to its file. After an error, all
    temporary files are deleted.
    """
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
