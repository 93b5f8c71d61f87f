"""The settings of an installation, read once from the environment."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from typing_extensions import override

from adapters.stripe.keys import API_BASE, DEFAULT_ACCOUNT, StripeKeys
from domain.identifiers import MerchantAccount
from domain.redirects import parse_allowed_origin

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8000
DEFAULT_DATABASE_URL: Final = "sqlite:///cardonfile.db"

_CONNECTIONS = re.compile(r"[1-9][0-9]{0,2}")
_STRIPE_KEY = "CARDONFILE_STRIPE_SECRET_KEY"
_STRIPE_SECRETS = "CARDONFILE_STRIPE_WEBHOOK_SECRETS"
_STRIPE_PREFIX = _STRIPE_KEY.removesuffix("SECRET_KEY")
_STRIPE_NAME = re.compile(
    _STRIPE_PREFIX + r"(?:(?P<account>.+)_)?(?P<what>SECRET_KEY|WEBHOOK_SECRETS)"
)
_STRIPE_ACCOUNT = re.compile(r"[A-Z0-9_]{1,64}")
_STRIPE_SECRET = re.compile(r"whsec_[!-~]+")

_LIMIT = re.compile(r"[1-9][0-9]{0,8}/(?:second|minute|hour|day)")
_REDIS = re.compile(r"rediss?://[^\s/?#]+(?:/[0-9]*)?")
WILDCARD_HOSTS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - nothing is bound here


HOW_TO_ALLOW_FAKE_PSP: Final = (
    "set CARDONFILE_PUBLIC_BASE_URL to a loopback address, or CARDONFILE_ALLOW_FAKE_PSP=1 if you "
    "mean it"
)

HOW_TO_SET_UP_STRIPE: Final = (
    f"set {_STRIPE_KEY} and {_STRIPE_SECRETS}, or those of a named account"
)


class SettingsError(Exception):
    """A setting that cannot be used; the text says which one, and what is expected."""


class LogFormat(StrEnum):
    """How log lines are written."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class PostgresqlDatabase:
    """A PostgreSQL database by its address, which may hold a password and is shown nowhere."""

    url: str = field(repr=False)

    @override
    def __str__(self) -> str:
        """Name it as people do."""
        return "in CARDONFILE_DATABASE_URL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that an operator sets.

    `database` is an SQLite file or a PostgreSQL database, and `database_connections` how many
    connections a process may open to the latter. `public_base_url` is where guests' browsers reach the service,
    without a slash at its end. `trusted_proxy` is the address of the proxy whose X-Forwarded-For
    is believed. `add_card_limit` is how often a caller may add a card, such as `60/minute`.
    `rate_limit_storage` is the Redis that processes count limits in together; its address may hold
    a password and is shown nowhere.
    `stripe_accounts` holds the keys of each merchant account at Stripe, by its name.
    """

    database: Path | PostgresqlDatabase
    public_base_url: str
    fake_psp_database: Path
    fake_psp_is_allowed: bool
    database_connections: int = 10
    log_format: LogFormat = LogFormat.TEXT
    trusted_proxy: str | None = None
    add_card_limit: str | None = None
    rate_limit_storage: str | None = field(default=None, repr=False)
    stripe_accounts: Mapping[MerchantAccount, StripeKeys] = field(default_factory=dict)
    stripe_api_base: str = API_BASE

    @classmethod
    def read(
        cls,
        environment: Mapping[str, str],
        *,
        host: str = DEFAULT_HOST,
        port: int = DEFAULT_PORT,
    ) -> Settings:
        """Read the settings; `host` and `port` are where the service listens.

        Raises SettingsError for the first one that cannot be used.
        """
        given = {name: value for name, value in environment.items() if value}
        database = parse_database_url(given.get("CARDONFILE_DATABASE_URL", DEFAULT_DATABASE_URL))
        base_url = _base_url(given.get("CARDONFILE_PUBLIC_BASE_URL"), host, port)
        fake_psp_database = _fake_psp_file(given.get("CARDONFILE_FAKE_PSP_DATABASE"), database)
        return cls(
            database=database,
            public_base_url=base_url,
            fake_psp_database=fake_psp_database,
            fake_psp_is_allowed=(
                _is_loopback(base_url) or given.get("CARDONFILE_ALLOW_FAKE_PSP") == "1"
            ),
            database_connections=_database_connections(
                given.get("CARDONFILE_DATABASE_CONNECTIONS", "10")
            ),
            log_format=_log_format(given.get("CARDONFILE_LOG_FORMAT", LogFormat.TEXT)),
            trusted_proxy=_trusted_proxy(given.get("CARDONFILE_TRUSTED_PROXY")),
            add_card_limit=_add_card_limit(given.get("CARDONFILE_ADD_CARD_LIMIT")),
            rate_limit_storage=_rate_limit_storage(given.get("CARDONFILE_RATE_LIMIT_STORAGE")),
            stripe_accounts=_stripe_accounts(given),
            stripe_api_base=_stripe_api_base(given.get("CARDONFILE_STRIPE_API_BASE")),
        )


def parse_database_url(
    url: str, name: str = "CARDONFILE_DATABASE_URL"
) -> Path | PostgresqlDatabase:
    """Read the address of a database. Raises SettingsError, which calls it by `name`."""
    if url.startswith(("postgresql://", "postgres://")):
        return PostgresqlDatabase(url)
    path = url.removeprefix("sqlite:///")
    if path == url or not Path(path).name:
        raise SettingsError(
            f"{name} must look like sqlite:///cardonfile.db, "
            "sqlite:////var/lib/cardonfile/cardonfile.db for an absolute path, or "
            "postgresql://user:password@host/cardonfile"
        )
    return Path(path)


def _database_connections(value: str) -> int:
    if not _CONNECTIONS.fullmatch(value):
        raise SettingsError("CARDONFILE_DATABASE_CONNECTIONS must be a number from 1 to 999")
    return int(value)


def _fake_psp_file(value: str | None, database: Path | PostgresqlDatabase) -> Path:
    # A database on a server has no folder: the file then lies where SQLite's would by default.
    file = (
        database
        if isinstance(database, Path)
        else Path(DEFAULT_DATABASE_URL.removeprefix("sqlite:///"))
    )
    path = Path(value) if value else file.with_name(f"{file.stem}-fake-psp.db")
    if path.resolve() == file.resolve():
        raise SettingsError("CARDONFILE_FAKE_PSP_DATABASE must be another file than the database")
    return path


def _base_url(url: str | None, host: str, port: int) -> str:
    if url is None:
        if host in WILDCARD_HOSTS:
            raise SettingsError(
                "CARDONFILE_PUBLIC_BASE_URL must say where guests reach a service that listens on "
                "every address, such as https://cards.example"
            )
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"
    try:
        origin = parse_allowed_origin(url)
    except ValueError:
        origin = ""
    if not origin.startswith(("http://", "https://")):
        raise SettingsError(
            "CARDONFILE_PUBLIC_BASE_URL must be a web address without a path, "
            "such as https://cards.example"
        )
    return origin


def _is_loopback(base_url: str) -> bool:
    host = urlsplit(base_url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _log_format(value: str) -> LogFormat:
    try:
        return LogFormat(value)
    except ValueError:
        raise SettingsError("CARDONFILE_LOG_FORMAT must be text or json") from None


def _trusted_proxy(value: str | None) -> str | None:
    if value is None:
        return None
    try:
        return str(ipaddress.ip_address(value))
    except ValueError:
        raise SettingsError(
            "CARDONFILE_TRUSTED_PROXY must be one IP address, such as 10.0.0.5"
        ) from None


def _add_card_limit(value: str | None) -> str | None:
    if value is None:
        return None
    if not _LIMIT.fullmatch(value):
        raise SettingsError("CARDONFILE_ADD_CARD_LIMIT must look like 60/minute or 10/second")
    return value


def _rate_limit_storage(url: str | None) -> str | None:
    if url is None:
        return None
    try:
        parts = urlsplit(url)
        # A port that is none raises ValueError when it is read.
        is_usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable or not _REDIS.fullmatch(url):
        raise SettingsError(
            "CARDONFILE_RATE_LIMIT_STORAGE must look like redis://host, "
            "redis://:password@host:6379/0, or rediss://… for TLS"
        )
    return url


def stripe_settings(account: MerchantAccount) -> tuple[str, str]:
    """Name the settings that hold the secret key and the webhook secrets of an account at Stripe.

    The default account's have no name in them. Another's have its name in capitals, so an account
    is called by lower-case letters, digits and underscores: two names never share a setting.
    """
    infix = "" if account == DEFAULT_ACCOUNT else f"{account.upper()}_"
    return f"{_STRIPE_PREFIX}{infix}SECRET_KEY", f"{_STRIPE_PREFIX}{infix}WEBHOOK_SECRETS"


def is_stripe_account(account: MerchantAccount) -> bool:
    """Tell whether settings can be named after an account so that the name can be read back."""
    return account == account.lower() and _STRIPE_ACCOUNT.fullmatch(account.upper()) is not None


def _stripe_accounts(given: Mapping[str, str]) -> Mapping[MerchantAccount, StripeKeys]:
    """Read the keys of every account that has one. No message repeats any."""
    named = {_stripe_account(match) for match in map(_STRIPE_NAME.fullmatch, given) if match}
    accounts = {account: _stripe_keys(given, account) for account in sorted(named)}
    _refuse_shared_keys(accounts)
    return accounts


def _stripe_account(match: re.Match[str]) -> MerchantAccount:
    account = match["account"]
    if account is None:
        return DEFAULT_ACCOUNT
    if not _STRIPE_ACCOUNT.fullmatch(account):
        raise SettingsError(
            f"{match[0]!a}: an account is named by capital letters, digits and underscores here"
        )
    if account.lower() == DEFAULT_ACCOUNT:
        raise SettingsError(f"{match[0]}: the default account's is {_STRIPE_PREFIX}{match['what']}")
    return MerchantAccount(account.lower())


def _stripe_keys(given: Mapping[str, str], account: MerchantAccount) -> StripeKeys:
    key_name, secrets_name = stripe_settings(account)
    for name, other in ((key_name, secrets_name), (secrets_name, key_name)):
        if name not in given:
            raise SettingsError(f"{name} is missing; {other} does not go without it")
    secrets = tuple(secret.strip() for secret in given[secrets_name].split(","))
    if not all(map(_STRIPE_SECRET.fullmatch, secrets)):
        raise SettingsError(f"{secrets_name} must hold whsec_…, or several with commas between")
    try:
        return StripeKeys(secret_key=given[key_name], webhook_secrets=secrets)
    except ValueError:
        raise SettingsError(
            f"{key_name} must be a secret key (sk_test_…, sk_live_…) or a restricted one (rk_…)"
        ) from None


def _refuse_shared_keys(accounts: Mapping[MerchantAccount, StripeKeys]) -> None:
    """Refuse a key that two accounts have: their cards and webhooks could not be told apart."""
    seen: dict[str, str] = {}
    for account, keys in accounts.items():
        key_name, secrets_name = stripe_settings(account)
        for value, name in (
            (keys.secret_key, key_name),
            *((secret, secrets_name) for secret in set(keys.webhook_secrets)),
        ):
            if value in seen:
                raise SettingsError(f"{seen[value]} and {name} hold the same")
            seen[value] = name


def _stripe_api_base(url: str | None) -> str:
    if url is None:
        return API_BASE
    try:
        origin = parse_allowed_origin(url)
    except ValueError:
        origin = ""
    if not origin.startswith("https://") and not (
        origin.startswith("http://") and _is_loopback(origin)
    ):
        raise SettingsError(
            "CARDONFILE_STRIPE_API_BASE must be an https address without a path, or a loopback one"
        )
    return origin
