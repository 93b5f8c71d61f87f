"""The settings of an installation, read once from the environment."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from typing_extensions import override

from adapters.psp.plugin import Surroundings
from adapters.psp.settings import SettingsError, is_loopback
from domain.identifiers import ProviderName
from domain.redirects import parse_allowed_origin
from entrypoints.psps import PSPS_SETTING, InstalledPsp, installed_names, load_psps, read_psps

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8000
DEFAULT_DATABASE_URL: Final = "sqlite:///cardonfile.db"

_COUNT = re.compile(r"[1-9][0-9]{0,2}")
_PREFIX = "CARDONFILE_"
_OF_TESTS = re.compile(rf"{_PREFIX}(?:[A-Z0-9_]+_)?TEST_(?:KEY|POSTGRESQL)")
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


class LogFormat(StrEnum):
    """How log lines are written."""

    TEXT = "text"
    JSON = "json"


class Setting(StrEnum):
    """The names of the settings, without those that each PSP has (`PspPlugin`)."""

    DATABASE_URL = "CARDONFILE_DATABASE_URL"
    DATABASE_CONNECTIONS = "CARDONFILE_DATABASE_CONNECTIONS"
    PSP_CALLS = "CARDONFILE_PSP_CALLS"
    WORKER_THREADS = "CARDONFILE_WORKER_THREADS"
    PUBLIC_BASE_URL = "CARDONFILE_PUBLIC_BASE_URL"
    PSPS = PSPS_SETTING
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
    `psps` are the PSPs that are installed, set up or not, by their names.
    """

    database: Path | PostgresqlDatabase
    public_base_url: str
    database_connections: int = 10
    psp_calls: int = 4
    worker_threads: int = 16
    log_format: LogFormat = LogFormat.TEXT
    trusted_proxy: str | None = None
    add_card_limit: str | None = None
    rate_limit_storage: str | None = field(default=None, repr=False)
    psps: Mapping[ProviderName, InstalledPsp] = field(default_factory=dict)

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
        surroundings = Surroundings(
            environment=given,
            public_base_url=base_url,
            # A database on a server has no file; SQLite's would have this name by default.
            database_file=(
                database
                if isinstance(database, Path)
                else Path(DEFAULT_DATABASE_URL.removeprefix("sqlite:///"))
            ),
        )
        return cls(
            database=database,
            public_base_url=base_url,
            database_connections=_count(given, Setting.DATABASE_CONNECTIONS, 10),
            psp_calls=_count(given, Setting.PSP_CALLS, 4),
            worker_threads=_count(given, Setting.WORKER_THREADS, 16),
            log_format=_log_format(given.get(Setting.LOG_FORMAT, LogFormat.TEXT)),
            trusted_proxy=_trusted_proxy(given.get(Setting.TRUSTED_PROXY)),
            add_card_limit=_add_card_limit(given.get(Setting.ADD_CARD_LIMIT)),
            rate_limit_storage=_rate_limit_storage(given.get(Setting.RATE_LIMIT_STORAGE)),
            psps=_psps(given.get(Setting.PSPS), surroundings),
        )

    @classmethod
    def read_to_serve(cls, environment: Mapping[str, str], *, host: str, port: int) -> Settings:
        """Read the settings of a service that is to answer guests on `host` and `port`.

        It refuses more than `read` does: names that no setting has, and live keys where guests
        cannot reach the service, or beside a PSP for test cards. Raises SettingsError.
        """
        unknown = unknown_settings(environment)
        if unknown:
            raise SettingsError("; ".join(unknown))
        settings = cls.read(environment, host=host, port=port)
        live = settings.live_key
        if live is not None:
            base_url = environment.get(Setting.PUBLIC_BASE_URL)
            if not base_url or is_loopback(settings.public_base_url):
                raise SettingsError(
                    f"{live} is a live key: set {Setting.PUBLIC_BASE_URL} to where guests reach the "
                    "service, such as https://cards.example"
                )
            for psp in settings.psps.values():
                if psp.is_set_up and psp.plugin.test_setting is not None:
                    raise SettingsError(
                        f"{live} is a live key: unset {psp.plugin.test_setting}, which takes test "
                        "cards beside real ones"
                    )
        return settings

    @property
    def live_key(self) -> str | None:
        """Name the first setting that holds a live key; None when there is none."""
        return next(filter(None, (psp.live_setting for psp in self.psps.values())), None)


def unknown_settings(environment: Mapping[str, str]) -> list[str]:
    """Say of each CARDONFILE_ name that no setting has which one is meant; without any value.

    A name is unknown also when its value is empty. What Kubernetes and Docker set for a service
    that is called cardonfile (`…_SERVICE_HOST`, `…_PORT=tcp://10.0.0.1:80`) is left out.
    Raises SettingsError when a PSP cannot be loaded.
    """
    settings = {str(each) for each in Setting}
    for plugin in load_psps(environment.get(Setting.PSPS)).values():
        settings.update(plugin.settings)
        if plugin.account_settings is not None:
            settings.update(plugin.account_settings.names(environment))
    unknown = [
        name
        for name, value in environment.items()
        if name.upper().startswith(_PREFIX)
        and name not in settings
        and not _OF_TESTS.fullmatch(name)
        and not _OF_ORCHESTRATION.fullmatch(f"{name}={value}")
    ]
    unnamed = _unnamed_psps(environment) if unknown else ()
    sentences = []
    for name in sorted(unknown):
        psp = next((each for each in unnamed if name.startswith(_prefix_of(each))), None)
        if psp is not None:
            sentences.append(f"{name} is a setting of {psp}, which {Setting.PSPS} does not name")
            continue
        nearest = get_close_matches(
            name.upper().removeprefix(_PREFIX),
            [each.removeprefix(_PREFIX) for each in sorted(settings)],
            n=1,
        )
        hint = f"; the nearest is {_PREFIX}{nearest[0]}" if nearest else ""
        sentences.append(f"{name if name.isprintable() else ascii(name)} is not a setting{hint}")
    return sentences


def _unnamed_psps(environment: Mapping[str, str]) -> Collection[str]:
    """Name the PSPs that are installed and not loaded."""
    return set(installed_names()) - load_psps(environment.get(Setting.PSPS)).keys()


def _prefix_of(psp: str) -> str:
    """Give what the settings of a PSP begin with."""
    return f"{_PREFIX}{psp.upper()}_"


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


def _psps(named: str | None, here: Surroundings) -> Mapping[ProviderName, InstalledPsp]:
    plugins = load_psps(named)
    for name in plugins:
        if any(each.startswith(_prefix_of(name)) for each in Setting):
            raise SettingsError(
                f"{Setting.PSPS}: a PSP cannot be called {name}: its settings would be the service's"
            )
    return read_psps(plugins, here)


def _count(given: Mapping[str, str], name: str, default: int) -> int:
    value = given.get(name, str(default))
    if not _COUNT.fullmatch(value):
        raise SettingsError(f"{name} must be a number from 1 to 999")
    return int(value)


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
