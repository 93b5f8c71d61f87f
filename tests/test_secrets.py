"""Secrets: compared in constant time, and nowhere in the repository."""

from __future__ import annotations

import hmac
import re
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from adapters.fake_psp import signatures
from adapters.stripe import webhooks
from adapters.stripe.keys import StripeKeys
from domain.hosted_pages import WebhookDelivery
from domain.identifiers import MerchantAccount
from domain.ports import WebhookRejected
from tests.installation import Installation

ROOT: Final = Path(__file__).resolve().parents[1]
NOW: Final = datetime(2026, 11, 20, tzinfo=UTC)
MAC: Final = "0" * 64

# Keys and tokens that somebody could use. Those of tests are shorter, or spelt in words.
_USABLE: Final = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----|\b(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{20,}"
    r"|\bwhsec_[A-Za-z0-9]{20,}|\bAKIA[A-Z0-9]{16}\b"
)


def fake_psp(_: Installation) -> object:
    return signatures.is_signed(b"", f"t=1,v1={MAC}", secret="secret", now=NOW)


def stripe(_: Installation) -> object:
    delivery = WebhookDelivery(headers={webhooks.HEADER: f"t=1,v1={MAC}"}, body=b"")
    keys = StripeKeys(secret_key="sk_test_x", webhook_secrets=("whsec_x",))
    with pytest.raises(WebhookRejected):
        webhooks.read(delivery, MerchantAccount("default"), keys, now=NOW)
    return False


def form_of_the_fake_psp(installation: Installation) -> object:
    page = installation.page_reference(installation.opened_session())
    return installation.client().simulate_post(
        f"/fake-psp/pages/{page}",
        body=f"form_token={MAC}",
        headers={"Content-Type": "application/x-www-form-urlencoded"},
    )


@pytest.mark.parametrize("check", [fake_psp, stripe, form_of_the_fake_psp])
def test_a_secret_is_compared_in_constant_time(
    installation: Installation,
    monkeypatch: pytest.MonkeyPatch,
    check: Callable[[Installation], object],
) -> None:
    compared: list[bytes] = []
    really = hmac.compare_digest

    def compare(one: str | bytes, other: str | bytes) -> bool:
        both = [each.encode() if isinstance(each, str) else each for each in (one, other)]
        compared.extend(both)
        return really(*both)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    check(installation)

    assert MAC.encode() in compared


def test_no_key_that_could_be_used_is_in_the_repository() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    files = [ROOT / name for name in listed.stdout.split("\0") if name]

    assert files
    held = {
        str(path.relative_to(ROOT)): found
        for path in files
        if path.is_file() and (found := _USABLE.findall(path.read_text(errors="replace")))
    }
    assert held == {}
