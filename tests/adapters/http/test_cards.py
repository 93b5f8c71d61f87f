from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from adapters.psp_suite.samples import GUEST_ID
from domain.permissions import Permission
from tests.adapters.http.api import ACCOUNTS, Api, refused, refused_bare
from tests.builders import CENTER_ID, OTHER_CENTER_ID, a_center, a_shipped_consent
from tests.databases import committed
from tests.installation import GOOD_CARD, OTHER_GOOD_CARD, Installation

EXPIRING = f"/v1/centers/{CENTER_ID}/accounts"


def test_a_stored_card_appears_in_the_list_of_cards(api: Api) -> None:
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
                "funding": "credit",
                "issuer_country": "US",
                "wallet": None,
                "authenticated": False,
                "source": 5,
                "created_at": "2026-11-20T12:00:00Z",
                "is_default": True,
                "keep_until": None,
            }
        ],
        "page_info": {"total": 1, "page": 1, "size": 10},
    }


def test_cards_can_be_listed_by_center(api: Api) -> None:
    api.installation.has_center(a_center(id=OTHER_CENTER_ID))
    api.installation.stored_card()

    assert api.get(ACCOUNTS, f"center_id={CENTER_ID}").json["page_info"]["total"] == 1
    assert api.get(ACCOUNTS, f"center_id={OTHER_CENTER_ID}").json["page_info"]["total"] == 0
    for query in ("center_id=", f"center_id={CENTER_ID}&center_id={CENTER_ID}"):
        assert refused(api.get(ACCOUNTS, query)) == (400, "Invalid center id")


def test_only_callers_that_may_charge_cards_see_the_payment_reference(
    installation: Installation,
) -> None:
    account = replace(installation.stored_card(), charge_reference="tr_1")
    with committed(installation.storage) as unit:
        unit.accounts.update(account)
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
        "charge_reference": "tr_1",
        "authenticated": False,
        "network_transaction_id": f"network_{account.token}",
        "currency": None,
        "kept_for": "later_use",
        "agreements": [],
    }
    assert without.json == {
        key: value for key, value in with_permission.json.items() if key != "payment_reference"
    }
    assert without.json["success"] is True
    assert account.token not in without.text


def test_the_consent_to_store_a_card_can_be_read_until_the_card_is_removed(api: Api) -> None:
    account = api.installation.stored_card()
    path = f"{ACCOUNTS}/{account.account_id}/consent"

    first = api.get(path).json

    assert first == {
        "success": True,
        "error": None,
        "version": a_shipped_consent().version,
        "language": "en",
        "text": a_shipped_consent().text,
        "agreed_at": "2026-11-20T12:00:00Z",
        "earlier": [],
    }
    api.installation.clock.advance(timedelta(minutes=1))
    session = api.installation.opened_session()
    api.installation.type_card(session, expiry=(9, 2035))
    api.installation.settle(session.token_id)
    renewed = api.get(path).json
    assert renewed["agreed_at"] == "2026-11-20T12:01:00Z"
    assert renewed["earlier"] == [
        {name: first[name] for name in ("version", "language", "text", "agreed_at")}
    ]
    api.send("DELETE", f"{ACCOUNTS}/{account.account_id}")
    assert refused(api.get(path)) == (404, "Payment account not found")


def test_removing_a_card_deletes_it_at_the_psp(api: Api) -> None:
    account = api.installation.stored_card(GOOD_CARD)
    kept = api.installation.stored_card(OTHER_GOOD_CARD)
    path = f"{ACCOUNTS}/{account.account_id}"
    api.installation.container.work_for_reconciler().clear()

    result = api.send("DELETE", path)

    assert result.json == {"success": True, "error": None}
    assert api.installation.container.work_for_reconciler().is_set()
    assert refused(api.get(path)) == (404, "Payment account not found")
    assert refused(api.send("DELETE", path)) == (404, "Payment account not found")
    api.installation.reconcile()
    assert api.installation.tokens_at_psp() == {kept.token}


def test_a_card_can_be_made_the_default(api: Api) -> None:
    first = api.installation.stored_card(GOOD_CARD)
    second = api.installation.stored_card(OTHER_GOOD_CARD)
    path = f"{ACCOUNTS}/{second.account_id}"
    assert api.get(path).json["is_default"] is False

    for body in (None, "{", "x" * 20_000):
        result = api.send("PUT", f"{path}/default", body=body)
        assert result.json == {"success": True, "error": None}

    listed = {card["account_id"]: card["is_default"] for card in api.get(ACCOUNTS).json["accounts"]}
    assert listed == {first.account_id: False, second.account_id: True}
    api.send("DELETE", path)
    refusal = refused(api.send("PUT", f"{path}/default"))
    assert refusal == (404, "Payment account not found")
    assert api.get(f"{ACCOUNTS}/{first.account_id}").json["is_default"] is True


def test_the_list_of_expiring_cards_does_not_show_payment_references(api: Api) -> None:
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
