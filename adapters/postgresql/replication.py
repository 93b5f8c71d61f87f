"""What SQL shows of the server's replication."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

import psycopg

from adapters.postgresql.connection import CONNECT_SECONDS


class Standby(NamedTuple):
    """An attached standby. Without the role `pg_monitor`, both fields are None."""

    name: str | None
    sync_state: str | None


class Replication(NamedTuple):
    """How commits of a role reach the standbys.

    `synchronous_commit` is the role's setting, and `set_by` says where it is set. `waits_for` is
    `synchronous_standby_names`. `missing` counts replication slots of standbys that are not
    attached.
    """

    synchronous_commit: str
    set_by: str
    waits_for: str
    standbys: Sequence[Standby]
    missing: int


def read_replication(url: str) -> Replication:
    """Read it from the server. Raises psycopg.Error."""
    with closing(psycopg.connect(url, connect_timeout=CONNECT_SECONDS)) as connection:
        # A running backup is no standby.
        standbys = connection.execute(
            "SELECT application_name, sync_state FROM pg_stat_replication "
            "WHERE state IS DISTINCT FROM 'backup' ORDER BY 1"
        ).fetchall()
        settings = connection.execute(
            "SELECT setting, source, current_setting('synchronous_standby_names'), "
            "(SELECT count(*) FROM pg_replication_slots "
            "WHERE slot_type = 'physical' AND NOT active) "
            "FROM pg_settings WHERE name = 'synchronous_commit'"
        ).fetchall()
    ((setting, source, waits_for, missing),) = settings
    return Replication(setting, source, waits_for, [Standby(*each) for each in standbys], missing)
