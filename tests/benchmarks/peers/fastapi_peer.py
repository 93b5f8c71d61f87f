"""Add-card with FastAPI and SQLAlchemy, as their documentation teaches it; uvicorn serves it.

`DATABASE_URL` names the database. With `WRITE_LOCK` set, writes take turns at a lock, and
there is a connection for each thread.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import pysqlite3
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import AnyHttpUrl, BaseModel, Field
from sqlalchemy import JSON, DateTime, Engine, create_engine, event
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

BASE_URL = "http://127.0.0.1:8000"
DATABASE_URL = os.environ["DATABASE_URL"]
IS_SQLITE = DATABASE_URL.startswith("sqlite")

# Any, because these are keywords of several types. The SQLite is the one that the service uses.
options: dict[str, Any] = (
    {"connect_args": {"check_same_thread": False}, "module": pysqlite3} if IS_SQLITE else {}
)
write_lock: AbstractContextManager[object] = nullcontext()
if os.environ.get("WRITE_LOCK"):
    write_lock = Lock()
    # As many as there are threads: else those that wait for a connection may keep those that have
    # one from going on.
    options["pool_size"] = 40
engine = create_engine(DATABASE_URL, **options)


@event.listens_for(Engine, "connect")
def set_sqlite_pragma(connection: Any, _: object) -> None:  # a connection of any driver
    """Have the same durability as the service."""
    if IS_SQLITE:
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()


class Base(DeclarativeBase):
    """The tables."""

    type_annotation_map = {  # noqa: RUF012 - as SQLAlchemy has it
        dict[str, Any]: JSON,
        list[str]: JSON,
        datetime: DateTime(timezone=False),
    }


class AccessToken(Base):
    """A token that lets a caller in, kept as a hash."""

    __tablename__ = "access_tokens"

    token_hash: Mapped[str] = mapped_column(primary_key=True)
    caller: Mapped[str]
    permissions: Mapped[list[str]]
    expires_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]


class Center(Base):
    """A place of business, and how it takes cards."""

    __tablename__ = "centers"

    id: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    name: Mapped[str]
    configuration: Mapped[dict[str, Any]]  # JSON


class Guest(Base):
    """A guest on file."""

    __tablename__ = "guests"

    id: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    first_name: Mapped[str]
    last_name: Mapped[str]
    email: Mapped[str | None]


class CardSession(Base):
    """The addition of a card."""

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


class BillingInfo(BaseModel):
    """The billing address."""

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
    """The request."""

    center_id: uuid.UUID
    redirect_uri: AnyHttpUrl
    source: Literal[1, 5] = 1
    billing_info: BillingInfo | None = None


class CardSessionStarted(BaseModel):
    """The answer."""

    success: Literal[True] = True
    error: None = None
    hosted_payment_uri: str
    token_id: uuid.UUID


app = FastAPI()


@app.exception_handler(HTTPException)
def refuse(_: Request, refused: HTTPException) -> JSONResponse:
    """Answer a refusal as the service does."""
    error = {"code": refused.status_code, "message": refused.detail}
    return JSONResponse({"success": False, "error": error}, refused.status_code)


@app.exception_handler(RequestValidationError)
def refuse_body(_: Request, __: RequestValidationError) -> JSONResponse:
    """Answer a body that is not valid as the service does."""
    return JSONResponse({"success": False, "error": {"code": 400, "message": "Invalid"}}, 400)


def get_session() -> Iterator[Session]:
    """Give the session of a request."""
    with Session(engine) as session:
        yield session


SessionDep = Annotated[Session, Depends(get_session)]


def get_caller(
    credentials: Annotated[HTTPAuthorizationCredentials, Depends(HTTPBearer())],
    session: SessionDep,
) -> str:
    """Find who calls, and whether they may add cards."""
    token_hash = hashlib.sha256(credentials.credentials.encode()).hexdigest()
    token = session.get(AccessToken, token_hash)
    now = datetime.now(UTC).replace(tzinfo=None)
    if token is None or token.revoked_at is not None or token.expires_at <= now:
        raise HTTPException(401, "User not authenticated")
    if not {"guests:add", "guests:edit"}.intersection(token.permissions):
        raise HTTPException(403, "User not authorized")
    return token.caller


@app.post("/api/v1/guests/{guest_id}/accounts")
def add_card(
    guest_id: uuid.UUID,
    asked: AddCard,
    caller: Annotated[str, Depends(get_caller)],
    session: SessionDep,
) -> CardSessionStarted:
    """Start a card-addition session."""
    center = session.get(Center, asked.center_id)
    if center is None:
        raise HTTPException(400, "Invalid center id")
    if session.get(Guest, guest_id) is None:
        raise HTTPException(404, "Guest not found")
    token_id = uuid.uuid4()
    redirect_uri = str(asked.redirect_uri)
    now = datetime.now(UTC).replace(tzinfo=None)
    expires_at = now + timedelta(minutes=center.configuration["session_minutes"])
    started = CardSession(
        token_id=token_id,
        guest_id=guest_id,
        center_id=center.id,
        caller=caller,
        source=asked.source,
        redirect_uri=redirect_uri,
        billing_info=asked.billing_info.model_dump() if asked.billing_info else None,
        configuration=center.configuration,
        created_at=now,
        expires_at=expires_at,
        due_at=expires_at,
        status="open",
    )
    with write_lock:
        session.add(started)
        session.commit()
    query = urlencode({"token_id": token_id, "redirect_uri": redirect_uri})
    return CardSessionStarted(
        hosted_payment_uri=f"{BASE_URL}/hosted-payments?{query}", token_id=token_id
    )
