"""Clients of a service on every address: each has a count of failed authentications of its own."""

from __future__ import annotations

import http.client
import signal
from contextlib import closing
from pathlib import Path

import pytest

from tests.adapters.http.api import ACCOUNTS
from tests.databases import make_database
from tests.programs import SERVE, Program, free_port

pytestmark = pytest.mark.slow


def status_for(port: int, *, to: str, of: str) -> int:
    """Send a bad token from one of this machine's addresses; give the status of the answer."""
    with closing(
        http.client.HTTPConnection(to, port, timeout=20, source_address=(of, 0))
    ) as connection:
        connection.request("GET", ACCOUNTS, headers={"Authorization": "bearer wrong"})
        return connection.getresponse().status


def test_one_client_uses_up_nobody_elses_failures(tmp_path: Path) -> None:
    database = tmp_path / "cards.db"
    make_database(database)
    port = free_port()
    with Program(
        tmp_path,
        SERVE,
        *("serve", "--host", "::", "--port", str(port)),
        CARDONFILE_DATABASE_URL=f"sqlite:///{database}",
        CARDONFILE_PUBLIC_BASE_URL=f"http://127.0.0.1:{port}",
        CARDONFILE_LOG_FORMAT="json",
    ) as service:
        service.wait_for("serving")
        # More than two minutes may have, in case that they begin in one and end in the next.
        of_one = {status_for(port, to="127.0.0.1", of="127.0.0.1") for _ in range(61)}
        of_another = status_for(port, to="127.0.0.1", of="127.0.0.2")
        over_ipv6 = status_for(port, to="::1", of="::1")
        service.tell(signal.SIGTERM)
        assert service.ends() == 0

    assert of_one == {401, 429}
    assert (of_another, over_ipv6) == (401, 401)
