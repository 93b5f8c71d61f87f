"""Read the state of the server's replication, as far as SQL shows it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

import psycopg

from adapters.postgresql.connection import CONNECT_SECONDS


class Standby(NamedTuple):
    """A standby that is connected to the server.

    Both fields are None if the database role is not a member of `pg_monitor`.
    """

    name: str | None
    sync_state: str | None


class Replication(NamedTuple):
    """The settings and the state that decide whether commits reach the standbys.

    `synchronous_commit` is the setting for the database role, and `set_by` is its source in
    `pg_settings`. `waits_for` is the setting `synchronous_standby_names`. `missing` is the number
    of replication slots whose standbys are not connected.
    """

    synchronous_commit: str
    set_by: str
    waits_for: str
    standbys: Sequence[Standby]
    missing: int


def read_replication(url: str) -> Replication:
    """Read the state of the replication from the server at `url`. Raises psycopg.Error."""
    with closing(psycopg.connect(url, connect_timeout=CONNECT_SECONDS)) as connection:
        # A running backup has a row in this view too, but it is not a standby.
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
