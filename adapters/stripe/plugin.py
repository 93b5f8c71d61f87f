"""The plugin for Stripe, which reads the keys of the merchant accounts at Stripe."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from adapters.psp.plugin import PspPlugin, Surroundings
from adapters.psp.settings import AccountSettings, PspSettingsError, is_https_or_loopback
from adapters.stripe.keys import API_BASE, StripeKeys
from adapters.stripe.page_texts import LOCALES, MAX_CONSENT_LENGTH, consent_length
from domain.identifiers import MerchantAccount, ProviderName
from domain.outside import Clock, Ids
from domain.psps.capabilities import Capabilities
from domain.redirects import parse_allowed_origin

if TYPE_CHECKING:
    from adapters.stripe.provider import StripeProvider

NAME: Final = ProviderName("stripe")
KEY: Final = "SECRET_KEY"
SECRETS: Final = "WEBHOOK_SECRETS"
CURRENCY: Final = "CURRENCY"
ACCOUNT_SETTINGS: Final = AccountSettings(
    psp=NAME, required=(KEY, SECRETS), optional=(CURRENCY,), distinct=(KEY, SECRETS)
)
API_BASE_SETTING: Final = "CARDONFILE_STRIPE_API_BASE"
SDK_LOG: Final = "STRIPE_LOG"
"""The environment variable that makes the SDK print what it sends and receives. The SDK reads it
once, at import.
"""
_CURRENCY = re.compile(r"[A-Za-z]{3}")
_SECRET = re.compile(r"whsec_[!-~]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class StripeSettings:
    """The keys of each merchant account, and the address of Stripe's API."""

    accounts: Mapping[MerchantAccount, StripeKeys]
    api_base: str = API_BASE


def read(here: Surroundings) -> StripeSettings | None:
    """Read the keys of every merchant account, or return None if no key is set.

    Raises PspSettingsError, whose text does not contain a key.
    """
    given = ACCOUNT_SETTINGS.read(here.environment)
    accounts = {account: _keys(account, own) for account, own in given.items()}
    api_base = _api_base(here.environment.get(API_BASE_SETTING))
    return StripeSettings(accounts=accounts, api_base=api_base) if accounts else None


def _keys(account: MerchantAccount, given: Mapping[str, str]) -> StripeKeys:
    secrets = tuple(secret.strip() for secret in given[SECRETS].split(","))
    if not all(map(_SECRET.fullmatch, secrets)):
        raise PspSettingsError(
            f"{ACCOUNT_SETTINGS.name(SECRETS, account)} must be a webhook secret (whsec_…), or "
            "several secrets separated by commas"
        )
    currency = given.get(CURRENCY)
    if currency is not None and not _CURRENCY.fullmatch(currency):
        raise PspSettingsError(
            f"{ACCOUNT_SETTINGS.name(CURRENCY, account)} must be a currency of three letters, such "
            "as eur"
        )
    try:
        return StripeKeys(
            secret_key=given[KEY],
            webhook_secrets=secrets,
            currency=currency and currency.lower(),
        )
    except ValueError:
        raise PspSettingsError(
            f"{ACCOUNT_SETTINGS.name(KEY, account)} must be a secret key (sk_test_…, sk_live_…) or "
            "a restricted key (rk_…), not a publishable key (pk_…): Stripe's dashboard shows the keys "
            "under Developers, API keys"
        ) from None


def _api_base(url: str | None) -> str:
    if url is None:
        return API_BASE
    try:
        origin = parse_allowed_origin(url)
    except ValueError:
        origin = ""
    if not is_https_or_loopback(origin):
        raise PspSettingsError(
            f"{API_BASE_SETTING} must be an https address, or http on loopback, without a path"
        )
    return origin


def make(settings: StripeSettings, clock: Clock, _: Ids) -> StripeProvider:
    """Return the adapter. Unset STRIPE_LOG in this process, so that the SDK does not print logs.

    Raises PspSettingsError if the SDK is not installed, or if it was imported while STRIPE_LOG was
    set.
    """
    if os.environ.get(SDK_LOG) and "stripe" in sys.modules:
        raise PspSettingsError(f"unset {SDK_LOG}: Stripe's SDK would print guests' details")
    os.environ.pop(SDK_LOG, None)
    try:
        # The SDK is an optional dependency, and slow to import.
        from adapters.stripe.provider import StripeProvider
    except ModuleNotFoundError as missing:
        if missing.name != "stripe":
            raise
        raise PspSettingsError(
            "Stripe keys are set, but Stripe's SDK is not installed: install the extra `stripe`"
        ) from None
    return StripeProvider(settings.accounts, clock=clock, api_base=settings.api_base)


def _live_setting(settings: StripeSettings) -> str | None:
    for account, keys in settings.accounts.items():
        if keys.is_live:
            return ACCOUNT_SETTINGS.name(KEY, account)
    return None


PLUGIN: Final = PspPlugin(
    interface=3,
    name=NAME,
    capabilities=Capabilities(
        max_consent_length=MAX_CONSENT_LENGTH,
        forgets_guests=True,
        reads_cards=True,
        lists_cards=True,
        tells_funding=True,
        requires_authentication=True,
        public_name="Stripe",
        page_host="checkout.stripe.com",
        locales=LOCALES,
        consent_length=consent_length,
    ),
    account_settings=ACCOUNT_SETTINGS,
    settings=(API_BASE_SETTING,),
    read=read,
    accounts=lambda settings: settings.accounts.keys(),
    how_to_set_up=ACCOUNT_SETTINGS.how_to_set,
    make=make,
    live_setting=_live_setting,
    is_live=lambda settings, account: (
        settings.accounts[account].is_live if account in settings.accounts else None
    ),
    currency=lambda settings, account: (
        settings.accounts[account].currency if account in settings.accounts else None
    ),
    check=lambda provider, account, webhooks_url: provider.check(account, webhooks_url),
)
