from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.listening import ListeningServer, running


@pytest.fixture
def psp() -> Iterator[ListeningServer]:
    with running(ListeningServer()) as server:
        yield server
