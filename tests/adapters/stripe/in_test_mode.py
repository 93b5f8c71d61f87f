"""Stripe's test mode in the contract suite, for `make test-stripe`.

The suite cannot play guests or lose calls there, so it runs fewer tests. Both merchant accounts
of the suite are the merchant account whose key is given.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from typing_extensions import override

from adapters.psp_suite.clock import SettableClock
from adapters.psp_suite.under_test import MAIN, OTHER, OTHER_SECRET, SECRET, Ability
from adapters.stripe.keys import API_BASE, StripeKeys
from adapters.stripe.provider import StripeProvider
from adapters.system import RandomIds
from domain.identifiers import GuestReference, MerchantAccount
from domain.psps.evidence import Evidence
from domain.psps.hosted_page import HostedPage, HostedPageRequest
from domain.psps.payment_provider import PaymentProvider
from domain.psps.webhook import WebhookDelivery
from tests.adapters.stripe.under_test import StripeUnderTest, an_event

KEY_SETTING: Final = "CARDONFILE_STRIPE_TEST_KEY"


def key_of_test_mode() -> str:
    """Return the test-mode key. A live key is refused, because it would create real customers."""
    key = os.environ[KEY_SETTING]
    assert key.startswith(("sk_test_", "rk_test_")), f"{KEY_SETTING} is no key of test mode"
    return key


def api_base() -> str:
    """Return the address of Stripe's API."""
    return os.environ.get("CARDONFILE_STRIPE_API_BASE") or API_BASE


class StripeInTestMode(StripeUnderTest):
    """Stripe's test mode. Without STAND_IN, the suite skips what only the fake can do."""

    facts = replace(
        StripeUnderTest.facts,
        abilities=frozenset(
            {
                *(Ability.REMOTE, Ability.SIGNED_WEBHOOKS, Ability.SIGNED_TIMES),
                *(Ability.FORGETS_GUESTS, Ability.READS_CARDS, Ability.LISTS_CARDS),
                *(Ability.CHECKS_ADDRESSES, Ability.CLOSES_PAGES),
            }
        ),
    )

    def __init__(self, folder: Path) -> None:  # no server is started
        self.clock = SettableClock(datetime.now(UTC))
        self.ids = RandomIds()
        self.keys = (key_of_test_mode(),)

    @override
    def close(self) -> None:
        """Stop nothing."""

    @override
    def adapter(self, webhook_secrets: Sequence[str] = (SECRET,)) -> PaymentProvider:
        keys = StripeKeys(secret_key=key_of_test_mode(), webhook_secrets=tuple(webhook_secrets))
        other = replace(keys, webhook_secrets=(OTHER_SECRET,))
        return StripeProvider({MAIN: keys, OTHER: other}, clock=self.clock, api_base=api_base())

    @override
    def forget_guest(self, merchant_account: MerchantAccount, reference: GuestReference) -> None:
        self.adapter().forget_guest(merchant_account, reference)

    @override
    def evidence(self, page: HostedPage) -> Sequence[Evidence]:
        return ()

    @override
    def event(self, kind: str, request: HostedPageRequest, page: HostedPage) -> bytes:
        is_of_page = kind.startswith("checkout.")
        subject = {
            "id": page.reference if is_of_page else "seti_1",
            "metadata": {"token_id": request.token_id, "attempt": str(request.attempt)},
        }
        return an_event(kind, subject)

    @override
    def misdirect(self, whom: str, request: HostedPageRequest, page: HostedPage) -> WebhookDelivery:
        event = json.loads(self.event("checkout.session.completed", request, page))
        event |= {"livemode": True} if whom == "live mode" else {"account": "acct_1"}
        return self.sign(json.dumps(event).encode(), at=self.clock.now())
