"""PSPs that other distributions provide through entry points."""

from __future__ import annotations

import re
import sys

import pytest

from domain.centers.configure_payments import find_missing
from domain.identifiers import (
    DEFAULT_MERCHANT_ACCOUNT,
    MerchantAccount,
    ProviderName,
    PspAccount,
)
from entrypoints.container import build
from entrypoints.psps import installed_names, load_psps
from entrypoints.settings import Settings, unknown_settings
from entrypoints.settings_error import SettingsError
from tests.entrypoints.conftest import PLUGIN, Site

ACME = {"CARDONFILE_PSPS": "acme", "CARDONFILE_ACME_API_KEY": "a secret"}


def test_an_installed_psp_plugin_is_imported_only_if_it_is_configured(site: Site) -> None:
    site.install("cardonfile-acme")

    assert list(load_psps(None)) == ["fake", "mollie", "stripe"]
    assert "cardonfile_acme" not in sys.modules
    assert installed_names() == ["acme", "fake", "mollie", "stripe"]
    assert list(load_psps(" acme ,stripe,")) == ["acme", "fake", "mollie", "stripe"]


def test_the_settings_of_a_psp_plugin_are_read_from_the_environment(site: Site) -> None:
    site.install("cardonfile-acme")
    environment = {"CARDONFILE_PSPS": "acme", "CARDONFILE_ACME_SPAIN_API_KEY": "key of spain"}

    psp = Settings.read(environment).psps[ProviderName("acme")]

    assert psp.settings == {"spain": {"API_KEY": "key of spain"}}
    assert "key of spain" not in repr(psp)
    assert unknown_settings(environment) == []
    assert unknown_settings({"CARDONFILE_PSPS": "acme", "CARDONFILE_ACME_API_KEX": "x"}) == [
        "CARDONFILE_ACME_API_KEX is not a setting; did you mean CARDONFILE_ACME_API_KEY"
    ]
    assert unknown_settings({"CARDONFILE_ACME_API_KEY": "x"}) == [
        "CARDONFILE_ACME_API_KEY is a setting of acme, which is not enabled: add it to CARDONFILE_PSPS"
    ]


@pytest.mark.parametrize(
    ("told", "is_live", "currency"),
    [
        ("True", True, None),
        ("False", False, None),
        ("None", None, None),
        ("'euro'", None, None),
        ("'chf'", None, "CHF"),
        ("978", None, None),
        ("1/0", None, None),
    ],
)
def test_an_invalid_value_from_the_is_live_or_currency_hook_of_a_psp_plugin_is_ignored(
    site: Site, told: str, is_live: bool | None, currency: str | None
) -> None:
    hooks = "".join(f"    {hook}=lambda *_: {told},\n" for hook in ("is_live", "currency"))
    site.install("cardonfile-acme", f"{PLUGIN[:-2]}{hooks})\n")

    psp = Settings.read(ACME).psps[ProviderName("acme")]

    assert psp.is_live(DEFAULT_MERCHANT_ACCOUNT) is is_live
    assert psp.currency(DEFAULT_MERCHANT_ACCOUNT) == currency


@pytest.mark.parametrize("psp", ["stripe", "mollie"])
def test_a_psp_plugin_returns_the_currency_that_is_set_for_a_merchant_account(psp: str) -> None:
    environment = {
        "CARDONFILE_STRIPE_SECRET_KEY": "sk_test_1",
        "CARDONFILE_STRIPE_WEBHOOK_SECRETS": "whsec_1",
        "CARDONFILE_STRIPE_CURRENCY": "chf",
        "CARDONFILE_MOLLIE_API_KEY": "test_1",
        "CARDONFILE_MOLLIE_CURRENCY": "chf",
    }

    read = Settings.read(environment).psps[ProviderName(psp)]

    assert read.currency(DEFAULT_MERCHANT_ACCOUNT) == "CHF"
    assert read.currency(MerchantAccount("without_keys")) is None
    assert Settings.read({}).psps[ProviderName(psp)].currency(DEFAULT_MERCHANT_ACCOUNT) is None


def test_the_fake_psp_never_counts_as_live() -> None:
    for address in ("http://127.0.0.1:8000", "https://cards.example"):
        psps = Settings.read({"CARDONFILE_PUBLIC_BASE_URL": address}).psps
        assert psps[ProviderName("fake")].is_live(DEFAULT_MERCHANT_ACCOUNT) is False
        # No keys for Stripe are set here.
        assert psps[ProviderName("stripe")].is_live(DEFAULT_MERCHANT_ACCOUNT) is None


def test_the_refusal_of_an_unknown_psp_names_the_installed_psps() -> None:
    with pytest.raises(SettingsError, match=r"no PSP 'amce' is .* ones are fake, mollie, stripe$"):
        load_psps("amce")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            "import nothing_of_the_kind",
            "cannot be loaded: ModuleNotFoundError: No module named 'nothing_of_the_kind'",
        ),
        ("from domain import x", "cannot be loaded: ImportError: cannot import name 'x' from"),
        (PLUGIN.replace('name="acme",', ""), "cannot be loaded: TypeError: PspPlugin.__init__()"),
        ("raise TypeError('a\\nb' * 999)", r"cannot be loaded: TypeError: a\nba\nb"),
        ("raise ValueError('sk_live_secret')", "cannot be loaded: ValueError"),
        ("raise SystemExit", "cannot be loaded: SystemExit"),
        ("PLUGIN = object()", "is not a PspPlugin: cardonfile_acme:PLUGIN"),
        (PLUGIN.replace('name="acme"', 'name="other"'), "calls itself 'other'"),
    ],
    ids=["module", "import", "argument", "text", "secret", "exit", "kind", "name"],
)
def test_a_broken_psp_plugin_is_refused_in_one_sentence(site: Site, code: str, said: str) -> None:
    site.install("cardonfile-acme", code)

    with pytest.raises(SettingsError) as refused:
        load_psps("acme")

    assert str(refused.value).startswith(f"CARDONFILE_PSPS: the PSP acme of cardonfile-acme {said}")
    assert len(str(refused.value)) < 500
    assert str(refused.value).isprintable()
    assert "sk_live_secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import domain.ports", "No module named 'domain.ports'; if it is for another interface, "),
        (PLUGIN.replace("interface=3,", ""), "'interface'; if it is for another interface, "),
        (PLUGIN.replace("interface=3", "interface=4"), "4, but this cardonfile has 3: "),
    ],
    ids=["earlier module", "not stated", "later"],
)
def test_the_refusal_of_a_psp_plugin_for_another_interface_version_states_the_remedy(
    site: Site, code: str, why: str
) -> None:
    site.install("cardonfile-acme", code)

    advice = f"{why}install a release of cardonfile-acme for interface 3"
    with pytest.raises(SettingsError, match=f"{re.escape(advice)}$"):
        load_psps("acme")


@pytest.mark.parametrize(
    ("hook", "what"),
    [
        ("read", "read its settings"),
        ("accounts", "list its accounts"),
        ("make", "be used with its settings"),
    ],
)
def test_the_message_of_an_exception_in_a_psp_plugin_is_not_shown(
    site: Site, hook: str, what: str
) -> None:
    site.install(
        "cardonfile-acme",
        f"{PLUGIN}\ndef fail(*given): raise ValueError('a secret', *given)\n"
        f"import dataclasses\nPLUGIN = dataclasses.replace(PLUGIN, {hook}=fail)",
    )

    with pytest.raises(SettingsError, match=rf"^the PSP acme cannot {what} \(ValueError\)$"):
        use(Settings.read(ACME))


def use(settings: Settings) -> None:
    find_missing(settings.psps, PspAccount(ProviderName("acme"), DEFAULT_MERCHANT_ACCOUNT))
    build(settings).psp_adapters()


def test_psp_plugins_with_overlapping_setting_names_are_refused(site: Site) -> None:
    site.install("acme", PLUGIN.replace('"acme"', '"database"'), psp="database")
    site.install("acme-one")
    site.install("acme-two", PLUGIN.replace('"acme"', '"acme_spain"'), psp="acme_spain")

    with pytest.raises(SettingsError, match="a PSP cannot be called database"):
        Settings.read({"CARDONFILE_PSPS": "database"})
    assert list(load_psps("acme_spain")) == ["acme_spain", "fake", "mollie", "stripe"]
    with pytest.raises(
        SettingsError, match="same names as those of the account spain of the PSP acme"
    ):
        load_psps("acme,acme_spain")


@pytest.mark.parametrize(("psp", "named"), [("acme", "acme"), ("stripe", None)])
def test_a_psp_that_is_installed_twice_is_refused(site: Site, psp: str, named: str | None) -> None:
    site.install("acme-one", psp=psp)
    site.install("acme-two", psp=psp)

    with pytest.raises(SettingsError, match=f"the PSP {psp} is provided by acme-one and acme-two"):
        load_psps(named)
