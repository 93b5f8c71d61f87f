"""Lists, cards and sessions over HTTP."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest

from adapters.psp.contract.samples import GUEST_ID
from domain.errors import (
    GuestNotFound,
    IncorrectBillingAddress,
    InvalidCenterId,
    PaymentConfigurationNotDone,
    PaymentMethodAlreadyExists,
    Refusal,
)
from domain.permissions import Permission
from tests.adapters.http.api import ACCOUNTS, PRODUCTS, Api, refused, refused_bare
from tests.builders import CENTER_ID, OTHER_CENTER_ID, a_center, a_product
from tests.installation import GOOD_CARD, OTHER_GOOD_CARD, Installation, Trouble

EXPIRING = f"/v1/centers/{CENTER_ID}/accounts"
BOTH_LISTS = pytest.mark.parametrize("path", [ACCOUNTS, PRODUCTS])


def test_products_come_in_pages(api: Api) -> None:
    with api.installation.storage.write() as unit:
        unit.products.put_many(a_product(number) for number in range(1, 26))
        unit.commit()

    first = api.get(PRODUCTS)
    assert first.json["page_info"] == {"total": 25, "page": 1, "size": 10}
    assert len(first.json["products"]) == 10
    assert first.json["products"][0] == {
        "id": a_product(1).id,
        "code": "P-1",
        "name": "Massage 1",
        "description": "An hour of rest",
        "price": {"amount": "120.50", "currency": "EUR"},
    }
    last = api.get(PRODUCTS, "page=3&size=10")
    assert [product["code"] for product in last.json["products"]] == [
        f"P-{number}" for number in range(21, 26)
    ]


@BOTH_LISTS
def test_more_than_a_hundred_items_cannot_be_requested(refusing: Api, path: str) -> None:
    assert refusing.get(path, "size=100").json["page_info"] == {"total": 0, "page": 1, "size": 100}
    for size in ("101", "9" * 24):
        result = refusing.get(path, f"size={size}")
        assert refused_bare(result) == (422, "You cannot request more than 100 items.")


@BOTH_LISTS
@pytest.mark.parametrize("name", ["page", "size"])
def test_numbers_in_other_spellings_are_refused(refusing: Api, path: str, name: str) -> None:
    message = f"{name} must be a whole number of at least 1, in decimal digits"
    for value in ("0", "+5", "%2B5", "", "%D9%A3", "1%00", "%FF", f"1&{name}=1"):
        assert refused_bare(refusing.get(path, f"{name}={value}")) == (422, message)


@BOTH_LISTS
@pytest.mark.parametrize("page", ["2", "9" * 3999])
def test_a_page_past_the_end_is_empty_and_has_the_true_total(
    api: Api, path: str, page: str
) -> None:
    api.installation.stored_card()
    with api.installation.storage.write() as unit:
        unit.products.put_many([a_product()])
        unit.commit()

    result = api.get(path, f"page={page}")

    assert result.status_code == 200
    assert f'"page":{page},' in result.text
    assert '"total":1,' in result.text
    assert "[]" in result.text


@BOTH_LISTS
def test_a_query_of_more_than_100_parameters_is_refused(refusing: Api, path: str) -> None:
    form = refused if path == ACCOUNTS else refused_bare

    assert refusing.get(path, "&".join(["x=1"] * 100)).status_code == 200
    assert form(refusing.get(path, "&".join(["x=1"] * 101))) == (400, "Invalid request")


def test_a_stored_card_is_listed(api: Api) -> None:
    account = api.installation.stored_card(source=5)

    assert api.get(ACCOUNTS).json == {
        "accounts": [
            {
                "account_id": account.account_id,
                "center_id": CENTER_ID,
                "card_logo": "visa",
                "last_four": "4242",
                "expiry_on": "09/31",
                "expired": False,
                "source": 5,
                "created_at": "2026-11-20T12:00:00Z",
                "is_default": True,
            }
        ],
        "page_info": {"total": 1, "page": 1, "size": 10},
    }


def test_cards_can_be_narrowed_to_a_center(api: Api) -> None:
    api.installation.has_center(a_center(id=OTHER_CENTER_ID))
    api.installation.stored_card()

    assert api.get(ACCOUNTS, f"center_id={CENTER_ID}").json["page_info"]["total"] == 1
    assert api.get(ACCOUNTS, f"center_id={OTHER_CENTER_ID}").json["page_info"]["total"] == 0
    for query in ("center_id=", f"center_id={CENTER_ID}&center_id={CENTER_ID}"):
        assert refused(api.get(ACCOUNTS, query)) == (400, "Invalid center id")


def test_the_payment_reference_is_for_those_who_may_charge(installation: Installation) -> None:
    account = installation.stored_card()
    path = f"{ACCOUNTS}/{account.account_id}"

    with_permission = Api(
        installation, installation.a_caller(Permission.GUESTS_VIEW, Permission.PAYMENTS_USE)
    ).get(path)
    without = Api(installation, installation.a_caller(Permission.GUESTS_VIEW)).get(path)

    assert with_permission.json["payment_reference"] == {
        "provider": "fake",
        "merchant_account": "default",
        "guest_reference": account.guest_reference,
        "token": account.token,
    }
    assert without.json == {
        key: value for key, value in with_permission.json.items() if key != "payment_reference"
    }
    assert without.json["success"] is True
    assert account.token not in without.text


def test_a_card_is_removed_here_and_at_the_psp(api: Api) -> None:
    account = api.installation.stored_card(GOOD_CARD)
    kept = api.installation.stored_card(OTHER_GOOD_CARD)
    path = f"{ACCOUNTS}/{account.account_id}"
    api.installation.container.work_for_reconciler().clear()

    result = api.send("DELETE", path)

    assert result.json == {"success": True, "error": None}
    assert api.installation.container.work_for_reconciler().is_set()
    assert refused(api.get(path)) == (404, "Payment account not found")
    assert refused(api.send("DELETE", path)) == (404, "Payment account not found")
    api.installation.reconcile_until_idle()
    assert api.installation.tokens_at_psp() == {kept.token}


def test_a_card_is_made_the_default(api: Api) -> None:
    first = api.installation.stored_card(GOOD_CARD)
    second = api.installation.stored_card(OTHER_GOOD_CARD)
    path = f"{ACCOUNTS}/{second.account_id}"
    assert api.get(path).json["is_default"] is False

    for body in (None, "{", "x" * 20_000):
        result = api.send("PUT", f"{path}/default", body=body)
        assert result.json == {"success": True, "error": None}

    listed = {each["account_id"]: each["is_default"] for each in api.get(ACCOUNTS).json["accounts"]}
    assert listed == {first.account_id: False, second.account_id: True}
    api.send("DELETE", path)
    refusal = refused(api.send("PUT", f"{path}/default"))
    assert refusal == (404, "Payment account not found")
    assert api.get(f"{ACCOUNTS}/{first.account_id}").json["is_default"] is True


def test_cards_that_expire_are_listed_without_their_payment_reference(api: Api) -> None:
    account = api.installation.stored_card()
    (card,) = api.get(ACCOUNTS).json["accounts"]

    result = api.get(EXPIRING, "expires_before=2031-10-01")

    assert result.json == {
        "accounts": [{**card, "guest_id": GUEST_ID}],
        "page_info": {"total": 1, "page": 1, "size": 10},
    }
    assert account.token not in result.text
    assert account.guest_reference not in result.text
    assert api.get(EXPIRING, "expires_before=2031-09-30").json["accounts"] == []
    for query in ("", "expires_before=2031-10-01&expires_before=2031-10-01"):
        assert refused_bare(api.get(EXPIRING, query)) == (
            400,
            "expires_before must be a date such as 2027-01-31",
        )


def test_a_session_is_cancelled_also_while_the_psp_is_away(api: Api) -> None:
    session = api.installation.opened_session()
    path = f"{ACCOUNTS}/sessions/{session.token_id}"
    api.installation.provider.have(Trouble.BEFORE_IT_ACTED)
    work = api.installation.container.work_for_reconciler()
    work.clear()

    waiting = api.send("DELETE", path)

    assert waiting.status_code == 200
    assert waiting.json == {
        "success": True,
        "error": None,
        "status": "open",
        "progress": "cancelled",
        "account_id": None,
        "failure": None,
        "expires_at": "2026-11-20T12:00:00Z",
    }
    assert work.is_set()
    api.installation.provider.recover()
    ended = api.send("DELETE", path)
    assert ended.json == {**waiting.json, "status": "expired"}
    assert ended.json == api.get(path).json == api.send("DELETE", path).json
    assert refused(api.send("DELETE", f"{ACCOUNTS}/sessions/x")) == (404, "Session not found")


def test_the_state_of_a_session_is_read(api: Api) -> None:
    session = api.installation.opened_session()
    path = f"{ACCOUNTS}/sessions/{session.token_id}"
    assert api.get(path).json == {
        "success": True,
        "error": None,
        "status": "open",
        "progress": "opened",
        "account_id": None,
        "failure": None,
        "expires_at": "2026-11-20T12:30:00Z",
    }

    api.installation.type_card(session)
    api.installation.return_to_shop(session)

    done = api.get(path).json
    assert done["status"] == "completed"
    assert done["account_id"] == api.get(ACCOUNTS).json["accounts"][0]["account_id"]

    second = api.installation.opened_session()
    api.installation.type_card(second)
    api.installation.return_to_shop(second)

    failed = api.get(f"{ACCOUNTS}/sessions/{second.token_id}").json
    assert failed["status"] == "failed"
    assert failed["failure"] == {
        "code": 400,
        "message": "Payment method already exists",
        "type": "payment_method_already_exists",
    }


@pytest.mark.parametrize(
    "refusal",
    [
        GuestNotFound,
        InvalidCenterId,
        PaymentConfigurationNotDone,
        IncorrectBillingAddress,
        PaymentMethodAlreadyExists,
    ],
)
def test_a_session_that_failed_before_types_were_stored_has_one(
    api: Api, refusal: type[Refusal]
) -> None:
    token_id = api.installation.opened_session().token_id
    failure = {"code": refusal.code, "message": refusal.message}
    with closing(sqlite3.connect(api.installation.database)) as connection, connection:
        connection.execute(
            "UPDATE card_sessions SET status = 'failed', failure = ? WHERE token_id = ?",
            (json.dumps(failure), token_id),
        )

    (listed,) = api.get(f"{ACCOUNTS}/sessions").json["sessions"]
    assert listed["failure"] == {**failure, "type": refusal.type}
    read = api.get(f"{ACCOUNTS}/sessions/{token_id}").json
    assert read["failure"] == listed["failure"]
