"""The request in docs/providers/mollie.md that charges a card."""

from __future__ import annotations

import json
import re

from tests.fake_mollie.described import require_request
from tests.programs import ROOT


def test_the_charge_request_in_the_mollie_docs_creates_a_recurring_payment() -> None:
    page = (ROOT / "docs" / "providers" / "mollie.md").read_text()
    (body,) = re.findall(
        r"^```http\nPOST /v2/payments .+?\n\n(.+?)\n```$", page, re.MULTILINE | re.DOTALL
    )

    sent = json.loads(body)

    # `make test-mollie-described` has Mollie's description. Its schema requires `redirectUrl`, which
    # may be left out of recurring payments, as its text says.
    described = {**sent, "redirectUrl": "https://shop.example/"}
    require_request("POST", "/v2/payments", "", json.dumps(described).encode())
    assert sent["sequenceType"] == "recurring"
