"""Secrets are compared in constant time, and the repository contains no secrets."""

from __future__ import annotations

import hmac
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.installation import Installation

ROOT: Final = Path(__file__).resolve().parents[1]
MAC: Final = "0" * 64

# Usable keys and tokens. Those of tests are shorter, or spelled in words.
_USABLE: Final = (
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----|\b(sk|rk)_(live|test)_[A-Za-z0-9]{20,}"
    r"|\bwhsec_[A-Za-z0-9]{20,}|\bAKIA[A-Z0-9]{16}\b"
)


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Collect everything that is compared in constant time."""
    compared: list[bytes] = []
    really = hmac.compare_digest

    def compare(one: bytes, other: bytes) -> bool:
        compared.extend((one, other))
        return really(one, other)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    return compared


# Shows S4.
def test_the_form_token_and_charge_key_of_the_fake_psp_are_compared_in_constant_time(
    installation: Installation, compared: list[bytes]
) -> None:
    page = installation.page_reference(installation.opened_session())
    installation.client().simulate_post(
        f"/fake-psp/pages/{page}",
        body=f"form_token={MAC}",
        headers={"Content-Type": "application/x-www-form-urlencoded"},
    )

    installation.client().simulate_get(
        "/fake-psp/charges", headers={"Authorization": f"Bearer {MAC}"}
    )

    assert {MAC.encode(), f"Bearer {MAC}".encode()} <= {*compared}


# Shows S18.
def test_the_repository_contains_no_usable_key() -> None:
    found = subprocess.run(
        ["git", "grep", "-nE", "-e", _USABLE], cwd=ROOT, capture_output=True, text=True, check=False
    )
    # That is the status if no line was found.
    assert (found.returncode, found.stdout) == (1, "")
