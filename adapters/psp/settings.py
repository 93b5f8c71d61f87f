"""Settings of a PSP, above all those that it has once for each of its merchant accounts."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

from domain.identifiers import DEFAULT_MERCHANT_ACCOUNT, MerchantAccount
from domain.ports import FailureDetails, ProviderUnavailable

_ACCOUNT = re.compile(r"[A-Z0-9_]{1,64}")


class SettingsError(ValueError):
    """A setting that cannot be used; the text says which one, and what is expected.

    The text is shown to the operator. It never holds a secret.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountSettings:
    """The names of the settings that each merchant account has at a PSP.

        ACME = AccountSettings(psp="acme", required=("API_KEY", "WEBHOOK_SECRETS"))

    `CARDONFILE_ACME_API_KEY` belongs to the account `default`, `CARDONFILE_ACME_SPAIN_API_KEY` to
    the account `spain`. An account is called by lower-case letters, digits and underscores, so that
    no two share a setting.

    No two settings of those in `distinct` may hold the same, in one account or in two: cards and
    webhooks could not be told apart. They may hold several values, with commas between.
    """

    psp: str
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    distinct: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = (*self.required, *self.optional)
        if any(one.endswith(f"_{other}") for one in names for other in names):
            raise ValueError("one setting's name ends like another's, so accounts cannot be told")

    @property
    def prefix(self) -> str:
        """What all of them begin with."""
        return f"CARDONFILE_{self.psp.upper()}_"

    def name(self, what: str, account: MerchantAccount = DEFAULT_MERCHANT_ACCOUNT) -> str:
        """Name the setting of an account, such as its `API_KEY`."""
        infix = "" if account == DEFAULT_MERCHANT_ACCOUNT else f"{account.upper()}_"
        return f"{self.prefix}{infix}{what}"

    def names(self, given: Iterable[str] = ()) -> frozenset[str]:
        """Name all settings of the default account, and of the accounts that `given` names."""
        prefixes = {self.prefix} | {
            match[0].removesuffix(match["what"]) for match in self._matches(given)
        }
        return frozenset(
            prefix + what for prefix in prefixes for what in (*self.required, *self.optional)
        )

    def read(self, environment: Mapping[str, str]) -> Mapping[MerchantAccount, Mapping[str, str]]:
        """Give the settings of every account that has one, by what they are.

        `environment` holds the variables that are set and not empty. Raises SettingsError when an
        account lacks a required one, or cannot be called so, and when two hold the same.
        """
        named = sorted({self._account(match) for match in self._matches(environment)})
        accounts = {account: self._read_account(environment, account) for account in named}
        seen: dict[str, str] = {}
        for account, given in accounts.items():
            for what in self.distinct:
                name = self.name(what, account)
                for value in set(values_of(given.get(what, ""))):
                    if value in seen:
                        raise SettingsError(f"{seen[value]} and {name} hold the same")
                    seen[value] = name
        return accounts

    def how_to_set(self, account: MerchantAccount) -> str:
        """Tell an operator which settings an account needs."""
        if account != account.lower() or not _ACCOUNT.fullmatch(account.upper()):
            named = account.lower().replace("-", "_")
            return (
                "name the account by lower-case letters, digits and underscores, so that settings "
                f"can be named after it; such as {named}"
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
            raise SettingsError(
                f"{match[0]!a}: an account is named by capital letters, digits and underscores here"
            )
        if account.lower() == DEFAULT_MERCHANT_ACCOUNT:
            raise SettingsError(f"{match[0]}: the default account's is {self.name(match['what'])}")
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
                raise SettingsError(f"{self.name(what, account)} is blank")
        for what in self.required:
            if what not in given:
                other = self.name(next(iter(given)), account)
                raise SettingsError(
                    f"{self.name(what, account)} is missing; {other} does not go without it"
                )
        return given


def values_of(setting: str) -> tuple[str, ...]:
    """Give the values of a setting that may hold several, with commas and blanks between."""
    return tuple(value for each in setting.split(",") if (value := each.strip()))


Keys = TypeVar("Keys")


def keys_of(accounts: Mapping[MerchantAccount, Keys], account: MerchantAccount) -> Keys:
    """Give the keys of a merchant account.

    Raises ProviderUnavailable when it has none: it may have some again, and work for it waits.
    """
    if account not in accounts:
        raise ProviderUnavailable(
            "no keys are set for this merchant account", details=FailureDetails(error="NoKeys")
        )
    return accounts[account]


def is_loopback(url: str) -> bool:
    """Tell whether an address leads to this machine alone (RFC 6761 for names)."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def is_https_or_loopback(url: str) -> bool:
    """Tell whether nobody on the way can read what is sent to an address: https, or http to here.

    A stand-in for the PSP may listen on loopback. An address with a query, a name and password, or
    a port that is none is neither.
    """
    try:
        parts = urlsplit(url)
        is_plain = not (parts.query or parts.fragment or "@" in parts.netloc) and parts.port != 0
    except ValueError:
        return False
    if not is_plain or not parts.hostname or not url.isprintable() or " " in url:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(url))


def require_https(url: str) -> None:
    """Raise SettingsError for an address that is neither https nor http on loopback."""
    if not is_https_or_loopback(url):
        raise SettingsError("the address of the PSP must be https, or http on loopback")
