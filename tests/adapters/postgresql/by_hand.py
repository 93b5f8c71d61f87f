"""SQL that bypasses the repositories or the storage."""

from __future__ import annotations

from typing import Any, Final

import psycopg

_OTHERS: Final = """
    FROM pg_stat_activity WHERE datname = current_database()
    AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""


def execute(url: str, statement: str) -> list[tuple[Any, ...]]:  # a column may hold anything
    """Run a statement on a separate connection, and return its rows."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def set_default(url: str, setting: str) -> None:
    """Change a setting, such as `TimeZone = 'Asia/Tokyo'`, for new connections to a database."""
    execute(url, f"ALTER DATABASE {url.rpartition('/')[2]} SET {setting}")


def states(url: str) -> list[str]:
    """Return the states of all other connections to a database."""
    return [state for (state,) in execute(url, f"SELECT state {_OTHERS}")]


def is_waiting(url: str) -> bool:
    """Return whether another connection to a database waits for a lock."""
    return bool(execute(url, f"SELECT 1 {_OTHERS} AND wait_event_type = 'Lock'"))


def cut_off(url: str) -> None:
    """Terminate all other connections to a database, and wait until they have ended."""
    execute(url, f"SELECT pg_terminate_backend(pid, 10000) {_OTHERS}")
