"""The settings of an installation, read once from the environment."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
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

_COUNT = re.compile(r"[1-9][0-9]{0,2}")
_STRIPE_KEY = "CARDONFILE_STRIPE_SECRET_KEY"
_STRIPE_SECRETS = "CARDONFILE_STRIPE_WEBHOOK_SECRETS"
_STRIPE_CURRENCY = "CARDONFILE_STRIPE_CURRENCY"
_STRIPE_PREFIX = _STRIPE_KEY.removesuffix("SECRET_KEY")
_STRIPE_WHAT = ("SECRET_KEY", "WEBHOOK_SECRETS", "CURRENCY")
_STRIPE_NAME = re.compile(
    _STRIPE_PREFIX + rf"(?:(?P<account>.+)_)?(?P<what>{'|'.join(_STRIPE_WHAT)})"
)
_STRIPE_ACCOUNT = re.compile(r"[A-Z0-9_]{1,64}")
_CURRENCY = re.compile(r"[A-Za-z]{3}")
_STRIPE_SECRET = re.compile(r"whsec_[!-~]+")

_PREFIX = "CARDONFILE_"
_OF_TESTS = (f"{_PREFIX}TEST_POSTGRESQL", f"{_PREFIX}STRIPE_TEST_KEY")
# Kubernetes tells each container of every service, and Docker of every link, by such variables:
# https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
_OF_ORCHESTRATION = re.compile(
    r"[A-Z0-9_]+_(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT_[0-9]+_(?:TCP|UDP|SCTP)(?:_[A-Z]+)?)=.*"
    r"|[A-Z0-9_]+_PORT=(?:tcp|udp|sctp)://.*",
    re.DOTALL,
)

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


class Setting(StrEnum):
    """The names of the settings; those of accounts at Stripe are read by `_STRIPE_NAME`."""

    DATABASE_URL = "CARDONFILE_DATABASE_URL"
    DATABASE_CONNECTIONS = "CARDONFILE_DATABASE_CONNECTIONS"
    PSP_CALLS = "CARDONFILE_PSP_CALLS"
    WORKER_THREADS = "CARDONFILE_WORKER_THREADS"
    PUBLIC_BASE_URL = "CARDONFILE_PUBLIC_BASE_URL"
    ALLOW_FAKE_PSP = "CARDONFILE_ALLOW_FAKE_PSP"
    FAKE_PSP_DATABASE = "CARDONFILE_FAKE_PSP_DATABASE"
    STRIPE_API_BASE = "CARDONFILE_STRIPE_API_BASE"
    TRUSTED_PROXY = "CARDONFILE_TRUSTED_PROXY"
    ADD_CARD_LIMIT = "CARDONFILE_ADD_CARD_LIMIT"
    RATE_LIMIT_STORAGE = "CARDONFILE_RATE_LIMIT_STORAGE"
    LOG_FORMAT = "CARDONFILE_LOG_FORMAT"


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
    connections a process may open to the latter. `psp_calls` is how many calls to PSPs the server
    may have under way for guests, `worker_threads` how many sessions and discards the worker has
    under way. `public_base_url` is where guests' browsers reach the service, without a slash at its
    end. `trusted_proxy` is the address of the proxy whose X-Forwarded-For
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
    psp_calls: int = 4
    worker_threads: int = 16
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
        database = parse_database_url(given.get(Setting.DATABASE_URL, DEFAULT_DATABASE_URL))
        base_url = _base_url(given.get(Setting.PUBLIC_BASE_URL), host, port)
        fake_psp_database = _fake_psp_file(given.get(Setting.FAKE_PSP_DATABASE), database)
        return cls(
            database=database,
            public_base_url=base_url,
            fake_psp_database=fake_psp_database,
            fake_psp_is_allowed=(
                _fake_psp_is_meant(given.get(Setting.ALLOW_FAKE_PSP)) or _is_loopback(base_url)
            ),
            database_connections=_count(given, Setting.DATABASE_CONNECTIONS, 10),
            psp_calls=_count(given, Setting.PSP_CALLS, 4),
            worker_threads=_count(given, Setting.WORKER_THREADS, 16),
            log_format=_log_format(given.get(Setting.LOG_FORMAT, LogFormat.TEXT)),
            trusted_proxy=_trusted_proxy(given.get(Setting.TRUSTED_PROXY)),
            add_card_limit=_add_card_limit(given.get(Setting.ADD_CARD_LIMIT)),
            rate_limit_storage=_rate_limit_storage(given.get(Setting.RATE_LIMIT_STORAGE)),
            stripe_accounts=_stripe_accounts(given),
            stripe_api_base=_stripe_api_base(given.get(Setting.STRIPE_API_BASE)),
        )

    @classmethod
    def read_to_serve(cls, environment: Mapping[str, str], *, host: str, port: int) -> Settings:
        """Read the settings of a service that is to answer guests on `host` and `port`.

        It refuses more than `read` does: names that no setting has, and live keys of Stripe where
        guests cannot reach the service, or beside the fake PSP. Raises SettingsError.
        """
        unknown = unknown_settings(environment)
        if unknown:
            raise SettingsError("; ".join(unknown))
        settings = cls.read(environment, host=host, port=port)
        live = settings.live_key
        if live is not None:
            base_url = environment.get(Setting.PUBLIC_BASE_URL)
            if not base_url or _is_loopback(settings.public_base_url):
                raise SettingsError(
                    f"{live} is a live key: set {Setting.PUBLIC_BASE_URL} to where guests reach the "
                    "service, such as https://cards.example"
                )
            if settings.fake_psp_is_allowed:
                raise SettingsError(
                    f"{live} is a live key: unset {Setting.ALLOW_FAKE_PSP}, which takes test cards "
                    "beside real ones"
                )
        return settings

    @property
    def live_key(self) -> str | None:
        """Name the first setting that holds a live key of Stripe; None when there is none."""
        for account, keys in self.stripe_accounts.items():
            if keys.is_live:
                return stripe_settings(account)[0]
        return None


def unknown_settings(environment: Mapping[str, str]) -> list[str]:
    """Say of each CARDONFILE_ name that no setting has which one is meant; without any value.

    A name is unknown also when its value is empty. What Kubernetes and Docker set for a service
    that is called cardonfile (`…_SERVICE_HOST`, `…_PORT=tcp://10.0.0.1:80`) is left out.
    """
    stripe = {
        name
        for match in map(_STRIPE_NAME.fullmatch, environment)
        if match
        for name in (match[0].removesuffix(match["what"]) + what for what in _STRIPE_WHAT)
    }
    settings = {*Setting, _STRIPE_KEY, _STRIPE_SECRETS, _STRIPE_CURRENCY, *stripe}
    known = settings.union(_OF_TESTS)
    unknown = [
        name
        for name, value in environment.items()
        if name.upper().startswith(_PREFIX)
        and name not in known
        and not _OF_ORCHESTRATION.fullmatch(f"{name}={value}")
    ]
    sentences = []
    for name in sorted(unknown):
        nearest = get_close_matches(
            name.upper().removeprefix(_PREFIX),
            [each.removeprefix(_PREFIX) for each in sorted(settings)],
            n=1,
        )
        hint = f"; the nearest is {_PREFIX}{nearest[0]}" if nearest else ""
        sentences.append(f"{name if name.isprintable() else ascii(name)} is not a setting{hint}")
    return sentences


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


def _count(given: Mapping[str, str], name: str, default: int) -> int:
    value = given.get(name, str(default))
    if not _COUNT.fullmatch(value):
        raise SettingsError(f"{name} must be a number from 1 to 999")
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
    """Tell whether an address leads to this machine alone (RFC 6761 for names)."""
    host = urlsplit(base_url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _fake_psp_is_meant(value: str | None) -> bool:
    if value not in (None, "1"):
        raise SettingsError(f"{Setting.ALLOW_FAKE_PSP} must be 1, or not set")
    return value == "1"


def _log_format(value: str) -> LogFormat:
    try:
        return LogFormat(value)
    except ValueError:
        raise SettingsError("CARDONFILE_LOG_FORMAT must be text or json") from None


def _trusted_proxy(value: str | None) -> str | None:
    if value is None:
        return None
    try:
        address = ipaddress.ip_address(value)
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return str(mapped or address)
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
    return _stripe_setting(_STRIPE_KEY, account), _stripe_setting(_STRIPE_SECRETS, account)


def _stripe_setting(of_default: str, account: MerchantAccount) -> str:
    """Name the setting of an account that has this name for the default account."""
    infix = "" if account == DEFAULT_ACCOUNT else f"{account.upper()}_"
    return f"{_STRIPE_PREFIX}{infix}{of_default.removeprefix(_STRIPE_PREFIX)}"


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
    currency_name = _stripe_setting(_STRIPE_CURRENCY, account)
    for name in (key_name, secrets_name):
        if name not in given:
            names = (key_name, secrets_name, currency_name)
            other = next(each for each in names if each in given)
            raise SettingsError(f"{name} is missing; {other} does not go without it")
    secrets = tuple(secret.strip() for secret in given[secrets_name].split(","))
    if not all(map(_STRIPE_SECRET.fullmatch, secrets)):
        raise SettingsError(f"{secrets_name} must hold whsec_…, or several with commas between")
    currency = given.get(currency_name)
    if currency is not None and not _CURRENCY.fullmatch(currency):
        raise SettingsError(f"{currency_name} must be a currency of three letters, such as eur")
    try:
        return StripeKeys(
            secret_key=given[key_name],
            webhook_secrets=secrets,
            currency=currency and currency.lower(),
        )
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
