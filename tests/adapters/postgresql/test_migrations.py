from __future__ import annotations

import psycopg
import pytest

from adapters.postgresql import migrations
from adapters.postgresql.migrations import migrate, pending
from domain.errors import ServiceUnavailable


def test_another_migration_that_takes_too_long_makes_it_unavailable(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "WAIT_SECONDS", 0.01)
    with psycopg.connect(url) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", (migrations._LOCK,))
        with pytest.raises(ServiceUnavailable):
            migrate(url)
        assert pending(url) == []


def test_a_database_that_is_not_there_is_unavailable(url: str) -> None:
    for use in (migrate, pending):
        with pytest.raises(ServiceUnavailable):
            use(f"{url}_not")
