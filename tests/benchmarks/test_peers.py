"""Flask and the floor do the work of the service, or comparing them would say nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import pysqlite3
import pytest

from adapters.psp_suite.samples import a_uuid
from tests.benchmarks.servers import FLASK, FLOOR, Server, make_sample, make_server

UNKNOWN_ID = a_uuid(1)


@pytest.fixture(scope="module", params=(FLOOR, FLASK))
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Each of them, running on its own database."""
    folder = tmp_path_factory.mktemp("server")
    server = make_server(request.param, folder / "server", make_sample(folder, guests=5))
    with server.running():
        yield server


def sessions(server: Server) -> dict[str, dict[str, object]]:
    """Return the stored sessions by their ids."""
    with closing(pysqlite3.connect(server.folder / "cards.db")) as db:
        db.row_factory = pysqlite3.Row
        rows = [dict(row) for row in db.execute("SELECT * FROM card_sessions")]
    return {str(UUID(str(row["token_id"]))): row for row in rows}


def test_the_link_of_a_stored_session_is_answered(server: Server) -> None:
    before = sessions(server)

    status, text = server.add_card()

    response = json.loads(text)
    assert status == 200
    assert set(response) == {"success", "error", "hosted_payment_uri", "token_id"}
    assert (response["success"], response["error"]) == (True, None)
    link = urlsplit(response["hosted_payment_uri"])
    redirect_uri = "https://shop.example/cards"
    query = {"token_id": [response["token_id"]], "redirect_uri": [redirect_uri]}
    assert (link.path, parse_qs(link.query)) == ("/hosted-payments", query)
    stored = sessions(server)
    assert stored.keys() - before.keys() == {response["token_id"]}
    row = stored[response["token_id"]]
    assert UUID(str(row["guest_id"])) == UUID(server.sample.guest_ids[0])
    assert UUID(str(row["center_id"])) == UUID(server.sample.center_id)
    assert (row["source"], row["redirect_uri"], row["status"]) == (1, redirect_uri, "open")
    assert json.loads(str(row["configuration"]))["session_minutes"] == 30
    assert row["caller"] == "web-store"


def test_what_the_service_refuses_is_refused(server: Server) -> None:
    before = sessions(server)

    assert server.add_card(token="cof_" + "x" * 43)[0] == 401
    assert server.add_card(guest_id=UNKNOWN_ID)[0] == 404
    assert server.add_card(center_id=UNKNOWN_ID)[0] == 400
    # The floor validates nothing.
    if server.name != FLOOR:
        assert server.add_card(redirect_uri=None)[0] == 400
        assert server.add_card(redirect_uri="javascript:alert(1)")[0] == 400
        assert server.add_card(source=2)[0] == 400
        assert server.add_card(billing_info={"city": "x" * 101})[0] == 400
    assert sessions(server) == before


def test_the_write_ahead_log_is_used(server: Server) -> None:
    with closing(pysqlite3.connect(server.folder / "cards.db")) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
