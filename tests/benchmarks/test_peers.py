"""The peers and the floor do the work of the service, or comparing them would say nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Final
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import pysqlite3
import pytest

from adapters.psp.contract.samples import a_uuid
from tests.benchmarks.servers import FLOOR, LOCKED_PEERS, Server, make_sample, make_site

pytestmark = pytest.mark.slow

REDIRECT_URI: Final = "https://shop.example/cards"


@pytest.fixture(scope="module", params=(FLOOR, *LOCKED_PEERS))
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Each of them, running on its own database."""
    folder = tmp_path_factory.mktemp("server")
    with ExitStack() as stack:
        site = make_site(request.param, folder / "site", make_sample(folder, guests=5))
        yield stack.enter_context(site.running())


def sessions(server: Server) -> list[dict[str, object]]:
    """Return the rows that it has stored."""
    database = server.sample.guests.parent / "site" / "cards.db"
    with closing(pysqlite3.connect(database)) as db:
        db.row_factory = pysqlite3.Row
        return [dict(row) for row in db.execute("SELECT * FROM card_sessions")]


def body(server: Server, **changes: object) -> str:
    asked = {"center_id": server.sample.center_id, "redirect_uri": REDIRECT_URI, **changes}
    return json.dumps({name: value for name, value in asked.items() if value is not None})


def test_a_session_is_stored_and_its_link_answered(server: Server) -> None:
    before = {str(row["token_id"]) for row in sessions(server)}

    status, text = server.add_card()

    answer = json.loads(text)
    assert status == 200
    assert set(answer) == {"success", "error", "hosted_payment_uri", "token_id"}
    assert (answer["success"], answer["error"]) == (True, None)
    link = urlsplit(answer["hosted_payment_uri"])
    assert link.path == "/hosted-payments"
    assert parse_qs(link.query) == {
        "token_id": [answer["token_id"]],
        "redirect_uri": [REDIRECT_URI],
    }
    (row,) = [each for each in sessions(server) if str(each["token_id"]) not in before]
    assert UUID(str(row["token_id"])) == UUID(answer["token_id"])
    assert UUID(str(row["guest_id"])) == UUID(server.sample.guest_ids[0])
    assert UUID(str(row["center_id"])) == UUID(server.sample.center_id)
    assert (row["source"], row["redirect_uri"], row["status"]) == (1, REDIRECT_URI, "open")
    assert json.loads(str(row["configuration"]))["session_minutes"] == 30
    assert row["caller"] == "web-store"


def test_a_caller_or_guest_or_center_that_is_unknown_is_refused(server: Server) -> None:
    before = len(sessions(server))

    assert server.add_card(token="cof_" + "x" * 43)[0] == 401
    assert server.add_card(guest=a_uuid(1))[0] == 404
    assert server.add_card(body(server, center_id=a_uuid(1)))[0] == 400
    assert len(sessions(server)) == before


@pytest.mark.parametrize(
    "changes",
    [
        {"redirect_uri": None},
        {"redirect_uri": "javascript:alert(1)"},
        {"source": 2},
        {"billing_info": {"city": "x" * 101}},
    ],
)
def test_a_request_that_is_not_valid_is_refused(server: Server, changes: dict[str, object]) -> None:
    if server.name == FLOOR:
        # The floor validates nothing.
        return
    before = len(sessions(server))

    status, text = server.add_card(body(server, **changes))

    assert status == 400
    assert json.loads(text)["success"] is False
    assert len(sessions(server)) == before


def test_the_write_ahead_log_is_used(server: Server) -> None:
    database = server.sample.guests.parent / "site" / "cards.db"
    with closing(pysqlite3.connect(database)) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
