"""A service is killed under load. `make torture` does this a hundred times."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.entrypoints.torture import STORAGES, survive


# Shows I1, I2, I9, I10, F1, F2, F3, F4, F5, F6, F45.
@pytest.mark.parametrize("storage", STORAGES)
def test_every_answered_request_takes_effect_once_even_if_the_service_is_killed(
    storage: str, tmp_path: Path
) -> None:
    with STORAGES[storage](tmp_path) as lent:
        survived = survive(lent, rounds=1, seed=1, answers=(30, 60))

    assert survived.broken == []
    assert survived.answered > 0
    assert survived.fates["cut off"] > 0
    events = survived.events
    assert events["decided"] == events["delivered"] > 0
    assert events["under load"] > 0
    assert events["failures of the endpoint"] > 0
