"""Implements add-card with Flask, as the documentation of Flask teaches. Served by gunicorn."""

from __future__ import annotations

import uuid

from flask import Flask, abort, request
from flask.typing import ResponseReturnValue
from pydantic import ValidationError
from sqlalchemy.orm import scoped_session, sessionmaker
from werkzeug.exceptions import HTTPException

from tests.benchmarks.peers.models import AccessToken, AddCard, Center, Guest, make_engine

db_session = scoped_session(sessionmaker(bind=make_engine()))
app = Flask(__name__)


@app.teardown_appcontext
def remove_session(_: BaseException | None) -> None:
    """End the database session of a request."""
    db_session.remove()


@app.errorhandler(HTTPException)
def refuse(refused: HTTPException) -> ResponseReturnValue:
    """Respond to an error as the service does."""
    error = {"code": refused.code, "message": refused.description}
    return {"success": False, "error": error}, refused.code or 500


@app.errorhandler(ValidationError)
def refuse_body(_: ValidationError) -> ResponseReturnValue:
    """Respond to an invalid request body as the service does."""
    return {"success": False, "error": {"code": 400, "message": "Invalid"}}, 400


def get_caller() -> str:
    """Return the name of the caller. Aborts the request unless the caller may add cards."""
    credentials = request.authorization
    if credentials is None or credentials.type != "bearer" or not credentials.token:
        abort(401, "User not authenticated")
    token = db_session.get(AccessToken, AccessToken.hash_of(credentials.token))
    if token is None or not token.is_valid:
        abort(401, "User not authenticated")
    if not token.may_add_cards:
        abort(403, "User not authorized")
    return token.caller


@app.post("/api/v1/guests/<uuid:guest_id>/accounts")
def add_card(guest_id: uuid.UUID) -> ResponseReturnValue:
    """Start a card-addition session."""
    caller = get_caller()
    asked = AddCard.model_validate(request.get_json())
    center = db_session.get(Center, asked.center_id)
    if center is None:
        abort(400, "Invalid center id")
    if db_session.get(Guest, guest_id) is None:
        abort(404, "Guest not found")
    started = asked.session(guest_id, center, caller)
    response = {
        "success": True,
        "error": None,
        "hosted_payment_uri": started.hosted_payment_uri,
        "token_id": str(started.token_id),
    }
    db_session.add(started)
    db_session.commit()
    return response
