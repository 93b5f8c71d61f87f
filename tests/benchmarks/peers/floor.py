"""The floor: the lowest possible cost of add-card on the stack of the service.

One Falcon responder on granian, `sqlite3`, and a lock for writes. It looks up what the service looks
up, in the same database. It does not validate, check permissions, limit or log.
"""

from __future__ import annotations

import hashlib
import os
import threading
from datetime import UTC, datetime, timedelta
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

    def __init__(self, database: str, base_url: str) -> None:
        self._database = database
        self._base_url = base_url
        self._of_thread = threading.local()
        self._writing = threading.Lock()

    def on_post(self, req: falcon.Request, resp: falcon.Response, guest_id: str) -> None:
        """Start a card-addition session."""
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
        asked = msgspec.json.decode(req.bounded_stream.read())
        center_id, redirect_uri = asked["center_id"], asked["redirect_uri"]
        center = db.execute(
            "SELECT * FROM payment_configurations WHERE center_id = ?", (center_id,)
        ).fetchone()
        if center is None:
            raise falcon.HTTPBadRequest
        if db.execute("SELECT 1 FROM guests WHERE id = ?", (guest_id,)).fetchone() is None:
            raise falcon.HTTPNotFound
        configuration = dict(center)
        lasts = timedelta(minutes=configuration["session_minutes"])
        expires_at = (now + lasts).isoformat(timespec="microseconds")
        session = {
            "token_id": str(uuid4()),
            "guest_id": guest_id,
            "center_id": center_id,
            "caller": msgspec.json.decode(known[0])["name"],
            "source": asked.get("source", 1),
            "redirect_uri": redirect_uri,
            "configuration": msgspec.json.encode(configuration).decode(),
            "created_at": created_at,
            "expires_at": expires_at,
            "due_at": expires_at,
            "status": "open",
        }
        with self._writing:
            db.execute("BEGIN IMMEDIATE")
            db.execute(_INSERT, session)
            db.execute("COMMIT")
        query = urlencode({"token_id": session["token_id"], "redirect_uri": redirect_uri})
        resp.content_type = "application/json"
        resp.data = msgspec.json.encode(
            {
                "success": True,
                "error": None,
                "hosted_payment_uri": f"{self._base_url}/hosted-payments?{query}",
                "token_id": session["token_id"],
            }
        )

    def _connection(self) -> sqlite3.Connection:
        db: sqlite3.Connection | None = getattr(self._of_thread, "db", None)
        if db is None:
            db = sqlite3.connect(self._database, isolation_level=None)
            db.row_factory = sqlite3.Row
            for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
                db.execute(f"PRAGMA {pragma}")
            self._of_thread.db = db
        return db


_INSERT = """
    INSERT INTO card_sessions (token_id, guest_id, center_id, caller, source, redirect_uri,
        configuration, created_at, expires_at, due_at, status)
    VALUES (:token_id, :guest_id, :center_id, :caller, :source, :redirect_uri,
        :configuration, :created_at, :expires_at, :due_at, :status)
"""


def create_application() -> falcon.App[falcon.Request, falcon.Response]:
    """Return the application. The environment variable FLOOR_DATABASE names its database."""
    app: falcon.App[falcon.Request, falcon.Response] = falcon.App()
    responder = AddCard(os.environ["FLOOR_DATABASE"], os.environ["CARDONFILE_PUBLIC_BASE_URL"])
    app.add_route("/api/v1/guests/{guest_id}/accounts", responder)
    return app
