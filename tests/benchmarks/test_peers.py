"""Tests that the Flask peer and the floor do the same work as the service."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import pysqlite3
import pytest

from adapters.psp_suite.samples import a_uuid
from tests.benchmarks.servers import FLASK, FLOOR, make_sample, make_server

NOBODY = a_uuid(404)


@pytest.mark.parametrize("name", [FLOOR, FLASK])
def test_a_benchmark_peer_stores_a_session_unless_the_service_would_refuse_the_request(
    tmp_path: Path, name: str
) -> None:
    server = make_server(name, tmp_path / "server", make_sample(tmp_path, guests=5))
    with server.running():
        _, text = server.add_card()
        refused = [
            server.add_card(**changes)[0]
            for changes in ({"token": "x" * 43}, {"guest_id": NOBODY}, {"center_id": NOBODY})
        ]
        if name != FLOOR:  # which validates nothing
            refused += (server.add_card(redirect_uri=each)[0] for each in (None, "javascript:x"))
        with closing(pysqlite3.connect(server.folder / "cards.db")) as db:
            db.row_factory = pysqlite3.Row
            # The first session was added to see whether the server is there.
            *_, session = stored = db.execute("SELECT * FROM card_sessions").fetchall()
            assert db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"

    answer = json.loads(text)
    assert set(answer) == {"success", "error", "hosted_payment_uri", "token_id"}
    link = parse_qs(urlsplit(answer["hosted_payment_uri"]).query)
    redirect_uri = "https://shop.example/cards"
    assert link == {"token_id": [answer["token_id"]], "redirect_uri": [redirect_uri]}
    assert (len(stored), session["redirect_uri"], session["status"]) == (2, redirect_uri, "open")
    ids = [UUID(session[each]) for each in ("token_id", "guest_id", "center_id")]
    assert ids == list(
        map(UUID, (answer["token_id"], server.sample.guest_ids[0], server.sample.center_id))
    )
    assert refused == [401, 404, 400, *[400] * (len(refused) - 3)]
