"""Examples of requests in the OpenAPI document. Each succeeds in `make demo`, as it stands there.

They name sample records of the demo. None changes one, but for the removal of the sample card, which
succeeds once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

Example: TypeAlias = dict[str, object]

_SPA_ID: Final = "5a000000-0000-4000-8000-000000000001"
_CLINIC_ID: Final = "5a000000-0000-4000-8000-000000000003"


def _example(summary: str, value: object) -> Example:
    return {"summary": summary, "value": value}


GUEST_IDS: Final = {
    "ada": _example("Ada Sample, in the demo", "6e000000-0000-4000-8000-000000000001"),
}
GUEST_WITH_CARD_IDS: Final = {
    "dan": _example("Dan Placeholder, in the demo", "6e000000-0000-4000-8000-000000000004"),
}
ACCOUNT_IDS: Final = {
    "card": _example("His card, in the demo", "ca000000-0000-4000-8000-000000000001"),
}
TOKEN_IDS: Final = {
    "session": _example(
        "The session that stored it, in the demo", "5e000000-0000-4000-8000-000000000001"
    ),
}
CENTER_IDS: Final = {
    "spa": _example("Still Water Spa, in the demo", _SPA_ID),
    "clinic": _example("Clear Skin Clinic, in the demo", _CLINIC_ID),
}
PRODUCT_IDS: Final = {
    "massage": _example(
        "Swedish massage at Still Water Spa, in the demo", "07d86c5f-5f70-500f-b29f-ecf671554a49"
    ),
}

DATES: Final = {"next": _example("Cards that have expired or soon will", "2027-02-01")}


def request_bodies(base_url: str) -> Mapping[str, Mapping[str, Example]]:
    """Return examples of request bodies by the name of the operation.

    `base_url` is where the service is: there a guest's browser comes back to `/docs`.
    """
    redirect_uri = f"{base_url}/docs"
    return {
        "putGuest": {
            "ada": _example(
                "Ada Sample, unchanged",
                {"first_name": "Ada", "last_name": "Sample", "email": "ada@example.com"},
            ),
        },
        "addCard": {
            "spa": _example(
                "At Still Water Spa", {"center_id": _SPA_ID, "redirect_uri": redirect_uri}
            ),
            "clinic": _example(
                "At Clear Skin Clinic, which verifies the billing address",
                {
                    "center_id": _CLINIC_ID,
                    "redirect_uri": redirect_uri,
                    "billing_info": {
                        "address": "1 Main Street",
                        "zipcode": "98101",
                        "country_code": "US",
                    },
                },
            ),
        },
        "putProduct": {
            "massage": _example(
                "Swedish massage, unchanged",
                {
                    "code": "SWEDISH",
                    "name": "Swedish massage",
                    "description": "Long, firm strokes for back and legs",
                    "price": {"amount": "84.00", "currency": "USD"},
                },
            ),
        },
    }
