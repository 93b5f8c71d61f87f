"""The request in docs/providers/mollie.md that charges a card."""

from __future__ import annotations

import json
import re

from tests.fake_mollie.described import require_request
from tests.programs import ROOT


def test_the_documented_charge_is_a_recurring_payment() -> None:
    page = (ROOT / "docs" / "providers" / "mollie.md").read_text()
    (body,) = re.findall(
        r"^```http\nPOST /v2/payments .+?\n\n(.+?)\n```$", page, re.MULTILINE | re.DOTALL
    )

    # With Mollie's description, as `make test-mollie-described` has it.
    require_request("POST", "/v2/payments", "", body.encode())

    assert json.loads(body)["sequenceType"] == "recurring"
