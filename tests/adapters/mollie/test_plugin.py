"""The settings of Mollie, and what `doctor` finds there."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from adapters.mollie.plugin import PLUGIN
from adapters.mollie.provider import MollieSettings
from adapters.psp.findings import Diagnosis
from adapters.psp.plugin import Surroundings
from adapters.psp.settings import PspSettingsError
from adapters.psp_suite.clock import SettableClock
from adapters.psp_suite.samples import MERCHANT_ACCOUNT as MAIN
from adapters.psp_suite.stand_in import json_response, respond_with
from domain.identifiers import DEFAULT_MERCHANT_ACCOUNT
from tests.adapters.mollie.conftest import Shop
from tests.fake_mollie.mollie import an_error

URL: Final = "https://cards.example/webhooks/mollie"
KEY: Final = "CARDONFILE_MOLLIE_API_KEY"
CURRENCY: Final = "CARDONFILE_MOLLIE_CURRENCY"
API_BASE: Final = "CARDONFILE_MOLLIE_API_BASE"
GIVEN: Final = {KEY: "test_abc", CURRENCY: "eur"}


def read(**changes: str) -> object:
    here = Surroundings(
        environment={**GIVEN, **changes},
        public_base_url="https://cards.example",
        database_file=Path("cardonfile.db"),
    )
    return PLUGIN.read(here)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (KEY, "test_"),
        (KEY, "sk_test_abc"),
        (CURRENCY, "euro"),
        (API_BASE, "http://mollie.example"),
    ],
)
def test_the_error_for_an_invalid_mollie_setting_contains_the_name_of_the_setting(
    name: str, value: str
) -> None:
    with pytest.raises(PspSettingsError, match=name) as refused:
        read(**{name: value})

    assert "abc" not in str(refused.value)


def test_the_mollie_settings_of_each_merchant_account_are_read() -> None:
    settings = read()

    assert isinstance(settings, MollieSettings)
    assert URL in repr(settings)
    assert settings.accounts[DEFAULT_MERCHANT_ACCOUNT].currency == "EUR"
    # MAIN has no keys.
    assert [PLUGIN.is_live(settings, each) for each in (DEFAULT_MERCHANT_ACCOUNT, MAIN)] == [
        False,
        None,
    ]


def found_by(shop: Shop, about: str, url: str = URL) -> tuple[Diagnosis, str]:
    """Return what the check finds about this subject."""
    assert PLUGIN.check is not None
    ((diagnosis, _, text),) = (
        each for each in PLUGIN.check(shop.provider, MAIN, url) if each.about == about
    )
    return diagnosis, text


def test_the_mollie_check_passes_if_cards_are_enabled_for_the_merchant(shop: Shop) -> None:
    assert PLUGIN.check is not None
    found = PLUGIN.check(shop.provider, MAIN, URL)

    assert {each.diagnosis for each in found} == {Diagnosis.OK}
    assert [each.about for each in found] == ["keys", "cards", "webhooks", "clock"]


def test_the_mollie_check_reports_that_cards_are_not_enabled(shop: Shop) -> None:
    shop.main.methods = ["ideal"]

    assert found_by(shop, "cards")[0] is Diagnosis.PROBLEM


def test_the_mollie_check_says_that_webhooks_to_a_loopback_address_cannot_be_tested(
    shop: Shop,
) -> None:
    found = found_by(shop, "webhooks", "http://127.0.0.1:8000/webhooks/mollie")

    assert found[0] is Diagnosis.UNKNOWN


@pytest.mark.parametrize(
    ("status", "said"), [(401, "does not accept the API key"), (503, "no usable response (503)")]
)
def test_the_mollie_check_distinguishes_refused_keys_from_an_outage_of_mollie(
    shop: Shop, status: int, said: str
) -> None:
    shop.mollie.server.have(respond_with(json_response(an_error(status), status)))

    for about in ("keys", "cards"):
        diagnosis, text = found_by(shop, about)
        assert diagnosis is Diagnosis.PROBLEM
        assert said in text


def test_the_mollie_check_compares_the_clock_with_the_clock_of_mollie(shop: Shop) -> None:
    shop.mollie.clock = SettableClock(shop.clock.now() + timedelta(minutes=3))

    assert "180 seconds behind the clock of Mollie" in found_by(shop, "clock")[1]
