"""The file that remembers erased guests, outside the backups."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

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
"""The last word of a line; a full disk may have cut it off. Lines of 0.2.0 have no references."""
_REFERENCE: Final = re.compile("([^/]+)/([^/]+)/(.+)")


class ErasureFileUnusable(Exception):
    """The file cannot be written, so no guest is erased."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"CARDONFILE_ERASURES_FILE, {path.absolute()}: {reason}")


@dataclass(frozen=True, slots=True)
class TextErasureFile(ErasureFile):
    """A file of lines, each with a guest's id, a time and references; `path` None is no file.

    A reference has the form `stripe/default/cus_1`, without blanks. A line ends with a point. The
    line of a merged guest begins with both ids, as in `>id>id`. Earlier releases ignore it, as they
    ignore any line that begins with another word than an id: they would discard the cards.
    """

    path: Path | None

    @override
    def note(
        self,
        guest_id: GuestId,
        now: datetime,
        at_psps: AtPsps,
        *,
        merged_into: GuestId | None = None,
    ) -> None:
        if self.path is None:
            return
        is_new = not self.path.exists()
        try:
            # Opened to append, so that lines of other processes stay whole. The first line break
            # ends a line that a full disk cut off.
            with open(self.path, "ab", opener=partial(os.open, mode=0o600)) as file:
                references = ("/".join((*psp_account, each)) for psp_account, each in at_psps)
                named: str = guest_id
                if merged_into is not None:
                    named = f"{_INTO}{guest_id}{_INTO}{merged_into}"
                line = " ".join((named, now.isoformat(), *references, _END))
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
        """Return every guest in the file. Raises OSError. Ignores malformed lines."""
        return {guest_id: references for guest_id, (references, _) in self._read().items()}

    @override
    def merged(self) -> Mapping[GuestId, GuestId]:
        """Return the merged guests. Raises OSError."""
        return {guest_id: stays for guest_id, (_, stays) in self._read().items() if stays}

    def _read(self) -> Mapping[GuestId, tuple[AtPsps, GuestId | None]]:
        """Return the references of each guest, and the guest who remained if there was a merge."""
        if self.path is None or not self.path.exists():
            return {}
        found: dict[GuestId, tuple[AtPsps, GuestId | None]] = {}
        for line in self.path.read_text(errors="replace").splitlines():
            named, *rest = line.split(" ")
            ids = [plain_uuid(each) for each in named.removeprefix(_INTO).split(_INTO)]
            is_merged = named.startswith(_INTO)
            if None in ids or len(ids) != 1 + is_merged:
                continue
            guest_id, *into = [GuestId(each) for each in ids if each]
            known, _ = found.pop(guest_id, ((), None))
            # The beginning of a reference could be another guest's reference.
            references = filter(None, map(_reference, rest[1:-1] if rest[-1:] == [_END] else ()))
            found[guest_id] = ([*known, *references], into[0] if into else None)
            for stays in into:
                if found.get(stays, ((), None))[1] is not None:
                    # This guest can only stay if the database has lost the earlier merge.
                    found.pop(stays)
        return found


def _reference(text: str) -> tuple[PspAccount, GuestReference] | None:
    """Return a reference and where it is; None for a word that somebody else has written."""
    parts = _REFERENCE.fullmatch(text)
    if parts is None:
        return None
    psp_account = PspAccount(ProviderName(parts[1]), MerchantAccount(parts[2]))
    return psp_account, GuestReference(parts[3])


def _sync_folder(folder: Path) -> None:
    """Sync the folder, so that the name of a new file survives a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
