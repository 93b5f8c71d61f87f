"""A service is killed while guests book. `make torture` does this with hundreds of bookings."""

from __future__ import annotations

from pathlib import Path

from tests.entrypoints.booking import book_under_kills
from tests.entrypoints.torture import on_postgresql


# Shows I5, I7, I11.
def test_cards_are_removed_after_their_last_booking_even_if_the_service_is_killed_repeatedly(
    tmp_path: Path,
) -> None:
    # The simulation kills on SQLite.
    with on_postgresql(tmp_path) as lent:
        booked = book_under_kills(
            lent, bookings=3, longest_seconds=8, seed=1, kill_after_seconds=(2, 4)
        )

    assert not any(booked.faults.values()), booked.faults
    assert booked.done["bookings"] >= 3
    assert booked.done["kills of the service"] > 0
    assert booked.done["cards removed"] > 0
