"""The plugin for Mollie, which reads the keys of the merchant accounts at Mollie."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from adapters.mollie.payloads import LOCALES
from adapters.mollie.provider import API_BASE, MollieKeys, MollieProvider, MollieSettings
from adapters.psp.plugin import PspPlugin, Surroundings
from adapters.psp.settings import AccountSettings, PspSettingsError, require_https
from domain.identifiers import MerchantAccount, ProviderName
from domain.psps.capabilities import Capabilities

NAME: Final = ProviderName("mollie")
KEY: Final = "API_KEY"
CURRENCY: Final = "CURRENCY"
ACCOUNT_SETTINGS: Final = AccountSettings(psp=NAME, required=(KEY, CURRENCY), distinct=(KEY,))
API_BASE_SETTING: Final = "CARDONFILE_MOLLIE_API_BASE"
_FORMS: Final = {
    KEY: (re.compile(r"(?:test|live)_[A-Za-z0-9]+"), "an API key (test_…, live_…)"),
    CURRENCY: (re.compile(r"[A-Za-z]{3}"), "a currency of three letters, such as EUR"),
}


def read(here: Surroundings) -> MollieSettings | None:
    """Read the keys of every merchant account, or return None if no key is set.

    Raises PspSettingsError, whose text does not contain a key.
    """
    given = ACCOUNT_SETTINGS.read(here.environment)
    accounts = {account: _keys(account, own) for account, own in given.items()}
    api_base = here.environment.get(API_BASE_SETTING, API_BASE)
    require_https(api_base, API_BASE_SETTING)
    settings = MollieSettings(
        accounts=accounts,
        webhooks_url=f"{here.public_base_url}/webhooks/{NAME}",
        api_base=api_base,
    )
    return settings if accounts else None


def _keys(account: MerchantAccount, given: Mapping[str, str]) -> MollieKeys:
    for what, (form, expected) in _FORMS.items():
        if not form.fullmatch(given[what]):
            raise PspSettingsError(f"{ACCOUNT_SETTINGS.name(what, account)} must be {expected}")
    return MollieKeys(api_key=given[KEY], currency=given[CURRENCY].upper())


def _live_setting(settings: MollieSettings) -> str | None:
    live = (account for account, keys in settings.accounts.items() if keys.mode == "live")
    return next((ACCOUNT_SETTINGS.name(KEY, account) for account in live), None)


PLUGIN: Final = PspPlugin(
    interface=3,
    name=NAME,
    capabilities=Capabilities(
        shows_consent=False,
        checks_addresses=False,
        closes_pages=False,
        forgets_guests=True,
        reads_cards=True,
        tells_funding=True,
        public_name="Mollie",
        page_host="www.mollie.com",
        locales=frozenset(LOCALES),
    ),
    account_settings=ACCOUNT_SETTINGS,
    settings=(API_BASE_SETTING,),
    read=read,
    accounts=lambda settings: settings.accounts.keys(),
    how_to_set_up=ACCOUNT_SETTINGS.how_to_set,
    make=lambda settings, clock, _: MollieProvider(settings, clock=clock),
    live_setting=_live_setting,
    is_live=lambda settings, account: (
        settings.accounts[account].mode == "live" if account in settings.accounts else None
    ),
    currency=lambda settings, account: (
        settings.accounts[account].currency if account in settings.accounts else None
    ),
    check=lambda provider, account, webhooks_url: provider.check(account, webhooks_url),
)
