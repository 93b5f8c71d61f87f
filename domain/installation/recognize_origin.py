"""Refuse to start at an origin that differs from the stored origin."""

from __future__ import annotations

from dataclasses import dataclass, replace

from domain.storage import Storage, WriteUnit


class AnotherOrigin(Exception):
    """The records belong to another origin. The text says what the operator must do."""

    def __init__(self, origin: str) -> None:
        super().__init__(
            f"this database belongs to {origin}. If the installation has moved, run "
            "`cardonfile installation move`. If the database is a copy, run "
            "`cardonfile installation copy`"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecognizeOrigin:
    """Use case: check that this process runs at the origin to which the records belong.

    Call this before any call to a PSP or an endpoint. Without the check, an installation with a
    copy of the records would send the events of the original installation, and discard its cards.
    `origin` is None on loopback; None differs from every public origin. May be called more than
    once. Raises ServiceUnavailable.
    """

    storage: Storage
    origin: str | None

    def __call__(self, *, claims: bool = False) -> None:
        """Raise AnotherOrigin if the records belong to another origin.

        If no origin is stored yet and `claims` is set, the public origin of this process is stored
        permanently.
        """
        with self.storage.read() as unit:
            stored = unit.installations.get().origin
        if stored is None and claims and self.origin is not None:
            stored = self.storage.transact(self._claim)
        if stored is not None and stored != self.origin:
            raise AnotherOrigin(stored)

    def _claim(self, unit: WriteUnit) -> str | None:
        """Store the origin, unless another process has stored an origin first.

        Return the stored origin.
        """
        installation = unit.installations.get()
        if installation.origin is None:
            installation = replace(installation, origin=self.origin)
            unit.installations.put(installation)
            unit.commit()
        return installation.origin
