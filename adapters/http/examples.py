"""Examples of requests for the OpenAPI document, which use the demo's sample records.

In `make demo`, each example succeeds unchanged. Examples do not change records, except for the
removal of the sample card, which succeeds once.
"""

from __future__ import annotations

from typing import Final, TypeAlias

Example: TypeAlias = dict[str, object]

SPA_ID: Final = "5a000000-0000-4000-8000-000000000001"
CLINIC_ID: Final = "5a000000-0000-4000-8000-000000000003"


def sample(summary: str, value: object) -> Example:
    """Return an example in the form of OpenAPI's Example Object."""
    return {"summary": summary, "value": value}


GUEST_IDS: Final = {
    "ada": sample("Ada Sample, in the demo", "6e000000-0000-4000-8000-000000000001"),
}
GUEST_WITH_CARD_IDS: Final = {
    "dan": sample("Dan Placeholder, in the demo", "6e000000-0000-4000-8000-000000000004"),
}
ACCOUNT_IDS: Final = {
    "card": sample("Dan Placeholder's card, in the demo", "ca000000-0000-4000-8000-000000000001"),
}
TOKEN_IDS: Final = {
    "session": sample(
        "The session that stored the card, in the demo", "5e000000-0000-4000-8000-000000000001"
    ),
}
CENTER_IDS: Final = {
    "spa": sample("Still Water Spa, in the demo", SPA_ID),
    "clinic": sample("Clear Skin Clinic, in the demo", CLINIC_ID),
}
PRODUCT_IDS: Final = {
    "massage": sample(
        "Swedish massage at Still Water Spa, in the demo", "07d86c5f-5f70-500f-b29f-ecf671554a49"
    ),
}

DATES: Final = {"next": sample("Cards that have expired or will expire soon", "2027-02-01")}
