"""Existing sessions over HTTP. Add-card has its own module."""

from __future__ import annotations

import json
from typing import Final

import pytest

from domain.errors import (
    GuestNotFound,
    PaymentMethodAlreadyExists,
    Refusal,
)
from domain.permissions import Permission
from tests.adapters.http.api import ACCOUNTS, GOOD_BODY, Api, refused
from tests.builders import CENTER_ID, a_caller
from tests.databases import change_by_hand
from tests.installation import BASE_URL, Trouble

OPEN: Final = {
    "success": True,
    "error": None,
    "center_id": CENTER_ID,
    "reference": None,
    "locale": None,
    "created_at": "2026-11-20T12:00:00Z",
    "status": "open",
    "account_id": None,
    "existing_account_id": None,
    "failure": None,
    "hosted_payment_uri": None,
    "short_uri": None,
}
"""An open session, without what differs."""


def test_a_session_can_be_cancelled_while_the_psp_is_unavailable(api: Api) -> None:
    session = api.installation.opened_session()
    path = f"{ACCOUNTS}/sessions/{session.token_id}"
    api.installation.provider.have(Trouble.BEFORE_IT_ACTED)
    work = api.installation.container.work_for_reconciler()
    work.clear()

    waiting = api.send("DELETE", path)

    assert waiting.status_code == 200
    assert waiting.json == OPEN | {
        "token_id": session.token_id,
        "progress": "cancelled",
        "expires_at": "2026-11-20T12:00:00Z",
    }
    assert work.is_set()
    api.installation.provider.recover()
    ended = api.send("DELETE", path)
    assert ended.json == {**waiting.json, "status": "expired"}
    assert ended.json == api.get(path).json == api.send("DELETE", path).json
    assert refused(api.send("DELETE", f"{ACCOUNTS}/sessions/x")) == (404, "Session not found")


def test_the_state_of_a_session_can_be_read(api: Api) -> None:
    session = api.installation.opened_session()
    path = f"{ACCOUNTS}/sessions/{session.token_id}"
    assert api.get(path).json == OPEN | {
        "token_id": session.token_id,
        "progress": "opened",
        "expires_at": "2026-11-20T12:30:00Z",
        "hosted_payment_uri": api.installation.container.links().hosted_payment_uri(session),
        "short_uri": f"{BASE_URL}/h/{session.link_key}",
    }

    api.installation.type_card_and_return(session)

    done = api.get(path).json
    assert done["status"] == "completed"
    assert done["account_id"] == api.get(ACCOUNTS).json["accounts"][0]["account_id"]

    second = api.installation.opened_session()
    api.installation.type_card_and_return(second)

    failed = api.get(f"{ACCOUNTS}/sessions/{second.token_id}").json
    assert (failed["account_id"], failed["existing_account_id"]) == (None, done["account_id"])
    (listed,) = api.get(f"{ACCOUNTS}/sessions", "status=failed").json["sessions"]
    assert listed["existing_account_id"] == done["account_id"]
    assert failed["status"] == "failed"
    assert failed["failure"] == {
        "code": 400,
        "message": "Payment method already exists",
        "type": "payment_method_already_exists",
    }


@pytest.mark.parametrize(
    "refusal",
    [GuestNotFound, PaymentMethodAlreadyExists],
)
def test_a_session_that_failed_under_an_earlier_release_has_a_refusal_type(
    api: Api, refusal: type[Refusal]
) -> None:
    token_id = api.installation.opened_session().token_id
    failure = {"code": refusal.code, "message": refusal.message}
    change_by_hand(
        api.installation.storage,
        "UPDATE card_sessions SET status = 'failed', failure = :failure WHERE token_id = :token_id",
        failure=json.dumps(failure),
        token_id=token_id,
    )

    (listed,) = api.get(f"{ACCOUNTS}/sessions").json["sessions"]
    assert listed["failure"] == {**failure, "type": refusal.type}
    read = api.get(f"{ACCOUNTS}/sessions/{token_id}").json
    assert read["failure"] == listed["failure"]


def test_a_session_shows_the_values_sent_by_the_client(api: Api) -> None:
    sent = {**GOOD_BODY, "reference": "order-1001", "locale": "de-AT"}
    added = api.post(sent).json
    token_id = added["token_id"]

    session = api.get(f"{ACCOUNTS}/sessions/{token_id}").json
    assert (session["reference"], session["locale"]) == ("order-1001", "de-AT")
    assert session["hosted_payment_uri"] == added["hosted_payment_uri"]
    (listed,) = api.get(f"{ACCOUNTS}/sessions", "reference=order-1001&status=open").json["sessions"]
    assert listed["token_id"] == token_id
    assert listed["reference"] == "order-1001"
    # Whoever has a list would have the links of all.
    assert not {"hosted_payment_uri", "short_uri"} & listed.keys()


# Shows S28.
def test_a_caller_sees_the_link_of_another_callers_session_only_if_it_may_read_the_guest(
    api: Api,
) -> None:
    adds = frozenset({Permission.GUESTS_ADD})
    views = adds | {Permission.GUESTS_VIEW}
    added = api.post(GOOD_BODY).json
    path = f"{ACCOUNTS}/sessions/{added['token_id']}"
    key = api.installation.session(added["token_id"]).link_key
    assert key is not None
    may_not = [
        a_caller(name="clerk", permissions=adds, centers=None),
        a_caller(name="kiosk", permissions=views, centers=frozenset({CENTER_ID})),
        a_caller(name="reader", permissions=views - adds, centers=None),
    ]
    for caller in may_not:
        other = Api(api.installation, caller)
        shown = other.get(path)
        assert (shown.json["hosted_payment_uri"], shown.json["short_uri"]) == (None, None)
        assert key not in shown.text + other.get(f"{ACCOUNTS}/sessions").text
        assert refused(other.send("DELETE", path)) == (403, "User not authorized")
        assert (
            key
            not in other.client.simulate_get(
                "/hosted-payments", query_string=f"token_id={added['token_id']}"
            ).text
        )
    assert api.installation.session(added["token_id"]).cancelled_at is None

    desk = Api(api.installation, a_caller(name="desk", permissions=views, centers=None))
    assert desk.get(path).json["hosted_payment_uri"] == added["hosted_payment_uri"]
    assert desk.send("DELETE", path).status_code == 200
