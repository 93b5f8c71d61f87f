"""The tables of the Flask peer, in SQLAlchemy, and its request, in pydantic.

The environment variable `DATABASE_URL` names the database.
To fill the database: `python -m tests.benchmarks.peers.models GUESTS.csv CENTER_ID TOKEN`.
"""

from __future__ import annotations

import csv
import hashlib
import os
import sys
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlencode

import pysqlite3
from pydantic import AnyHttpUrl, BaseModel, Field
from sqlalchemy import JSON, DateTime, Engine, create_engine, event
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

BASE_URL = "http://127.0.0.1:8000"
DATABASE_URL = os.environ["DATABASE_URL"]
IS_SQLITE = DATABASE_URL.startswith("sqlite")


def make_engine() -> Engine:
    """Return an engine that uses the same SQLite library as the service."""
    if IS_SQLITE:
        arguments = {"check_same_thread": False}
        return create_engine(DATABASE_URL, connect_args=arguments, module=pysqlite3)
    return create_engine(DATABASE_URL)


@event.listens_for(Engine, "connect")
def set_sqlite_pragma(connection: Any, _: object) -> None:  # a connection of any driver
    """Set the same durability as the service."""
    if IS_SQLITE:
        cursor = connection.cursor()
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()


def utc_now() -> datetime:
    """Return the current time without its time zone, as the tables store it."""
    return datetime.now(UTC).replace(tzinfo=None)


class Base(DeclarativeBase):
    """The base class of the tables."""

    type_annotation_map = {  # noqa: RUF012 - as SQLAlchemy documents it
        dict[str, Any]: JSON,
        list[str]: JSON,
        datetime: DateTime(timezone=False),
    }


class AccessToken(Base):
    """An access token, stored as a hash."""

    __tablename__ = "access_tokens"

    token_hash: Mapped[str] = mapped_column(primary_key=True)
    caller: Mapped[str]
    permissions: Mapped[list[str]]
    expires_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]

    @staticmethod
    def hash_of(token: str) -> str:
        """Return the primary key of a token."""
        return hashlib.sha256(token.encode()).hexdigest()

    @property
    def is_valid(self) -> bool:
        """Return whether the token is neither revoked nor expired."""
        return self.revoked_at is None and self.expires_at > utc_now()

    @property
    def may_add_cards(self) -> bool:
        """Return whether the caller has a permission to add cards."""
        return not {"guests:add", "guests:edit"}.isdisjoint(self.permissions)


class Center(Base):
    """A center with its payment configuration."""

    __tablename__ = "centers"

    id: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    name: Mapped[str]
    configuration: Mapped[dict[str, Any]]  # JSON


class Guest(Base):
    """A guest."""

    __tablename__ = "guests"

    id: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    first_name: Mapped[str]
    last_name: Mapped[str]
    email: Mapped[str | None]


class CardSession(Base):
    """A card-addition session of a guest."""

    __tablename__ = "card_sessions"

    token_id: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    guest_id: Mapped[uuid.UUID]
    center_id: Mapped[uuid.UUID]
    caller: Mapped[str]
    source: Mapped[int]
    redirect_uri: Mapped[str]
    billing_info: Mapped[dict[str, Any] | None]  # JSON
    configuration: Mapped[dict[str, Any]]  # JSON
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime]
    due_at: Mapped[datetime | None] = mapped_column(index=True)
    status: Mapped[str]

    @property
    def hosted_payment_uri(self) -> str:
        """The link that the guest opens."""
        query = {"token_id": self.token_id, "redirect_uri": self.redirect_uri}
        return f"{BASE_URL}/hosted-payments?{urlencode(query)}"


class BillingInfo(BaseModel):
    """The billing address in a request."""

    first_name: str | None = Field(default=None, max_length=100)
    last_name: str | None = Field(default=None, max_length=100)
    email: str | None = Field(default=None, max_length=254)
    country_code: str | None = Field(default=None, max_length=2)
    address: str | None = Field(default=None, max_length=200)
    state: str | None = Field(default=None, max_length=100)
    zipcode: str | None = Field(default=None, max_length=20)
    city: str | None = Field(default=None, max_length=100)
    phone: str | None = Field(default=None, max_length=32)


class AddCard(BaseModel):
    """The body of an add-card request."""

    center_id: uuid.UUID
    redirect_uri: AnyHttpUrl
    source: Literal[1, 5] = 1
    billing_info: BillingInfo | None = None

    def session(self, guest_id: uuid.UUID, center: Center, caller: str) -> CardSession:
        """Return a new session that is not stored yet."""
        now = utc_now()
        expires_at = now + timedelta(minutes=center.configuration["session_minutes"])
        return CardSession(
            token_id=uuid.uuid4(),
            guest_id=guest_id,
            center_id=center.id,
            caller=caller,
            source=self.source,
            redirect_uri=str(self.redirect_uri),
            billing_info=self.billing_info.model_dump() if self.billing_info else None,
            configuration=center.configuration,
            created_at=now,
            expires_at=expires_at,
            due_at=expires_at,
            status="open",
        )


CONFIGURATION = {
    "provider": "fake",
    "merchant_account": "default",
    "avs": False,
    "cards_per_guest": "many",
    "redirect_origins": [],
    "session_minutes": 30,
}


def fill(guests: str, center_id: str, token: str) -> None:
    """Create the tables and store the records that add-card looks up."""
    engine = make_engine()
    Base.metadata.create_all(engine)
    with Session(engine) as session, Path(guests).open(newline="") as file:
        session.add_all(
            Guest(**{**row, "id": uuid.UUID(row["id"])}) for row in csv.DictReader(file)
        )
        session.add(Center(id=uuid.UUID(center_id), name="Harbor Spa", configuration=CONFIGURATION))
        session.add(
            AccessToken(
                token_hash=AccessToken.hash_of(token),
                caller="web-store",
                permissions=["guests:add", "guests:view"],
                expires_at=utc_now() + timedelta(days=1),
            )
        )
        session.commit()


if __name__ == "__main__":
    fill(*sys.argv[1:])
