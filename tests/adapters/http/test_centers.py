from __future__ import annotations

from tests.adapters.http.api import Api
from tests.builders import CENTER_ID


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
