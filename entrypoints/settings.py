"""The settings of an installation, read once from the environment."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from difflib import get_close_matches
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from stat import S_IRWXG, S_IRWXO
from typing import Final, TypeVar
from urllib.parse import urlsplit

from typing_extensions import override

from adapters.psp.plugin import Surroundings
from adapters.psp.settings import is_https_or_loopback, is_loopback, values_of
from domain.centers.card_limit import DEFAULT_LIMITS, CardLimit, parse_card_limits
from domain.identifiers import ProviderName
from domain.redirects import parse_allowed_origin
from domain.worker.forget_old_records import Retention
from entrypoints.psps import PSPS_SETTING, InstalledPsp, installed_names, load_psps, read_psps
from entrypoints.settings_error import SettingsError

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8000
DEFAULT_DATABASE_URL: Final = "sqlite:///cardonfile.db"
WILDCARD_HOSTS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - nothing is bound here

OFF: Final = "off"

_PREFIX = "CARDONFILE_"
_FROM_FILE = "_FILE"
_MAX_BYTES = 64 * 1024
_COUNT = re.compile(r"[1-9][0-9]{0,2}")
_RATE_LIMIT = re.compile(r"[1-9][0-9]{0,8}/(?:second|minute|hour|day)")
_HOST_AND_PORT = re.compile(r"(?:\[([0-9A-Fa-f:.%]+)\]|([A-Za-z0-9._-]+)):([0-9]{1,5})")
_RETENTION = re.compile(r"(sessions|deliveries|cards|audit)=([1-9][0-9]{0,4})")
_HSTS = re.compile(r"max-age=[0-9]{1,10}(; includeSubDomains(; preload)?)?")
_REDIS = re.compile(r"rediss?://[^\s/?#]+(?:/[0-9]*)?")
_FOR_TESTS = re.compile(rf"{_PREFIX}(?:[A-Z0-9_]+_)?TEST_(?:KEY|POSTGRESQL)")
# Kubernetes sets such variables in each container for every service, Docker for every link:
# https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
_FROM_ORCHESTRATION = re.compile(
    r"[A-Z0-9_]+_(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT_[0-9]+_(?:TCP|UDP|SCTP)(?:_[A-Z]+)?)=.*"
    r"|[A-Z0-9_]+_PORT=(?:tcp|udp|sctp)://.*",
    re.DOTALL,
)


class LogFormat(StrEnum):
    """The format of log lines."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The lowest level of the lines to log. Debug lines of libraries are never logged."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


Kind = TypeVar("Kind", LogFormat, LogLevel)
Parsed = TypeVar("Parsed")


class Setting(StrEnum):
    """The names of the service's own settings. PSPs have further settings (`PspPlugin`)."""

    DATABASE_URL = "CARDONFILE_DATABASE_URL"
    DATABASE_CONNECTIONS = "CARDONFILE_DATABASE_CONNECTIONS"
    PSP_CALLS = "CARDONFILE_PSP_CALLS"
    WORKER_THREADS = "CARDONFILE_WORKER_THREADS"
    PUBLIC_BASE_URL = "CARDONFILE_PUBLIC_BASE_URL"
    PSPS = PSPS_SETTING
    TRUSTED_PROXY = "CARDONFILE_TRUSTED_PROXY"
    WRITE_LIMIT = "CARDONFILE_WRITE_LIMIT"
    CARD_TESTING_LIMITS = "CARDONFILE_CARD_TESTING_LIMITS"
    RATE_LIMIT_STORAGE = "CARDONFILE_RATE_LIMIT_STORAGE"
    EVENT_NETWORKS = "CARDONFILE_EVENT_NETWORKS"
    HSTS = "CARDONFILE_HSTS"
    LOG_FORMAT = "CARDONFILE_LOG_FORMAT"
    LOG_LEVEL = "CARDONFILE_LOG_LEVEL"
    RETENTION = "CARDONFILE_RETENTION"
    ERASURES_FILE = "CARDONFILE_ERASURES_FILE"
    EVIDENCE_KEYS = "CARDONFILE_EVIDENCE_KEYS"
    EVIDENCE_BROWSER_DAYS = "CARDONFILE_EVIDENCE_BROWSER_DAYS"
    JWT_ISSUER = "CARDONFILE_JWT_ISSUER"
    JWT_AUDIENCE = "CARDONFILE_JWT_AUDIENCE"
    JWT_KEYS = "CARDONFILE_JWT_KEYS"
    JWT_CALLER_CLAIM = "CARDONFILE_JWT_CALLER_CLAIM"
    JWT_PERMISSIONS_CLAIM = "CARDONFILE_JWT_PERMISSIONS_CLAIM"
    JWT_CENTERS_CLAIM = "CARDONFILE_JWT_CENTERS_CLAIM"
    JWT_TYPE = "CARDONFILE_JWT_TYPE"
    METRICS = "CARDONFILE_METRICS"
    METRICS_FOLDER = "CARDONFILE_METRICS_FOLDER"


_PSPS_NAMED: Final = (Setting.PSPS, Setting.PSPS + _FROM_FILE)

REPLACED: Final = {"CARDONFILE_ADD_CARD_LIMIT": Setting.WRITE_LIMIT}
"""The settings that only older releases have, each with the setting that replaces it."""


@dataclass(frozen=True, slots=True)
class PostgresqlDatabase:
    """A PostgreSQL database. Its URL may contain a password, so `str` and `repr` do not show it."""

    url: str = field(repr=False)

    @override
    def __str__(self) -> str:
        """Return the name of the setting that contains the URL, but not the URL itself."""
        return "in CARDONFILE_DATABASE_URL"


@dataclass(frozen=True, slots=True, kw_only=True)
class JwtSettings:
    """The identity provider whose JSON Web Tokens are accepted, and the names of the claims to read.

    If `centers_claim` is None, every caller may use all centers. `token_type` is the required value
    of the header `typ`, such as `at+jwt`. If it is None, the header may be `at+jwt` or `JWT`, or
    missing.
    """

    issuer: str
    audience: str
    keys_url: str
    caller_claim: str
    permissions_claim: str
    centers_claim: str | None
    token_type: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of an installation.

    - `database`: an SQLite file or a PostgreSQL database.
    - `database_connections`: how many connections to PostgreSQL a process may open.
    - `public_base_url`: where guests' browsers reach the service, without a trailing slash.
    - `psp_calls`: how many calls to PSPs the server may make at once for guests.
    - `worker_threads`: how many sessions and discards the worker handles at once.
    - `log_format`: the format of log lines.
    - `log_level`: the lowest level of the lines to log.
    - `trusted_proxy`: the networks of the proxies whose `X-Forwarded-For` is trusted.
    - `write_limit`: how often a caller may write, such as `60/minute`.
    - `card_testing_limits`: how many sessions and refused cards a guest, a caller and a center may
      have in 24 hours.
    - `rate_limit_storage`: the URL of the Redis server in which all processes count for rate
      limits. It may contain a password, so `repr` does not show it.
    - `event_networks`: the private networks to which events may be sent.
    - `hsts`: the value of the header Strict-Transport-Security.
    - `retention`: how long records are kept.
    - `erasures_file`: the file that records erased guests, or None.
    - `evidence_keys`: the keys that sign evidence, a JWK Set in JSON, or None. They are secret, so
      `repr` does not show them.
    - `jwt`: the identity provider whose tokens are accepted too, or None.
    - `metrics`: the host and port at which metrics are served, or None.
    - `metrics_folder`: the folder in which processes store metrics, so that one process can serve
      the metrics of all, or None.
    - `psps`: the loaded PSPs by name. They may or may not be set up.
    """

    database: Path | PostgresqlDatabase
    database_connections: int
    public_base_url: str
    psp_calls: int
    worker_threads: int
    log_format: LogFormat
    log_level: LogLevel
    trusted_proxy: tuple[IPv4Network | IPv6Network, ...]
    write_limit: str | None
    card_testing_limits: Sequence[CardLimit]
    rate_limit_storage: str | None = field(repr=False)
    event_networks: tuple[IPv4Network | IPv6Network, ...]
    hsts: str
    retention: Retention
    erasures_file: Path | None
    evidence_keys: str | None = field(repr=False)
    jwt: JwtSettings | None
    metrics: tuple[str, int] | None
    metrics_folder: Path | None
    psps: Mapping[ProviderName, InstalledPsp]

    @classmethod
    def read(
        cls,
        environment: Mapping[str, str],
        *,
        host: str | None = DEFAULT_HOST,
        port: int = DEFAULT_PORT,
    ) -> Settings:
        """Read the settings from variables and files (see `settings_given`).

        `host` and `port` are the address on which the service listens. The default of the public
        base URL is made from them. If `host` is None because the process does not listen, or if it
        is a wildcard address, there is no default, and CARDONFILE_PUBLIC_BASE_URL must be set.
        Raises SettingsError for the first setting that cannot be used.
        """
        given = settings_given(environment)
        database = parse_database_url(given.get(Setting.DATABASE_URL, DEFAULT_DATABASE_URL))
        base_url = _base_url(given.get(Setting.PUBLIC_BASE_URL), host, port)

        def optional(setting: Setting, parse: Callable[[str], Parsed]) -> Parsed | None:
            return parse(given[setting]) if setting in given else None

        surroundings = Surroundings(
            environment=given,
            public_base_url=base_url,
            # With PostgreSQL, a PSP's file has the place that it would have beside the default
            # SQLite file.
            database_file=(
                database
                if isinstance(database, Path)
                else Path(DEFAULT_DATABASE_URL.removeprefix("sqlite:///"))
            ),
        )
        return cls(
            database=database,
            database_connections=_count(given, Setting.DATABASE_CONNECTIONS, default=10),
            public_base_url=base_url,
            psp_calls=_count(given, Setting.PSP_CALLS, default=4),
            worker_threads=_count(given, Setting.WORKER_THREADS, default=16),
            log_format=_one_of(
                LogFormat, given.get(Setting.LOG_FORMAT, "text"), Setting.LOG_FORMAT
            ),
            log_level=_one_of(LogLevel, given.get(Setting.LOG_LEVEL, "info"), Setting.LOG_LEVEL),
            trusted_proxy=_trusted(given),
            write_limit=optional(Setting.WRITE_LIMIT, _rate_limit),
            card_testing_limits=_card_limits(given.get(Setting.CARD_TESTING_LIMITS, "")),
            rate_limit_storage=optional(Setting.RATE_LIMIT_STORAGE, _redis_url),
            event_networks=_networks(given, Setting.EVENT_NETWORKS, "networks", "10.0.0.0/8"),
            hsts=_hsts(given.get(Setting.HSTS, "max-age=31536000")),
            retention=replace(
                _retention(given.get(Setting.RETENTION, "")),
                browsers=timedelta(days=_browser_days(given)),
            ),
            evidence_keys=given.get(Setting.EVIDENCE_KEYS),
            jwt=_jwt(given),
            erasures_file=optional(Setting.ERASURES_FILE, Path),
            metrics=optional(Setting.METRICS, _host_and_port),
            metrics_folder=optional(Setting.METRICS_FOLDER, Path),
            psps=_psps(given.get(Setting.PSPS), surroundings),
        )

    @classmethod
    def read_to_serve(
        cls, environment: Mapping[str, str], *, host: str | None = None, port: int = DEFAULT_PORT
    ) -> Settings:
        """Read the settings of a process of the service, with further checks.

        Raises SettingsError in the cases of `read`, and for an unknown setting. If there is a live
        key, also raises SettingsError in two cases: if CARDONFILE_PUBLIC_BASE_URL is not set or is
        a loopback address, and if a PSP takes only test cards.
        """
        unknown = unknown_settings(environment)
        if unknown:
            raise SettingsError("; ".join(unknown))
        given = settings_given(environment)
        settings = cls.read(given, host=host, port=port)
        live = settings.live_key
        if live is not None:
            if Setting.PUBLIC_BASE_URL not in given or settings.is_on_loopback:
                raise SettingsError(
                    f"{live} is a live key: set {Setting.PUBLIC_BASE_URL} to the "
                    "address at which guests reach the service, such as "
                    "https://cards.example"
                )
            for psp in settings.psps.values():
                if psp.takes_test_cards:
                    raise SettingsError(
                        f"{live} is a live key: unset {psp.plugin.test_setting}, which allows test "
                        "cards"
                    )
        return settings

    @property
    def is_on_loopback(self) -> bool:
        """Whether guests can reach the service only on this machine, as in the demo."""
        return is_loopback(self.public_base_url)

    @property
    def notes_browsers(self) -> bool:
        """Whether the IP address and User-Agent of a browser are recorded when the guest agrees."""
        return bool(self.retention.browsers)

    @property
    def live_key(self) -> str | None:
        """The name of the first setting that contains a live key, or None."""
        return next(filter(None, (psp.live_setting for psp in self.psps.values())), None)


def settings_given(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are not empty, after reading values from files.

    For any setting `CARDONFILE_X`, the variable `CARDONFILE_X_FILE` may be the path of a file that
    contains the value. The result then contains `CARDONFILE_X` instead. May be called with its own
    result. Raises SettingsError, whose text does not contain any part of a file.
    """
    given = {name: value for name, value in environment.items() if value}
    for name in sorted(given.keys() - set(Setting)):
        setting = name.removesuffix(_FROM_FILE)
        if setting == name or not name.startswith(_PREFIX):
            continue
        if setting in given:
            raise SettingsError(f"{setting} and {name} are both set: unset one of them")
        given[setting] = _text_of_file(name, given.pop(name))
    return given


def _text_of_file(name: str, file: str) -> str:
    # Errors do not show the name of the file, because the name is the secret itself if `_FILE` was
    # set by mistake.
    try:
        path = Path(file)
        # Only regular files are read, because a pipe or a device may never end.
        about = path.stat()
        is_readable = about.st_size <= _MAX_BYTES and path.is_file()
        is_private = not about.st_mode & (S_IRWXG | S_IRWXO)
        text = path.read_text("utf-8-sig").rstrip("\n") if is_readable else ""
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "its text is not UTF-8"
        raise SettingsError(f"{name} must name a file that can be read: {why}") from None
    if name == f"{Setting.EVIDENCE_KEYS}{_FROM_FILE}" and not is_private:
        raise SettingsError(f"{name} must name a file that only its owner can read (chmod 600)")
    if not text.strip() or "\0" in text:
        raise SettingsError(f"{name} must name a file that is not empty and has at most 64 KiB")
    return text


def unknown_settings(environment: Mapping[str, str]) -> list[str]:
    """Return a sentence about each CARDONFILE_ variable that is not a setting.

    The sentences do not contain values. The name of a setting with `_FILE` appended is accepted
    too. Empty variables are checked too. Variables that Kubernetes and Docker set for a service
    named cardonfile are ignored. Raises SettingsError if a PSP cannot be loaded.
    """
    named = {name: value for name, value in environment.items() if name in _PSPS_NAMED}
    plugins = load_psps(settings_given(named).get(Setting.PSPS))
    settings = {str(setting) for setting in Setting}
    for plugin in plugins.values():
        settings.update(plugin.settings)
        if plugin.account_settings is not None:
            settings.update(
                plugin.account_settings.names(name.removesuffix(_FROM_FILE) for name in environment)
            )
    unknown = sorted(
        name
        for name, value in environment.items()
        if name.upper().startswith(_PREFIX)
        and not {name, name.removesuffix(_FROM_FILE)} & settings
        and not _FOR_TESTS.fullmatch(name)
        and not _FROM_ORCHESTRATION.fullmatch(f"{name}={value}")
    )
    if not unknown:
        return []
    not_loaded = [name for name in installed_names() if name not in plugins]
    nearby = {name.removeprefix(_PREFIX): name for name in sorted(settings)}
    sentences = []
    for name in unknown:
        if name in REPLACED:
            sentences.append(f"{name} was replaced by {REPLACED[name]}: see docs/operations.md")
            continue
        psp = next((each for each in not_loaded if name.startswith(_prefix_of(each))), None)
        if psp is not None:
            sentences.append(
                f"{name} is a setting of {psp}, which is not enabled: add it to {Setting.PSPS}"
            )
            continue
        near = get_close_matches(name.upper().removeprefix(_PREFIX), nearby, n=1)
        hint = f"; did you mean {nearby[near[0]]}" if near else ""
        sentences.append(f"{name if name.isprintable() else ascii(name)} is not a setting{hint}")
    return sentences


def refuse_settings_of_service(psp: str) -> None:
    """Raise SettingsError if settings of a PSP with this name could clash with the service's."""
    if any(setting.startswith(_prefix_of(psp)) for setting in Setting):
        raise SettingsError(
            f"a PSP cannot be called {psp}: its settings would clash with the service's"
        )


def _prefix_of(psp: str) -> str:
    return f"{_PREFIX}{psp.upper()}_"


def parse_database_url(
    url: str, name: str = "CARDONFILE_DATABASE_URL"
) -> Path | PostgresqlDatabase:
    """Parse the URL of a database. Raises SettingsError, whose text starts with `name`."""
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


def _psps(named: str | None, surroundings: Surroundings) -> Mapping[ProviderName, InstalledPsp]:
    plugins = load_psps(named)
    for name in plugins:
        refuse_settings_of_service(name)
    return read_psps(plugins, surroundings)


def _count(given: Mapping[str, str], name: str, *, default: int) -> int:
    value = given.get(name, str(default))
    if not _COUNT.fullmatch(value):
        raise SettingsError(f"{name} must be a number from 1 to 999")
    return int(value)


def _browser_days(given: Mapping[str, str]) -> int:
    name = Setting.EVIDENCE_BROWSER_DAYS
    return 0 if given.get(name, "0") == "0" else _count(given, name, default=0)


def _base_url(url: str | None, host: str | None, port: int) -> str:
    if url is None:
        if host is None or host in WILDCARD_HOSTS:
            raise SettingsError(
                "CARDONFILE_PUBLIC_BASE_URL must be set to the address at which guests "
                "reach the service, such as https://cards.example"
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


def _one_of(kind: type[Kind], value: str, name: str) -> Kind:
    try:
        return kind(value)
    except ValueError:
        *others, last = kind
        raise SettingsError(f"{name} must be {', '.join(others)} or {last}") from None


def _trusted(given: Mapping[str, str]) -> tuple[IPv4Network | IPv6Network, ...]:
    expected = "IP addresses or networks", "10.0.0.5 or 10.20.0.0/16"
    networks = tuple(map(_plain, _networks(given, Setting.TRUSTED_PROXY, *expected)))
    if not all(network.prefixlen for network in networks):
        raise SettingsError(
            f"{Setting.TRUSTED_PROXY} must not include every address: any client could forge its address"
        )
    return networks


def _plain(network: IPv4Network | IPv6Network) -> IPv4Network | IPv6Network:
    """Return the network, as IPv4 if it is IPv4-mapped, such as `::ffff:10.0.0.0/104`."""
    mapped = isinstance(network, IPv6Network) and network.network_address.ipv4_mapped
    return IPv4Network((mapped, network.prefixlen - 96)) if mapped else network


def _host_and_port(value: str) -> tuple[str, int]:
    found = _HOST_AND_PORT.fullmatch(value)
    if found is None or not 0 < int(found[3]) < 65_536:
        raise SettingsError(
            f"{Setting.METRICS} must be a host and a port, such as 127.0.0.1:9464 or [::1]:9464"
        )
    return found[1] or found[2], int(found[3])


def _rate_limit(value: str) -> str:
    if not _RATE_LIMIT.fullmatch(value):
        raise SettingsError("CARDONFILE_WRITE_LIMIT must look like 60/minute or 10/second")
    return value


def _networks(
    given: Mapping[str, str], name: str, expected: str, example: str
) -> tuple[IPv4Network | IPv6Network, ...]:
    try:
        return tuple(map(ipaddress.ip_network, values_of(given.get(name, ""))))
    except ValueError:
        raise SettingsError(
            f"{name} must be {expected} separated by commas, such as {example}"
        ) from None


def _hsts(value: str) -> str:
    if not _HSTS.fullmatch(value):
        raise SettingsError(
            f"{Setting.HSTS} must look like max-age=31536000 or max-age=31536000; includeSubDomains"
        )
    return value


def _card_limits(value: str) -> Sequence[CardLimit]:
    """Parse limits such as `guest=10/10,center=off/500`. Limits not given keep their defaults."""
    try:
        return () if value == OFF else parse_card_limits(value, DEFAULT_LIMITS)
    except ValueError:
        raise SettingsError(
            "CARDONFILE_CARD_TESTING_LIMITS must be off, or look like "
            "guest=10/10,guest-everywhere=off/30,caller=5000/500,center=1000/200. A limit is "
            "SESSIONS/REFUSED_CARDS in 24 hours, and each part is a number from 1 to 999999, or off"
        ) from None


def _retention(value: str) -> Retention:
    """Parse days such as `sessions=400,audit=1095`. Kinds not given keep their defaults."""
    days: dict[str, timedelta] = {}
    for part in value.split(",") if value else ():
        found = _RETENTION.fullmatch(part.strip())
        if found is None or found[1] in days:
            raise SettingsError(
                "CARDONFILE_RETENTION must look like sessions=400,deliveries=30,cards=400,audit=1095: "
                "numbers of days from 1 to 99999"
            )
        days[found[1]] = timedelta(days=int(found[2]))
    return replace(Retention(), **days)


def _jwt(given: Mapping[str, str]) -> JwtSettings | None:
    """Read the settings of the identity provider, or return None if it is not set up."""
    named = [setting for setting in Setting if setting.name.startswith("JWT_")]
    if not any(setting in given for setting in named):
        return None
    for needed in (Setting.JWT_ISSUER, Setting.JWT_AUDIENCE, Setting.JWT_KEYS):
        if needed not in given:
            raise SettingsError(
                f"{needed} is missing: {Setting.JWT_ISSUER}, {Setting.JWT_AUDIENCE} and "
                f"{Setting.JWT_KEYS} must be set together"
            )
    # An attacker who changes the keys in transit could give anybody access.
    if not is_https_or_loopback(given[Setting.JWT_KEYS]):
        raise SettingsError(
            f"{Setting.JWT_KEYS} must be the https address of the keys, without a query, such as "
            "https://id.example/realms/spa/protocol/openid-connect/certs"
        )
    return JwtSettings(
        issuer=given[Setting.JWT_ISSUER],
        audience=given[Setting.JWT_AUDIENCE],
        keys_url=given[Setting.JWT_KEYS],
        caller_claim=given.get(Setting.JWT_CALLER_CLAIM, "sub"),
        permissions_claim=given.get(Setting.JWT_PERMISSIONS_CLAIM, "permissions"),
        centers_claim=given.get(Setting.JWT_CENTERS_CLAIM),
        token_type=given.get(Setting.JWT_TYPE),
    )


def _redis_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        # Reading an invalid port raises ValueError.
        is_usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable or not _REDIS.fullmatch(url):
        raise SettingsError(
            "CARDONFILE_RATE_LIMIT_STORAGE must look like redis://host, "
            "redis://:password@host:6379/0, or rediss://… for TLS"
        )
    return url
