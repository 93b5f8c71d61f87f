from __future__ import annotations

import pytest

from tests.adapters.http.api import Api
from tests.builders import CENTER_ID


def test_reading_a_center_shows_its_settings_for_cards(api: Api) -> None:
    api.installation.configure(
        avs=True, redirect_origins=("https://shop.example", "myspa://"), link_minutes=43_200
    )
    center = api.get(f"/v1/centers/{CENTER_ID}").json

    assert center == {
        "id": CENTER_ID,
        "name": center["name"],
        "takes_cards": True,
        "live": False,
        "avs": True,
        "cards_per_guest": "many",
        "redirect_origins": ["https://shop.example", "myspa://"],
        "link_minutes": 43_200,
        "refuse_funding": [],
        "authentication": "automatic",
        "takes_agreements": False,
    }
    listed = api.get("/v1/centers").json
    assert listed == {"centers": [center], "page_info": {"total": 1, "page": 1, "size": 10}}
    api.installation.unconfigure()
    assert api.get(f"/v1/centers/{CENTER_ID}").json == center | {
        "takes_cards": False,
        "live": None,
        "avs": False,
        "cards_per_guest": None,
        "redirect_origins": [],
        "link_minutes": None,
        "authentication": None,
        "takes_agreements": False,
    }
    api.installation.configure(session_minutes=60)
    assert api.get(f"/v1/centers/{CENTER_ID}").json["link_minutes"] == 60


@pytest.mark.installed(
    CARDONFILE_STRIPE_SECRET_KEY="sk_test_default",
    CARDONFILE_STRIPE_WEBHOOK_SECRETS="whsec_default",
    CARDONFILE_STRIPE_BERLIN_SECRET_KEY="rk_live_berlin",
    CARDONFILE_STRIPE_BERLIN_WEBHOOK_SECRETS="whsec_berlin",
)
@pytest.mark.parametrize(
    ("merchant_account", "is_live"), [("default", False), ("berlin", True), ("without_keys", None)]
)
def test_reading_a_center_shows_whether_it_takes_real_cards(
    api: Api, merchant_account: str, is_live: bool | None
) -> None:
    api.installation.configure(provider="stripe", merchant_account=merchant_account)
    center = api.get(f"/v1/centers/{CENTER_ID}").json

    assert center["live"] is is_live
