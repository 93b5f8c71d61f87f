"""Fixtures: a database with one center, and a port that is in use."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.builders import a_center
from tests.databases import committed
from tests.entrypoints.conftest import CommandLine


@pytest.fixture
def with_center(cardonfile: CommandLine) -> CommandLine:
    """Return the command line on a database with one center."""
    with committed(cardonfile.storage) as unit:
        unit.centers.put_many([a_center()])
    return cardonfile


@pytest.fixture
def taken_port() -> Iterator[str]:
    """Return a port that is in use. A command that wrongly tries to serve fails there."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield str(taken.getsockname()[1])
