"""The least that does the job of add-card on the service's own stack: the floor of what it costs.

One Falcon responder on granian, `sqlite3`, and a lock for writes. It looks up what the service
looks up, in the same database, and checks nothing else: no permission, no form of a field, no limit;
it logs nothing.
"""

from __future__ import annotations

import hashlib
import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode
from uuid import uuid4

import falcon
import msgspec

if TYPE_CHECKING:
    import sqlite3
else:
    import pysqlite3 as sqlite3


class AddCard:
    """Starts card-addition sessions."""

    def __init__(self, database: Path, base_url: str) -> None:
        self._database = database
        self._base_url = base_url
        self._of_thread = threading.local()
        self._writing = threading.Lock()

    def on_post(self, req: falcon.Request, resp: falcon.Response, guest_id: str) -> None:
        """Start one."""
        db = self._connection()
        token = (req.get_header("Authorization") or "").removeprefix("Bearer ")
        known = db.execute(
            "SELECT caller, expires_at FROM access_tokens "
            "WHERE token_hash = ? AND revoked_at IS NULL",
            (hashlib.sha256(token.encode()).hexdigest(),),
        ).fetchone()
        now = datetime.now(UTC)
        created_at = now.isoformat(timespec="microseconds")
        if known is None or known[1] <= created_at:
            raise falcon.HTTPUnauthorized
        caller = msgspec.json.decode(known[0])["name"]
        asked = msgspec.json.decode(req.bounded_stream.read())
        center_id, redirect_uri = asked["center_id"], asked["redirect_uri"]
        center = db.execute(
            "SELECT * FROM payment_configurations WHERE center_id = ?", (center_id,)
        ).fetchone()
        if center is None:
            raise falcon.HTTPBadRequest
        if db.execute("SELECT 1 FROM guests WHERE id = ?", (guest_id,)).fetchone() is None:
            raise falcon.HTTPNotFound
        token_id = str(uuid4())
        configuration = dict(zip(center.keys(), center, strict=True))
        expires_at = (now + timedelta(minutes=configuration["session_minutes"])).isoformat(
            timespec="microseconds"
        )
        with self._writing:
            db.execute("BEGIN IMMEDIATE")
            db.execute(
                "INSERT INTO card_sessions (token_id, guest_id, center_id, caller, source, "
                "redirect_uri, configuration, created_at, expires_at, due_at, status) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'open')",
                (
                    *(token_id, guest_id, center_id, caller, asked.get("source", 1), redirect_uri),
                    msgspec.json.encode(configuration).decode(),
                    *(created_at, expires_at, expires_at),
                ),
            )
            db.execute("COMMIT")
        query = urlencode({"token_id": token_id, "redirect_uri": redirect_uri})
        resp.content_type = "application/json"
        resp.data = msgspec.json.encode(
            {
                "success": True,
                "error": None,
                "hosted_payment_uri": f"{self._base_url}/hosted-payments?{query}",
                "token_id": token_id,
            }
        )

    def _connection(self) -> sqlite3.Connection:
        db: sqlite3.Connection | None = getattr(self._of_thread, "db", None)
        if db is None:
            db = sqlite3.connect(self._database, isolation_level=None)
            db.row_factory = sqlite3.Row
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=FULL")
            db.execute("PRAGMA foreign_keys=ON")
            self._of_thread.db = db
        return db


def create_application() -> falcon.App[falcon.Request, falcon.Response]:
    """Give the application, on the database that FLOOR_DATABASE names."""
    app: falcon.App[falcon.Request, falcon.Response] = falcon.App()
    app.add_route(
        "/api/v1/guests/{guest_id}/accounts",
        AddCard(Path(os.environ["FLOOR_DATABASE"]), os.environ["CARDONFILE_PUBLIC_BASE_URL"]),
    )
    return app
