"""Read the settings of a PSP. Each merchant account has its own settings."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

from domain.identifiers import DEFAULT_MERCHANT_ACCOUNT, MerchantAccount
from domain.psps.payment_provider import FailureDetails, ProviderUnavailable

_ACCOUNT = re.compile(r"[A-Z0-9_]{1,64}")


class PspSettingsError(ValueError):
    """A setting of a PSP is not usable.

    The text is for operators. It contains the name of the setting and the expected value, and never
    a secret.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountSettings:
    """The names of the settings of each merchant account at a PSP.

        ACME = AccountSettings(psp="acme", required=("API_KEY", "WEBHOOK_SECRETS"))

    `CARDONFILE_ACME_API_KEY` belongs to the account `default`, and `CARDONFILE_ACME_SPAIN_API_KEY`
    to the account `spain`. The names of accounts consist of lower-case letters, digits and
    underscores. If they could contain capital letters too, the settings of two accounts could have
    the same name.

    The settings in `distinct` must differ between all accounts. If they did not, cards and webhooks
    could be assigned to the wrong account. Such a setting may contain several values, separated by
    commas.

    The settings in `addresses` are https addresses, or http addresses on loopback.
    """

    psp: str
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    distinct: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = (*self.required, *self.optional)
        if any(one.endswith(f"_{other}") for one in names for other in names):
            raise ValueError(
                "the name of one setting ends with the name of another, so accounts would be ambiguous"
            )

    @property
    def prefix(self) -> str:
        """The prefix that the names of all settings have."""
        return f"CARDONFILE_{self.psp.upper()}_"

    def name(self, what: str, account: MerchantAccount = DEFAULT_MERCHANT_ACCOUNT) -> str:
        """Return the full name of an account's setting.

        `what` is its last part, such as `API_KEY`.
        """
        infix = "" if account == DEFAULT_MERCHANT_ACCOUNT else f"{account.upper()}_"
        return f"{self.prefix}{infix}{what}"

    def names(self, given: Iterable[str] = ()) -> frozenset[str]:
        """Return the full names of all settings of `default` and of the accounts named in `given`.

        `given` contains names of environment variables. If one of them is a setting of an account,
        the result includes all settings of this account.
        """
        prefixes = {self.prefix} | {
            match[0].removesuffix(match["what"]) for match in self._matches(given)
        }
        return frozenset(
            prefix + what for prefix in prefixes for what in (*self.required, *self.optional)
        )

    def read(self, environment: Mapping[str, str]) -> Mapping[MerchantAccount, Mapping[str, str]]:
        """Return the settings of each account that has settings, as `{"API_KEY": …}`.

        `environment` contains the variables that are set and not empty. Raises PspSettingsError in
        these cases:

        - A required setting is missing.
        - An account has an invalid name.
        - Two `distinct` settings have a value in common.
        - A setting contains characters other than printable ASCII, so it cannot be sent.
        - A setting in `addresses` is neither an https address nor an http address on loopback.
        """
        named = sorted({self._account(match) for match in self._matches(environment)})
        accounts = {account: self._read_account(environment, account) for account in named}
        seen: dict[str, str] = {}
        for account, given in accounts.items():
            for what in self.distinct:
                name = self.name(what, account)
                for value in set(values_of(given.get(what, ""))):
                    if value in seen:
                        raise PspSettingsError(f"{seen[value]} and {name} have the same value")
                    seen[value] = name
        return accounts

    def how_to_set(self, account: MerchantAccount) -> str:
        """Return the end of a sentence that tells an operator which settings to set for an account."""
        if account != account.lower() or not _ACCOUNT.fullmatch(account.upper()):
            named = account.lower().replace("-", "_")
            return (
                "give the account a name of lower-case letters, digits and underscores, such as "
                f"{named}, because the names of its settings contain it"
            )
        return f"set {' and '.join(self.name(what, account) for what in self.required)}"

    def _matches(self, names: Iterable[str]) -> Iterable[re.Match[str]]:
        whats = "|".join((*self.required, *self.optional))
        pattern = re.compile(rf"{self.prefix}(?:(?P<account>.+)_)?(?P<what>{whats})")
        return (match for name in names if (match := pattern.fullmatch(name)))

    def _account(self, match: re.Match[str]) -> MerchantAccount:
        account = match["account"]
        if account is None:
            return DEFAULT_MERCHANT_ACCOUNT
        if not _ACCOUNT.fullmatch(account):
            raise PspSettingsError(
                f"{match[0]!a}: in a setting, write the account's name with capital letters, digits "
                "and underscores"
            )
        if account.lower() == DEFAULT_MERCHANT_ACCOUNT:
            raise PspSettingsError(
                f"{match[0]}: for the default account, set {self.name(match['what'])}"
            )
        return MerchantAccount(account.lower())

    def _read_account(
        self, environment: Mapping[str, str], account: MerchantAccount
    ) -> Mapping[str, str]:
        given = {
            what: environment[name]
            for what in (*self.required, *self.optional)
            if (name := self.name(what, account)) in environment
        }
        for what, value in given.items():
            if not value.strip():
                raise PspSettingsError(f"{self.name(what, account)} is blank")
            if not (value.isascii() and value.isprintable()):
                raise PspSettingsError(
                    f"{self.name(what, account)} contains a line break or another character that is "
                    "not printable ASCII"
                )
            if what in self.addresses:
                require_https(value, self.name(what, account))
        for what in self.required:
            if what not in given:
                other = self.name(next(iter(given)), account)
                raise PspSettingsError(
                    f"{self.name(what, account)} is missing; {other} also needs this setting"
                )
        return given


def values_of(setting: str) -> tuple[str, ...]:
    """Return the values of a comma-separated setting."""
    return tuple(value for each in setting.split(",") if (value := each.strip()))


Keys = TypeVar("Keys")


def keys_of(accounts: Mapping[MerchantAccount, Keys], account: MerchantAccount) -> Keys:
    """Return the keys of a merchant account.

    Raises ProviderUnavailable if the account has no keys. Work at the account then waits, because
    an operator may set its keys later.
    """
    if account not in accounts:
        raise ProviderUnavailable(
            "no keys are set for this merchant account", details=FailureDetails(error="NoKeys")
        )
    return accounts[account]


def is_loopback(url: str) -> bool:
    """Return whether the host of a URL is this machine.

    Names are recognized according to RFC 6761.
    """
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def is_https_or_loopback(url: str) -> bool:
    """Return whether a URL is https, or http on loopback, where the stand-in of a PSP may listen.

    Return False for a URL with a query, a fragment, a user name or an invalid port.
    """
    try:
        parts = urlsplit(url)
        is_plain = not (parts.query or parts.fragment or "@" in parts.netloc) and parts.port != 0
    except ValueError:
        return False
    if not is_plain or not parts.hostname or not url.isprintable() or " " in url:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(url))


def require_https(url: str, setting: str) -> None:
    """Raise PspSettingsError for `setting` unless `is_https_or_loopback` accepts its value `url`."""
    if not is_https_or_loopback(url):
        raise PspSettingsError(f"{setting} must be an https address, or http on loopback")
