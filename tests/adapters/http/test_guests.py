from __future__ import annotations

from adapters.psp.contract.samples import GUEST_ID, OTHER_GUEST_ID, a_uuid
from domain.permissions import Permission
from tests.adapters.http.api import Api, error_of, refused
from tests.builders import CENTER_ID
from tests.installation import Installation

GUEST = f"/api/v1/guests/{OTHER_GUEST_ID}"
ADA = {"first_name": "Ada", "last_name": "Lovelace", "email": "ada@guests.example"}


def test_a_first_time_guest_gets_a_card_by_api_alone(api: Api) -> None:
    created = api.put(GUEST, ADA)

    assert created.status_code == 200
    assert created.json == {"success": True, "error": None, "id": OTHER_GUEST_ID, **ADA}
    assert api.get(GUEST).json == created.json
    account = api.installation.stored_card(guest_id=OTHER_GUEST_ID)
    (card,) = api.get(f"{GUEST}/accounts").json["accounts"]
    assert card["account_id"] == account.account_id
    (session,) = api.get(f"{GUEST}/accounts/sessions").json["sessions"]
    assert session == {
        "token_id": account.token_id,
        "center_id": CENTER_ID,
        "status": "completed",
        "progress": "returned",
        "account_id": account.account_id,
        "failure": None,
        "created_at": session["created_at"],
        "expires_at": session["expires_at"],
    }


def test_a_path_without_api_gets_the_same_responses(api: Api) -> None:
    client = api.installation.client()
    headers = {"Authorization": f"apikey {api.token}"}

    def get(path: str) -> tuple[int, object]:
        result = client.simulate_get(path, headers=headers)
        return result.status_code, result.json

    guest = f"/v1/guests/{GUEST_ID}"
    for path in (guest, f"{guest}/accounts", f"{guest}/accounts/x", f"{guest}/x", "/v1/guests/x"):
        assert get(path) == get(f"/api{path}")
    assert get(guest)[0] == 200


def test_a_guest_is_refused_in_the_envelope(api: Api) -> None:
    nameless = api.put(GUEST, {"last_name": "Lovelace"})
    code, message = refused(nameless)

    assert code == 400
    assert message.startswith("first_name must be 1 to 200 characters")
    assert refused(api.get(GUEST)) == (404, "Guest not found")
    assert refused(api.put("/api/v1/guests/x", ADA)) == (400, "Guest not found")


def test_permission_comes_before_the_body(installation: Installation) -> None:
    limited = Api(installation, installation.a_caller(centers=frozenset({CENTER_ID})))
    viewer = Api(installation, installation.a_caller(Permission.GUESTS_VIEW))

    for api in (limited, viewer):
        result = api.send("PUT", GUEST, body=b"no JSON")
        assert refused(result) == (403, "User not authorized")
    result = viewer.send("PUT", f"/v1/centers/{CENTER_ID}/products/{a_uuid(51)}", body=b"no JSON")
    assert (result.status_code, result.json["message"]) == (403, "User not authorized")
    assert refused(limited.get(f"/api/v1/guests/{GUEST_ID}")) == (403, "User not authorized")


def test_a_center_says_how_it_takes_cards(api: Api) -> None:
    api.installation.configure(
        avs=True, redirect_origins=("https://shop.example", "myspa://"), link_minutes=43_200
    )
    center = api.get(f"/v1/centers/{CENTER_ID}").json

    assert center == {
        "id": CENTER_ID,
        "name": center["name"],
        "takes_cards": True,
        "avs": True,
        "cards_per_guest": "many",
        "redirect_origins": ["https://shop.example", "myspa://"],
        "link_minutes": 43_200,
    }
    listed = api.get("/v1/centers").json
    assert listed == {"centers": [center], "page_info": {"total": 1, "page": 1, "size": 10}}
    api.installation.unconfigure()
    assert api.get(f"/v1/centers/{CENTER_ID}").json == center | {
        "takes_cards": False,
        "avs": False,
        "cards_per_guest": None,
        "redirect_origins": [],
        "link_minutes": None,
    }
    api.installation.configure(session_minutes=60)
    assert api.get(f"/v1/centers/{CENTER_ID}").json["link_minutes"] == 60


def test_a_product_is_put_and_listed(api: Api) -> None:
    path = f"/v1/centers/{CENTER_ID}/products"
    oil = {
        "code": "OIL-50",
        "name": "Massage oil",
        "description": "",
        "price": {"amount": "49.90", "currency": "EUR"},
    }

    put = api.put(f"{path}/{a_uuid(51)}", oil)

    assert put.json == {"id": a_uuid(51), **oil}
    assert api.get(path).json["products"] == [put.json]
    for price in (None, "49.90", {"amount": 49.9, "currency": "EUR"}):
        result = api.put(f"{path}/{a_uuid(52)}", oil | {"price": price})
        assert result.status_code == 400
        assert result.json["message"].startswith("amount must be ")


def test_a_trailing_slash_is_an_unknown_path(api: Api) -> None:
    for path in ("/v1/centers/", f"/v1/centers/{CENTER_ID}/products/", f"{GUEST}/accounts/"):
        for method in ("GET", "POST"):
            result = api.send(method, path)
            assert error_of(result) == (404, "Not found")
