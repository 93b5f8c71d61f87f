from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from adapters.http.server import THREADS
from domain.ports import ProviderUnavailable
from tests.installation import Installation


def test_a_hanging_psp_holds_half_of_the_threads_and_no_more(installation: Installation) -> None:
    session = installation.add_card()
    slots = installation.container.psp_slots()
    with ExitStack() as hanging:
        for _ in range(THREADS // 2):
            hanging.enter_context(slots.one())
        with pytest.raises(ProviderUnavailable):
            installation.open_page(session)
        assert installation.add_card().token_id != session.token_id

    assert installation.open_page(session)


def test_a_burst_of_guests_is_served(installation: Installation) -> None:
    sessions = [installation.add_card() for _ in range(48)]

    with ThreadPoolExecutor(THREADS) as pool:
        addresses = set(pool.map(installation.open_page, sessions))

    assert len(addresses) == 48
