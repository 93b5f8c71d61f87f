"""Mollie's test mode in the contract suite, for `make test-mollie`.

The suite cannot play guests or lose calls there, so it runs fewer tests. Both merchant accounts
of the suite are the merchant account whose key is given.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from typing_extensions import override

from adapters.mollie.provider import API_BASE, MollieKeys, MollieProvider, MollieSettings
from adapters.psp_suite.clock import SettableClock
from adapters.psp_suite.under_test import MAIN, OTHER, SECRET, Ability
from adapters.system import RandomIds
from domain.identifiers import GuestReference, MerchantAccount
from domain.psps.payment_provider import PaymentProvider
from tests.adapters.mollie.under_test import MollieUnderTest

KEY_SETTING: Final = "CARDONFILE_MOLLIE_TEST_KEY"


class MollieInTestMode(MollieUnderTest):
    """Mollie's test mode. Without STAND_IN, the suite skips what only the fake can do."""

    facts = replace(
        MollieUnderTest.facts,
        abilities=frozenset({Ability.REMOTE, Ability.FORGETS_GUESTS, Ability.READS_CARDS}),
    )

    def __init__(self, folder: Path) -> None:  # no server is started
        self.clock = SettableClock(datetime.now(UTC))
        self.ids = RandomIds()
        self._key = os.environ[KEY_SETTING]
        # A live key would make real customers.
        assert self._key.startswith("test_"), f"{KEY_SETTING} is no key of test mode"
        self.keys = (self._key,)

    @override
    def close(self) -> None:
        """Stop nothing."""

    @override
    def adapter(self, webhook_secrets: Sequence[str] = (SECRET,)) -> PaymentProvider:
        keys = MollieKeys(api_key=self._key, currency="EUR")
        settings = MollieSettings(
            accounts={MAIN: keys, OTHER: keys},
            # Mollie refuses an address that it cannot reach; the adapter leaves this one out.
            webhooks_url="http://127.0.0.1/webhooks/mollie",
            api_base=os.environ.get("CARDONFILE_MOLLIE_API_BASE") or API_BASE,
        )
        return MollieProvider(settings, clock=self.clock)

    @override
    def forget_guest(self, merchant_account: MerchantAccount, reference: GuestReference) -> None:
        self.adapter().forget_guest(merchant_account, reference)
