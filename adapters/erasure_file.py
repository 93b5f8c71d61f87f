"""The file that remembers erased guests, outside the backups."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

from typing_extensions import override

from domain.errors import ServiceUnavailable
from domain.identifiers import GuestId, plain_uuid
from domain.personal_data.erasure import ErasureFile


class ErasureFileUnusable(Exception):
    """The file cannot be written, so nobody is erased."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"CARDONFILE_ERASURES_FILE, {path.absolute()}: {reason}")


@dataclass(frozen=True, slots=True)
class TextErasureFile(ErasureFile):
    """Lines of a guest's id and a time, at `path`; None remembers nothing."""

    path: Path | None

    @override
    def note(self, guest_id: GuestId, now: datetime) -> None:
        if self.path is None:
            return
        is_new = not self.path.exists()
        try:
            # Opened to append, so that lines of other processes stay whole. The first line break
            # ends a line that a full disk has cut off.
            with open(self.path, "ab", opener=partial(os.open, mode=0o600)) as file:
                file.write(f"\n{guest_id} {now.isoformat()}\n".encode())
                file.flush()
                os.fsync(file.fileno())
            if is_new:
                _sync_folder(self.path.absolute().parent)
        except OSError as error:
            reason = error.strerror or "it cannot be written"
            raise ServiceUnavailable from ErasureFileUnusable(self.path, reason)

    @override
    def guest_ids(self) -> Collection[GuestId]:
        """Return every guest in it. Raises OSError; ignores what is no line of it."""
        if self.path is None or not self.path.exists():
            return frozenset()
        lines = self.path.read_text(errors="replace").splitlines()
        found = (plain_uuid(line.partition(" ")[0]) for line in lines)
        return frozenset(GuestId(guest_id) for guest_id in found if guest_id)


def _sync_folder(folder: Path) -> None:
    """Keep the name of a new file through a loss of power, which syncing the file does not."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
