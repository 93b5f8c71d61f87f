"""The text file outside the backups that lists erased and merged guests."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from typing_extensions import override

from domain.errors import ServiceUnavailable
from domain.identifiers import (
    GuestId,
    GuestReference,
    MerchantAccount,
    ProviderName,
    PspAccount,
    plain_uuid,
)
from domain.personal_data.erasure import AtPsps, ErasureFile

_INTO: Final = ">"
_END: Final = "."
"""The last word of a line. If it is missing, the references in the line are not read.

It is missing if the disk was full, so that only a part of the line was written. It is also missing
in lines that release 0.2.0 wrote, but these lines do not contain references.
"""
_REFERENCE: Final = re.compile("([^/]+)/([^/]+)/(.+)")


class ErasureFileUnusable(Exception):
    """The file cannot be written, so the guest was not erased."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"CARDONFILE_ERASURES_FILE, {path.absolute()}: {reason}")


@dataclass(frozen=True, slots=True)
class TextErasureFile(ErasureFile):
    """A text file with one line for each erased or merged guest.

    A line contains the id of the guest, the time, the guest's references at PSPs, and a full stop.
    These words are separated by blanks. A reference has the form `stripe/default/cus_1`. `path` is
    None if the operator does not use such a file.

    The line of a merged guest begins with `>`, the guest's id, another `>`, and the id of the
    remaining guest. Older releases erase each guest whose id begins a line, and discard the guest's
    cards. They skip the line of a merged guest, because it begins with `>`.
    """

    path: Path | None

    @override
    def note(
        self,
        guest_id: GuestId,
        at: datetime,
        at_psps: AtPsps,
        *,
        merged_into: GuestId | None = None,
    ) -> None:
        if self.path is None:
            return
        try:
            is_new = not self.path.exists()
            # The file is opened to append, so that lines of other processes stay whole. The first
            # line break ends a line that a full disk has cut off.
            with open(self.path, "ab", opener=partial(os.open, mode=0o600)) as file:
                references = ("/".join((*psp_account, each)) for psp_account, each in at_psps)
                named: str = guest_id
                if merged_into is not None:
                    named = f"{_INTO}{guest_id}{_INTO}{merged_into}"
                line = " ".join((named, at.isoformat(), *references, _END))
                file.write(f"\n{line}\n".encode())
                file.flush()
                os.fsync(file.fileno())
            if is_new:
                _sync_folder(self.path.absolute().parent)
        except OSError as error:
            reason = error.strerror or "it cannot be written"
            raise ServiceUnavailable from ErasureFileUnusable(self.path, reason)

    @override
    def erased(self) -> Mapping[GuestId, AtPsps]:
        """Return the references of every guest in the file, erased or merged.

        The guests are in the order of their last lines. Malformed lines are ignored. Raises OSError
        if the file cannot be read.
        """
        return {guest_id: line.references for guest_id, line in self._read().items()}

    @override
    def merged(self) -> Mapping[GuestId, GuestId]:
        """Return the guests that the file lists as merged, each with the guest who remained.

        Raises OSError if the file cannot be read.
        """
        return {guest_id: line.into for guest_id, line in self._read().items() if line.into}

    def _read(self) -> Mapping[GuestId, _Line]:
        """Return the last line of each guest.

        If the guest's lines just before it describe the same act, the result contains their
        references too. The same act is an erasure, or a merge into the same guest.

        The line of a guest who was merged is left out if another guest was later merged into this
        guest.
        """
        if self.path is None:
            return {}
        try:
            content = self.path.read_text(errors="replace")
        except FileNotFoundError:
            return {}
        found: dict[GuestId, _Line] = {}
        for text in content.splitlines():
            line = _line(text)
            if line is None:
                continue
            known = found.pop(line.guest_id, None)
            if known is not None and known.into == line.into:
                line = line._replace(references=[*known.references, *line.references])
            found[line.guest_id] = line
            remaining = found.get(line.into) if line.into else None
            if remaining is not None and remaining.into and remaining.at < line.at:
                # The guest who remained in this merge had been merged into another guest earlier. So
                # the database has lost the earlier merge.
                del found[remaining.guest_id]
        return found


class _Line(NamedTuple):
    """A line about an erased guest, or about a guest who was merged `into` another guest.

    `at` is empty if the end of the line is missing.
    """

    guest_id: GuestId
    into: GuestId | None
    at: str
    references: AtPsps


def _line(text: str) -> _Line | None:
    """Parse a line. Return None if it does not contain the id of a guest."""
    named, *rest = text.split(" ")
    ids = [plain_uuid(each) for each in named.removeprefix(_INTO).split(_INTO)]
    is_merged = named.startswith(_INTO)
    if None in ids or len(ids) != 1 + is_merged:
        return None
    guest_id, *into = [GuestId(each) for each in ids if each]
    # The beginning of a reference could be another guest's reference.
    is_whole = rest[-1:] == [_END]
    references = list(filter(None, map(_reference, rest[1:-1] if is_whole else ())))
    return _Line(guest_id, into[0] if into else None, rest[0] if is_whole else "", references)


def _reference(text: str) -> tuple[PspAccount, GuestReference] | None:
    """Parse a merchant account and a guest's reference, such as `stripe/default/cus_1`.

    Return None for any other text.
    """
    parts = _REFERENCE.fullmatch(text)
    if parts is None:
        return None
    psp_account = PspAccount(ProviderName(parts[1]), MerchantAccount(parts[2]))
    return psp_account, GuestReference(parts[3])


def _sync_folder(folder: Path) -> None:
    """Write the folder to the disk, so that a new file in it survives a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
