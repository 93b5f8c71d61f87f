"""`cardonfile consent`."""

from __future__ import annotations

import json

import pytest

from adapters.psp.contract.samples import NOW, a_uuid
from domain.identifiers import TokenId
from tests.builders import a_consent, an_account
from tests.entrypoints.conftest import CommandLine

SHOW = ("consent", "show", a_uuid(101))


def store(cardonfile: CommandLine) -> None:
    """Store an account that was renewed and removed."""
    with cardonfile.storage.write() as unit:
        unit.accounts.add(an_account(removed_at=NOW))
        unit.consents.add(a_consent())
        earlier = NOW.replace(year=2025)
        unit.consents.add(
            a_consent(token_id=TokenId(a_uuid(7)), version="2025-01", text="Old", agreed_at=earlier)
        )
        unit.commit()


def test_the_consent_that_applies_is_shown_before_earlier_ones(cardonfile: CommandLine) -> None:
    store(cardonfile)

    assert cardonfile.succeeds(*SHOW) == (
        "AGREED_AT             VERSION  LANGUAGE  TEXT\n"
        "2026-03-04T05:06:07Z  2026-11  en        You may charge my card.\n"
        "2025-03-04T05:06:07Z  2025-01  en        Old\n"
    )
    assert json.loads(cardonfile.succeeds(*SHOW, "--json"))[1] == {
        "agreed_at": "2025-03-04T05:06:07.800009Z",
        "version": "2025-01",
        "language": "en",
        "text": "Old",
    }


@pytest.mark.parametrize("account_id", [a_uuid(102), "x"])
def test_an_unknown_account_is_refused(cardonfile: CommandLine, account_id: str) -> None:
    store(cardonfile)

    assert cardonfile.refuses("consent", "show", account_id) == "Payment account not found"
