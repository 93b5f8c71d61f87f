from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from limits.storage import RedisStorage

from adapters.fake_psp.plugin import NAME as FAKE
from adapters.fake_psp.plugin import FakeSettings
from adapters.http.rate_limits import RateLimits, counts_in_redis
from adapters.psp.settings import SettingsError
from adapters.stripe.keys import StripeKeys
from adapters.stripe.plugin import ACCOUNT_SETTINGS, KEY, SECRETS, StripeSettings
from adapters.stripe.plugin import NAME as STRIPE
from domain.identifiers import MerchantAccount
from entrypoints.settings import (
    LogFormat,
    PostgresqlDatabase,
    Setting,
    Settings,
    parse_database_url,
    unknown_settings,
)

ROOT: Final = Path(__file__).resolve().parents[2]


def fake(settings: Settings) -> Path | None:
    """Give the file of the fake PSP, or None where it is not allowed."""
    read = settings.psps[FAKE].settings
    assert read is None or isinstance(read, FakeSettings)
    return None if read is None else read.database


def stripe(settings: Settings) -> StripeSettings | None:
    """Give what was read for Stripe, or None without keys."""
    read = settings.psps[STRIPE].settings
    assert read is None or isinstance(read, StripeSettings)
    return read


def test_without_an_environment_everything_is_in_this_folder_on_this_machine() -> None:
    settings = Settings.read({})

    assert settings.database == Path("cardonfile.db")
    assert fake(settings) == Path("cardonfile-fake-psp.db")
    assert settings.public_base_url == "http://127.0.0.1:8000"
    assert fake(settings)
    assert settings.log_format is LogFormat.TEXT
    assert settings.trusted_proxy is None
    assert settings.add_card_limit is None
    assert settings.rate_limit_storage is None
    assert stripe(settings) is None


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_the_address_of_a_server_is_kept_as_it_is_and_shown_nowhere(scheme: str) -> None:
    url = f"{scheme}://cardonfile:s3cret@db.internal/cardonfile"
    settings = Settings.read({"CARDONFILE_DATABASE_URL": url})

    assert settings.database == PostgresqlDatabase(url)
    assert "s3cret" not in f"{settings!r} {settings} {settings.database}"
    assert fake(settings) == Path("cardonfile-fake-psp.db")
    assert settings.database_connections == 10


@pytest.mark.parametrize(
    "url",
    [
        "redis://redis.internal",
        "redis://:s3cret@redis.internal:6379/0",
        "redis://cardonfile:s3cret@[::1]:6380",
        "rediss://redis.internal/",
    ],
)
def test_the_address_of_a_redis_is_kept_as_it_is_and_shown_nowhere(url: str) -> None:
    settings = Settings.read({"CARDONFILE_RATE_LIMIT_STORAGE": url})

    assert settings.rate_limit_storage == url
    assert "redis" not in f"{settings!r} {settings}"


@pytest.mark.parametrize(
    ("host", "base_url"),
    [
        ("127.0.0.1", "http://127.0.0.1:9000"),
        ("::1", "http://[::1]:9000"),
        ("shop.internal", "http://shop.internal:9000"),
    ],
)
def test_links_lead_to_where_the_service_listens(host: str, base_url: str) -> None:
    assert Settings.read({}, host=host, port=9000).public_base_url == base_url


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])  # noqa: S104 - nothing is bound here
def test_on_every_address_the_public_one_must_be_said(host: str) -> None:
    with pytest.raises(SettingsError, match="CARDONFILE_PUBLIC_BASE_URL"):
        Settings.read({}, host=host)
    said = {"CARDONFILE_PUBLIC_BASE_URL": "https://cards.example"}
    assert Settings.read(said, host=host).public_base_url == "https://cards.example"


def test_addresses_are_kept_in_one_spelling() -> None:
    settings = Settings.read(
        {
            "CARDONFILE_PUBLIC_BASE_URL": "HTTPS://Cards.Example:443/",
            "CARDONFILE_TRUSTED_PROXY": "0:0:0:0:0:0:0:1",
        }
    )

    assert settings.public_base_url == "https://cards.example"
    assert settings.trusted_proxy == "::1"


def test_an_empty_value_counts_as_not_set() -> None:
    environment = {"CARDONFILE_LOG_FORMAT": "", "CARDONFILE_DATABASE_URL": ""}
    assert Settings.read(environment) == Settings.read({})


@pytest.mark.parametrize(
    ("base_url", "is_allowed"),
    [
        ("http://localhost:8000", True),
        ("http://127.0.0.2", True),
        ("http://[::1]:8000", True),
        ("https://cards.example", False),
        ("http://10.0.0.1", False),
        ("http://localhost.example", False),
    ],
)
def test_the_fake_psp_is_for_loopback_addresses(base_url: str, is_allowed: bool) -> None:
    environment = {"CARDONFILE_PUBLIC_BASE_URL": base_url}
    assert (fake(Settings.read(environment)) is not None) is is_allowed
    environment["CARDONFILE_ALLOW_FAKE_PSP"] = "1"
    assert fake(Settings.read(environment))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DATABASE_URL", "cardonfile.db"),
        ("DATABASE_URL", "sqlite:///"),
        ("DATABASE_URL", "sqlite:////"),
        ("DATABASE_URL", "mysql://host/db"),
        ("DATABASE_CONNECTIONS", "0"),
        ("DATABASE_CONNECTIONS", "ten"),
        ("PUBLIC_BASE_URL", "cards.example"),
        ("PUBLIC_BASE_URL", "https://cards.example/path"),
        ("PUBLIC_BASE_URL", "https://user:pass@cards.example"),
        ("PUBLIC_BASE_URL", "https://cards.example?x"),
        ("PUBLIC_BASE_URL", "ftp://cards.example"),
        ("PUBLIC_BASE_URL", "https://cards.example:99999"),
        ("PUBLIC_BASE_URL", "myapp://"),
        ("FAKE_PSP_DATABASE", "./cardonfile.db"),
        ("ALLOW_FAKE_PSP", "yes"),
        ("ALLOW_FAKE_PSP", "true"),
        ("ALLOW_FAKE_PSP", "0"),
        ("ALLOW_FAKE_PSP", " 1"),
        ("LOG_FORMAT", "xml"),
        ("TRUSTED_PROXY", "proxy.internal"),
        ("TRUSTED_PROXY", "*"),
        ("ADD_CARD_LIMIT", "sixty"),
        ("ADD_CARD_LIMIT", "60"),
        ("ADD_CARD_LIMIT", "0/minute"),
        ("ADD_CARD_LIMIT", "60/minute;1/second"),
        ("RATE_LIMIT_STORAGE", "redis.internal"),
        ("RATE_LIMIT_STORAGE", "redis://"),
        ("RATE_LIMIT_STORAGE", "redis://:s3cret@"),
        ("RATE_LIMIT_STORAGE", "redis://:s3cret@host:port"),
        ("RATE_LIMIT_STORAGE", "redis://:s3cret@host:0"),
        ("RATE_LIMIT_STORAGE", "redis://:s3cret@[host"),
        ("RATE_LIMIT_STORAGE", "redis://:s3cret@host/zero"),
        ("RATE_LIMIT_STORAGE", "redis://:s3cret@host?socket_timeout=60"),
        ("RATE_LIMIT_STORAGE", "redis://:s3cret@host\n"),
        ("RATE_LIMIT_STORAGE", "memory://"),
        ("RATE_LIMIT_STORAGE", "memcached://:s3cret@host"),
        ("STRIPE_API_BASE", "http://api.stripe.example"),
        ("STRIPE_API_BASE", "https://api.stripe.example/v1"),
        ("STRIPE_API_BASE", "api.stripe.example"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"CARDONFILE_{name}") as refused:
        Settings.read({f"CARDONFILE_{name}": value})
    assert "s3cret" not in str(refused.value)


Read = TypeVar("Read")

pieces = st.sampled_from(
    (
        *("sqlite:///", "sqlite:////", "postgresql://", "postgres://", "redis://", "rediss://"),
        *(
            "https://",
            "http://",
            "host",
            "s3cret",
            "127.0.0.1",
            "[::1]",
            ":6379",
            ":99999",
            "/0",
            "/",
        ),
        *(
            "@",
            ":",
            "?",
            "#",
            "%",
            "%zz",
            " ",
            "\n",
            "\u00b2",
            "[",
            "1",
            "60/minute",
            "0/day",
            "json",
        ),
    )
)
# No environment variable holds a NUL.
texts = st.lists(
    pieces | st.text(st.characters(exclude_characters="\0"), max_size=3), max_size=6
).map("".join)
PLAIN = (
    *("DATABASE_URL", "DATABASE_CONNECTIONS", "PUBLIC_BASE_URL", "FAKE_PSP_DATABASE", "LOG_FORMAT"),
    *("TRUSTED_PROXY", "ADD_CARD_LIMIT", "RATE_LIMIT_STORAGE", "STRIPE_API_BASE"),
    "ALLOW_FAKE_PSP",
    *("STRIPE_SECRET_KEY", "STRIPE_WEBHOOK_SECRETS", "STRIPE_X_SECRET_KEY"),
)


def read_or_complain(read: Callable[[], Read]) -> Read | str:
    """Give what is read, or the complaint."""
    try:
        return read()
    except SettingsError as complaint:
        return str(complaint)


@given(st.dictionaries(st.sampled_from(PLAIN).map("CARDONFILE_{}".format), texts))
def test_whatever_is_set_is_read_or_refused_in_one_line_that_does_not_repeat_it(
    environment: dict[str, str],
) -> None:
    settings = read_or_complain(lambda: Settings.read(environment))
    if isinstance(settings, str):
        assert settings.isprintable()
        assert "s3cret" not in settings
        return
    assert re.fullmatch(r"https?://[^/@\s]+", settings.public_base_url)
    RateLimits(add_card=settings.add_card_limit)
    if settings.rate_limit_storage is not None:
        assert isinstance(counts_in_redis(settings.rate_limit_storage), RedisStorage)


@given(texts)
def test_the_address_of_a_database_names_a_file_or_a_server(url: str) -> None:
    database = read_or_complain(lambda: parse_database_url(url))
    if isinstance(database, str):
        assert not url.startswith(("postgresql://", "postgres://"))
        assert url.removeprefix("sqlite:///") in ("", url)
        assert "s3cret" not in database
        return
    if isinstance(database, PostgresqlDatabase):
        assert database.url == url
        assert "s3cret" not in f"{database!r}{database}"
    else:
        assert database == Path(url.removeprefix("sqlite:///"))


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("CARDONFILE_DATABSE_URL", "CARDONFILE_DATABASE_URL"),
        ("cardonfile_database_url", "CARDONFILE_DATABASE_URL"),
        ("CARDONFILE_STRIPE_SECRETKEY", "CARDONFILE_STRIPE_SECRET_KEY"),
        ("CARDONFILE_STRIPE_WEBHOOK_SECRET", "CARDONFILE_STRIPE_WEBHOOK_SECRETS"),
        ("CARDONFILE_STRIPE_SPA_WEBHOOK_SECRET", "CARDONFILE_STRIPE_SPA_WEBHOOK_SECRETS"),
        ("CARDONFILE_STRIPE_KEY", "CARDONFILE_STRIPE_SECRET_KEY"),
        ("CARDONFILE_STRIPE_CURENCY", "CARDONFILE_STRIPE_CURRENCY"),
        ("CARDONFILE_PORT", None),
    ],
)
def test_a_name_that_no_setting_has_is_told_with_the_nearest(
    name: str, nearest: str | None
) -> None:
    environment = {name: "s3cret", "CARDONFILE_STRIPE_SPA_SECRET_KEY": "sk_test_x"}

    (sentence,) = unknown_settings(environment)

    assert sentence.startswith(f"{name} is not a setting")
    if nearest is not None:
        assert sentence.endswith(f"; the nearest is {nearest}")
    assert "s3cret" not in sentence
    assert unknown_settings({name: ""}) != []


def test_names_of_settings_of_tests_and_of_an_orchestration_are_known() -> None:
    used = re.compile(r"(?<![A-Z])CARDONFILE_[A-Z_]*[A-Z](?![A-Z_])")
    sources = (ROOT / "Makefile", ROOT / "tests/postgresql.py", ROOT / "docs/operations.md")
    names = {name for source in sources for name in used.findall(source.read_text())}
    assert {*Setting, "CARDONFILE_TEST_POSTGRESQL", "CARDONFILE_STRIPE_TEST_KEY"} <= names
    # A service called cardonfile and one called cardonfile-db, as Kubernetes tells of them.
    orchestration = {
        "CARDONFILE_SERVICE_HOST": "10.0.0.11",
        "CARDONFILE_SERVICE_PORT": "8000",
        "CARDONFILE_SERVICE_PORT_HTTP": "8000",
        "CARDONFILE_PORT": "tcp://10.0.0.11:8000",
        "CARDONFILE_PORT_8000_TCP": "tcp://10.0.0.11:8000",
        "CARDONFILE_PORT_8000_TCP_PROTO": "tcp",
        "CARDONFILE_DB_PORT_5432_TCP_ADDR": "10.0.0.12",
        "CARDONFILE_DB_SERVICE_HOST": "10.0.0.12",
    }

    given = dict.fromkeys(names, "x") | {Setting.PSPS: "stripe"} | orchestration
    assert unknown_settings(given) == []


class TestLiveKeys:
    LIVE: Final = {
        "CARDONFILE_STRIPE_SECRET_KEY": "sk_test_x",
        "CARDONFILE_STRIPE_WEBHOOK_SECRETS": "whsec_x",
        "CARDONFILE_STRIPE_SPA_SECRET_KEY": "rk_live_x",
        "CARDONFILE_STRIPE_SPA_WEBHOOK_SECRETS": "whsec_spa",
    }

    @pytest.mark.parametrize(
        ("more", "host", "named"),
        [
            ({}, "127.0.0.1", "set CARDONFILE_PUBLIC_BASE_URL"),
            ({}, "10.0.0.5", "set CARDONFILE_PUBLIC_BASE_URL"),
            ({"PUBLIC_BASE_URL": ""}, "127.0.0.1", "set CARDONFILE_PUBLIC_BASE_URL"),
            ({"PUBLIC_BASE_URL": "http://localhost"}, "::", "set CARDONFILE_PUBLIC_BASE_URL"),
            ({"PUBLIC_BASE_URL": "https://spa.localhost"}, "::", "set CARDONFILE_PUBLIC_BASE_URL"),
            ({"PUBLIC_BASE_URL": "http://0.0.0.0:8000"}, "::", "set CARDONFILE_PUBLIC_BASE_URL"),
            (
                {"PUBLIC_BASE_URL": "https://cards.example", "ALLOW_FAKE_PSP": "1"},
                "127.0.0.1",
                "unset CARDONFILE_ALLOW_FAKE_PSP",
            ),
        ],
    )
    def test_are_served_neither_on_this_machine_alone_nor_beside_the_fake_psp(
        self, more: dict[str, str], host: str, named: str
    ) -> None:
        environment = self.LIVE | {f"CARDONFILE_{name}": value for name, value in more.items()}

        with pytest.raises(SettingsError) as refused:
            Settings.read_to_serve(environment, host=host, port=8000)
        assert str(refused.value).startswith(
            f"CARDONFILE_STRIPE_SPA_SECRET_KEY is a live key: {named}"
        )
        if host != "::":
            assert Settings.read(environment, host=host).live_key

    def test_are_served_at_a_public_address(self) -> None:
        environment = {**self.LIVE, "CARDONFILE_PUBLIC_BASE_URL": "https://cards.example"}

        settings = Settings.read_to_serve(environment, host="127.0.0.1", port=8000)

        assert fake(settings) is None

    def test_of_test_mode_are_served_anywhere(self) -> None:
        environment = {**self.LIVE, "CARDONFILE_STRIPE_SPA_SECRET_KEY": "rk_test_x"}

        settings = Settings.read_to_serve(environment, host="127.0.0.1", port=8000)

        assert fake(settings)


class TestStripe:
    def test_each_account_has_its_keys(self) -> None:
        settings = Settings.read(
            {
                "CARDONFILE_STRIPE_SECRET_KEY": "sk_test_default",
                "CARDONFILE_STRIPE_WEBHOOK_SECRETS": "whsec_new, whsec_old",
                "CARDONFILE_STRIPE_HARBOR_SPA_SECRET_KEY": "rk_live_harbor",
                "CARDONFILE_STRIPE_HARBOR_SPA_WEBHOOK_SECRETS": "whsec_harbor",
                "CARDONFILE_STRIPE_HARBOR_SPA_CURRENCY": "EUR",
                "CARDONFILE_STRIPE_API_BASE": "http://127.0.0.1:9000/",
            }
        )

        of_stripe = stripe(settings)
        assert of_stripe is not None
        assert of_stripe.accounts == {
            MerchantAccount("default"): StripeKeys(
                secret_key="sk_test_default", webhook_secrets=("whsec_new", "whsec_old")
            ),
            MerchantAccount("harbor_spa"): StripeKeys(
                secret_key="rk_live_harbor", webhook_secrets=("whsec_harbor",), currency="eur"
            ),
        }
        assert of_stripe.api_base == "http://127.0.0.1:9000"
        shown = repr(settings)
        assert "sk_test" not in shown
        assert "whsec" not in shown

    @pytest.mark.parametrize("account", ["default", "harbor_spa", "2", "secret_key", "_"])
    def test_the_settings_of_an_account_are_read_under_the_names_they_are_given(
        self, account: str
    ) -> None:
        key, secrets = (
            ACCOUNT_SETTINGS.name(what, MerchantAccount(account)) for what in (KEY, SECRETS)
        )
        of_stripe = stripe(Settings.read({key: "sk_test_x", secrets: "whsec_x"}))
        assert of_stripe is not None
        assert list(of_stripe.accounts) == [account]

    def test_the_currency_of_the_default_account_is_read(self) -> None:
        settings = Settings.read(
            {
                "CARDONFILE_STRIPE_SECRET_KEY": "sk_test_x",
                "CARDONFILE_STRIPE_WEBHOOK_SECRETS": "whsec_x",
                "CARDONFILE_STRIPE_CURRENCY": "usd",
            }
        )
        of_stripe = stripe(settings)
        assert of_stripe is not None
        assert of_stripe.accounts[MerchantAccount("default")].currency == "usd"

    def test_empty_ones_count_as_not_set(self) -> None:
        empty = {"CARDONFILE_STRIPE_SECRET_KEY": "", "CARDONFILE_STRIPE_X_WEBHOOK_SECRETS": ""}
        assert stripe(Settings.read(empty)) is None

    @pytest.mark.parametrize(
        ("settings", "named"),
        [
            ({"SECRET_KEY": "sk_test_x"}, "CARDONFILE_STRIPE_WEBHOOK_SECRETS is missing"),
            ({"WEBHOOK_SECRETS": "whsec_x"}, "CARDONFILE_STRIPE_SECRET_KEY is missing"),
            ({"X_SECRET_KEY": "sk_test_x"}, "CARDONFILE_STRIPE_X_WEBHOOK_SECRETS is missing"),
            (
                {"CURRENCY": "eur"},
                "STRIPE_SECRET_KEY is missing; CARDONFILE_STRIPE_CURRENCY does not",
            ),
            (
                {"X_SECRET_KEY": "a", "X_WEBHOOK_SECRETS": "whsec_x", "X_CURRENCY": "euro"},
                "CARDONFILE_STRIPE_X_CURRENCY must be",
            ),
            ({"SECRET_KEY": "pk_test_x", "WEBHOOK_SECRETS": "whsec_x"}, "_SECRET_KEY must be"),
            ({"SECRET_KEY": "whsec_y", "WEBHOOK_SECRETS": "whsec_x"}, "_SECRET_KEY must be"),
            ({"SECRET_KEY": "sk_test_x", "WEBHOOK_SECRETS": "sk_test_y"}, "SECRETS must hold"),
            ({"SECRET_KEY": "sk_test_x", "WEBHOOK_SECRETS": "whsec_x,"}, "SECRETS must hold"),
            ({"SECRET_KEY": "sk_test_x", "WEBHOOK_SECRETS": " "}, "SECRETS is blank"),
            ({"SECRET_KEY": "sk_test_x", "WEBHOOK_SECRETS": "whsec_"}, "SECRETS must hold"),
            ({"SECRET_KEY": "sk_test_x", "WEBHOOK_SECRETS": "whsec_a b"}, "SECRETS must hold"),
            (
                {"DEFAULT_SECRET_KEY": "sk_test_x", "DEFAULT_WEBHOOK_SECRETS": "whsec_x"},
                "the default account's is CARDONFILE_STRIPE_",
            ),
            (
                {"harbor_SECRET_KEY": "sk_test_x", "harbor_WEBHOOK_SECRETS": "whsec_x"},
                "capital letters",
            ),
            (
                {"HARBOR-SPA_SECRET_KEY": "sk_test_x", "HARBOR-SPA_WEBHOOK_SECRETS": "whsec_x"},
                "capital letters",
            ),
            (
                {"A" * 65 + "_SECRET_KEY": "sk_test_x"},
                "capital letters",
            ),
            (
                {
                    "A_SECRET_KEY": "sk_test_x",
                    "A_WEBHOOK_SECRETS": "whsec_a",
                    "B_SECRET_KEY": "sk_test_x",
                    "B_WEBHOOK_SECRETS": "whsec_b",
                },
                "CARDONFILE_STRIPE_A_SECRET_KEY and CARDONFILE_STRIPE_B_SECRET_KEY hold the same",
            ),
            (
                {
                    "A_SECRET_KEY": "sk_test_a",
                    "A_WEBHOOK_SECRETS": "whsec_x,whsec_a",
                    "B_SECRET_KEY": "sk_test_b",
                    "B_WEBHOOK_SECRETS": "whsec_x",
                },
                "hold the same",
            ),
        ],
    )
    def test_half_set_and_ambiguous_ones_are_refused_and_not_repeated(
        self, settings: dict[str, str], named: str
    ) -> None:
        environment = {f"CARDONFILE_STRIPE_{name}": value for name, value in settings.items()}
        with pytest.raises(SettingsError, match=named) as refused:
            Settings.read(environment)
        assert "sk_test_x" not in str(refused.value)
        assert "whsec_x" not in str(refused.value)
