"""Add-card with FastAPI, as its documentation teaches; uvicorn serves it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from typing import Annotated, Literal

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel
from sqlalchemy.orm import Session

from tests.benchmarks.peers.models import (
    AccessToken,
    AddCard,
    Center,
    Guest,
    make_engine,
    write_lock,
)

# With the lock, each of the 40 threads has a connection: otherwise threads that wait for one can
# block the thread that has one and waits for the lock.
engine = make_engine(**({"pool_size": 40} if os.environ.get("WRITE_LOCK") else {}))
app = FastAPI()


class CardSessionStarted(BaseModel):
    """The response."""

    success: Literal[True] = True
    error: None = None
    hosted_payment_uri: str
    token_id: uuid.UUID


@app.exception_handler(HTTPException)
def refuse(_: Request, refused: HTTPException) -> JSONResponse:
    """Respond to an error like the service."""
    error = {"code": refused.status_code, "message": refused.detail}
    return JSONResponse({"success": False, "error": error}, refused.status_code)


@app.exception_handler(RequestValidationError)
def refuse_body(_: Request, __: RequestValidationError) -> JSONResponse:
    """Respond to an invalid body like the service."""
    return JSONResponse({"success": False, "error": {"code": 400, "message": "Invalid"}}, 400)


def get_session() -> Iterator[Session]:
    """Return the database session of a request."""
    with Session(engine) as session:
        yield session


SessionDep = Annotated[Session, Depends(get_session)]
Credentials = Annotated[HTTPAuthorizationCredentials, Depends(HTTPBearer())]


def get_caller(credentials: Credentials, session: SessionDep) -> str:
    """Return the caller. Raises HTTPException unless the caller may add cards."""
    token = session.get(AccessToken, AccessToken.hash_of(credentials.credentials))
    if token is None or not token.is_valid:
        raise HTTPException(401, "User not authenticated")
    if not token.may_add_cards:
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
    started = asked.session(guest_id, center, caller)
    response = CardSessionStarted(
        hosted_payment_uri=started.hosted_payment_uri, token_id=started.token_id
    )
    with write_lock:
        session.add(started)
        session.commit()
    return response
