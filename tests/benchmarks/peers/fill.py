"""Fill the database of a peer: `python -m tests.benchmarks.peers.fill PEER GUESTS.csv CENTER_ID TOKEN`."""

from __future__ import annotations

import csv
import hashlib
import sys
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy.orm import Session

CONFIGURATION = {
    "provider": "fake",
    "merchant_account": "default",
    "avs": False,
    "cards_per_guest": "many",
    "redirect_origins": [],
    "session_minutes": 30,
}


def main(peer: str, guests: str, center_id: str, token: str) -> None:
    """Make the tables, and store what add-card looks up."""
    models: Any = import_module(f"tests.benchmarks.peers.{peer}")  # each peer has the same names
    models.Base.metadata.create_all(models.engine)
    with Session(models.engine) as session, Path(guests).open(newline="") as file:
        rows = [{**row, "id": UUID(row["id"])} for row in csv.DictReader(file)]
        session.bulk_insert_mappings(models.Guest, rows)
        session.add(
            models.Center(id=UUID(center_id), name="Harbor Spa", configuration=CONFIGURATION)
        )
        session.add(
            models.AccessToken(
                token_hash=hashlib.sha256(token.encode()).hexdigest(),
                caller="web-store",
                permissions=["guests:add", "guests:view"],
                expires_at=datetime.now(UTC).replace(tzinfo=None) + timedelta(days=1),
                revoked_at=None,
            )
        )
        session.commit()


if __name__ == "__main__":
    main(*sys.argv[1:])
