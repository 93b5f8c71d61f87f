"""Which migrations a database lacks."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from adapters.sql.errors import DatabaseUnusable


class DatabaseIsNewer(DatabaseUnusable):
    """A newer release has migrated the database: this one lacks the migrations `unknown`."""

    def __init__(self, unknown: Sequence[str]) -> None:
        self.unknown = tuple(unknown)
        super().__init__(
            "the database was made by a newer release of cardonfile "
            f"(it has been through {', '.join(unknown)}); run that release, or a later one"
        )


def pending_migrations(known: Sequence[str], applied: Collection[str]) -> list[str]:
    """Return the known migrations that were not applied, in order. Raises DatabaseIsNewer."""
    unknown = [name for name in applied if name not in known]
    if unknown:
        raise DatabaseIsNewer(unknown)
    return [name for name in known if name not in applied]
