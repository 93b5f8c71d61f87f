"""A reader of events beside writers. `make torture` runs this for two minutes."""

from __future__ import annotations

from pathlib import Path

from tests.entrypoints.reading_events import follow_under_kills
from tests.entrypoints.torture import on_postgresql
from tests.waiting import wait_until

EVENTS_BETWEEN_KILLS = 50


# Shows I10.
def test_a_reader_of_the_event_list_gets_every_event_even_if_the_service_is_killed(
    tmp_path: Path,
) -> None:
    def wait(path: Path) -> None:
        enough = len(path.read_text().split()) + EVENTS_BETWEEN_KILLS
        wait_until(lambda: len(path.read_text().split()) >= enough)

    # On SQLite, where events are stored one after another, the simulation reads them.
    with on_postgresql(tmp_path) as lent:
        followed = follow_under_kills(lent, tmp_path, wait, writers=10)

    assert not followed.missed
    assert followed.twice == 0
    assert followed.is_in_one_order
    assert len(followed.read) >= 3 * EVENTS_BETWEEN_KILLS
