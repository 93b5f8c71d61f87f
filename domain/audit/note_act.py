"""Note an act in the audit trail."""

from __future__ import annotations

from dataclasses import dataclass

from domain.audit.entry import Action, Actor, AuditEntry, Details, actor_of
from domain.outside import Clock, Ids
from domain.permissions import Caller
from domain.storage import Storage, UnitOfWork, WriteUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteAct:
    """Step: add an entry about an act, in the unit of work that carries out the act.

    Either the act and the entry are both stored, or neither is. `operator` is the user of the
    operating system who runs this process.
    """

    operator: Actor
    clock: Clock
    ids: Ids

    def __call__(
        self,
        unit: UnitOfWork,
        action: Action,
        about: str,
        details: Details | None = None,
        *,
        caller: Caller | None = None,
        actor: Actor | None = None,
    ) -> None:
        """Add an entry about the act.

        The actor of the entry is `actor` if it is given, otherwise the `caller`. If neither is
        given, the actor is the operator.
        """
        named = self.operator if caller is None else actor_of(caller.name)
        unit.audit_trail.add(
            AuditEntry(
                entry_id=self.ids.uuid(),
                happened_at=self.clock.now(),
                actor=actor or named,
                action=action,
                about=about,
                details=details,
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteOperatorsAct:
    """Use case: note an operator's act that does not change any record.

    For example, commands call this before they show a guest's name or address, and after they have
    completed a backup. `about` is the id of the object, or the object's kind if it has no id. Each
    call adds an entry. Raises ServiceUnavailable.
    """

    storage: Storage
    note_act: NoteAct

    def __call__(self, action: Action, about: str, details: Details | None = None) -> None:
        def note(unit: WriteUnit) -> None:
            self.note_act(unit, action, about, details)
            unit.commit()

        self.storage.transact(note)
