"""The plug-ins of real PSPs with the limits of the service. The test suites use other limits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from adapters import outbound_http
from adapters.mollie import plugin as mollie
from adapters.psp.plugin import AnyPspPlugin, Surroundings
from adapters.psp_suite.clock import SettableClock
from adapters.psp_suite.ids import SeededIds
from adapters.stripe import plugin as stripe
from domain.identifiers import DEFAULT_MERCHANT_ACCOUNT, CardToken, GuestReference
from domain.psps.payment_provider import ProviderUnavailable

NOBODY_LISTENS: Final = "http://127.0.0.1:9"
MOLLIE: Final = {
    "CARDONFILE_MOLLIE_API_KEY": "test_live",
    "CARDONFILE_MOLLIE_CURRENCY": "EUR",
    "CARDONFILE_MOLLIE_API_BASE": NOBODY_LISTENS,
}
STRIPE: Final = {
    "CARDONFILE_STRIPE_SECRET_KEY": "sk_test_live_1",
    "CARDONFILE_STRIPE_WEBHOOK_SECRETS": "whsec_1",
    "CARDONFILE_STRIPE_API_BASE": NOBODY_LISTENS,
}


of_each_psp = pytest.mark.parametrize(
    ("plugin", "environment"), [(mollie.PLUGIN, MOLLIE), (stripe.PLUGIN, STRIPE)]
)


# Any: the settings are of a type of the plugin.
def read(plugin: AnyPspPlugin, environment: Mapping[str, str]) -> Any:
    here = Surroundings(
        environment=environment,
        public_base_url="https://cards.example",
        database_file=Path("cardonfile.db"),
    )
    return plugin.read(here)


@of_each_psp
def test_every_call_to_a_real_psp_has_a_deadline_below_five_seconds(
    plugin: AnyPspPlugin, environment: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    deadlines = []

    class Noted(outbound_http.Deadline):
        def __init__(self, seconds: float) -> None:
            deadlines.append(seconds)
            super().__init__(seconds)

    monkeypatch.setattr(outbound_http, "Deadline", Noted)
    provider = plugin.make(read(plugin, environment), SettableClock(), SeededIds())
    with pytest.raises(ProviderUnavailable):
        provider.discard(DEFAULT_MERCHANT_ACCOUNT, GuestReference("cst_1"), CardToken("mdt_1"))

    assert deadlines
    assert max(deadlines) < 5
