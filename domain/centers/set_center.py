"""Change the settings of a center."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from domain.audit.entry import Action
from domain.audit.note_act import NoteAct
from domain.centers.center import Center
from domain.centers.center_settings import CenterSettings
from domain.centers.changes import changes
from domain.centers.find_centers import existing_center
from domain.errors import InvalidField
from domain.storage import Storage, WriteUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedSettings:
    """A center, and its settings before and after a change."""

    center: Center
    before: CenterSettings
    now: CenterSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class SetCenter:
    """Use case: change how pages present a center. Settings that are not in `named` stay unchanged.

    Pages that the PSP has already created do not change. May be called more than once. Raises
    CenterNotFound. Raises InvalidField for a center id that is not a UUID, for an invalid value,
    and if a center with texts about bookings would have no time zone.
    """

    storage: Storage
    note_act: NoteAct

    def __call__(
        self,
        center_id: str,
        named: Mapping[str, Any],  # unparsed values, as in `CenterSettings.changed`
    ) -> ChangedSettings:
        """Change the settings, and return the center with its old and new settings."""

        def change(unit: WriteUnit) -> ChangedSettings:
            center = existing_center(unit, center_id)
            before = unit.center_settings.get_to_change(center.id)
            now = before.changed(named)
            if now.time_zone is None and unit.reservation_texts.of(center.id):
                raise InvalidField(
                    "time_zone", "set as long as the center has texts about bookings"
                )
            if now != before:
                unit.center_settings.put(center.id, now)
                details = changes(CenterSettings, before, now)
                self.note_act(unit, Action.CENTER_SET, center.id, details)
            unit.commit()
            return ChangedSettings(center=center, before=before, now=now)

        return self.storage.transact(change)
