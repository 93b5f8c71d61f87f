from __future__ import annotations

import os
import re
from ipaddress import ip_network
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from limits.storage import RedisStorage

from adapters.fake_psp.plugin import NAME as FAKE
from adapters.fake_psp.plugin import FakeSettings
from adapters.http.rate_limits import RateLimits, counts_in_redis
from adapters.stripe.keys import StripeKeys
from adapters.stripe.plugin import ACCOUNT_SETTINGS, KEY, SECRETS, StripeSettings
from adapters.stripe.plugin import NAME as STRIPE
from domain.centers.card_limit import Counted, CountedPer
from domain.identifiers import MerchantAccount
from entrypoints.settings import (
    LogFormat,
    LogLevel,
    PostgresqlDatabase,
    Setting,
    Settings,
    unknown_settings,
)
from entrypoints.settings_error import SettingsError
from tests.fuzzing import TIMES


def read(environment: dict[str, str]) -> Settings | str:
    """Read the settings, or return the sentence that refuses them."""
    try:
        return Settings.read(environment)
    except SettingsError as refused:
        return str(refused)


def fake(settings: Settings) -> Path | None:
    """Return the file of the fake PSP, or None if the fake PSP is not allowed."""
    own = settings.psps[FAKE].settings
    assert own is None or isinstance(own, FakeSettings)
    return None if own is None else own.database


def stripe(environment: dict[str, str]) -> StripeSettings | None:
    """Return the settings of Stripe, or None if no keys are set."""
    own = Settings.read(environment).psps[STRIPE].settings
    assert own is None or isinstance(own, StripeSettings)
    return own


@pytest.mark.parametrize("environment", [{}, dict.fromkeys(Setting, "")], ids=["unset", "empty"])
def test_all_database_files_are_in_the_current_folder_by_default(
    environment: dict[str, str],
) -> None:
    settings = Settings.read(environment)

    assert settings.database == Path("cardonfile.db")
    assert fake(settings) == Path("cardonfile-fake-psp.db")
    assert settings.public_base_url == "http://127.0.0.1:8000"
    assert settings.log_format is LogFormat.TEXT
    assert settings.log_level is LogLevel.INFO
    assert settings.database_connections == 10
    assert (settings.psp_calls, settings.worker_threads) == (4, 16)
    assert settings.trusted_proxy == ()
    assert settings.write_limit is None
    assert settings.rate_limit_storage is None
    assert (settings.metrics, settings.metrics_folder) == (None, None)
    assert (stripe(environment), settings.jwt) == (None, None)


# Shows S18.
@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_the_repr_of_settings_does_not_show_the_address_of_a_database_server(scheme: str) -> None:
    postgresql = f"{scheme}://cardonfile:s3cret@db.internal/cardonfile"
    redis = "rediss://cardonfile:s3cret@[::1]:6380/0"
    read = Settings.read(
        {"CARDONFILE_DATABASE_URL": postgresql, "CARDONFILE_RATE_LIMIT_STORAGE": redis}
    )

    assert read.database == PostgresqlDatabase(postgresql)
    assert read.rate_limit_storage == redis
    assert "s3cret" not in f"{read!r} {read} {read.database}"
    assert fake(read) == Path("cardonfile-fake-psp.db")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("DATABASE_URL", "sqlite:////srv/cards.db", Path("/srv/cards.db")),
        ("PUBLIC_BASE_URL", "HTTPS://Cards.Example:443/", "https://cards.example"),
        ("METRICS", "127.0.0.1:9464", ("127.0.0.1", 9464)),
        ("METRICS", "[::1]:65535", ("::1", 65_535)),
        ("METRICS", "metrics.internal:1", ("metrics.internal", 1)),
        (
            *("TRUSTED_PROXY", "::ffff:10.0.0.5, ::ffff:10.20.0.0/112,10.0.0.6,fd00::/8"),
            tuple(map(ip_network, ("10.0.0.5/32", "10.20.0.0/16", "10.0.0.6/32", "fd00::/8"))),
        ),
    ],
)
def test_the_values_of_settings_are_normalized(name: str, value: str, expected: object) -> None:
    settings = Settings.read({f"CARDONFILE_{name}": value})
    assert getattr(settings, {"DATABASE_URL": "database"}.get(name, name.lower())) == expected


def test_the_public_base_url_is_the_listening_address_by_default() -> None:
    assert Settings.read({}, host="::1", port=9000).public_base_url == "http://[::1]:9000"
    for host in ("0.0.0.0", "::"):  # noqa: S104 - nothing is bound here
        with pytest.raises(SettingsError, match="CARDONFILE_PUBLIC_BASE_URL"):
            Settings.read({}, host=host)
        public = {"CARDONFILE_PUBLIC_BASE_URL": "https://cards.example"}
        assert Settings.read(public, host=host).public_base_url == "https://cards.example"


def test_the_fake_psp_is_allowed_only_on_loopback_addresses() -> None:
    for loopback in ("http://localhost:8000", "http://127.0.0.2", "http://[::1]:8000"):
        assert fake(Settings.read({"CARDONFILE_PUBLIC_BASE_URL": loopback}))
    for public in ("https://cards.example", "http://10.0.0.1", "http://localhost.example"):
        environment = {"CARDONFILE_PUBLIC_BASE_URL": public}
        assert fake(Settings.read(environment)) is None
        assert fake(Settings.read({**environment, "CARDONFILE_ALLOW_FAKE_PSP": "1"}))


UNUSABLE: Final = {
    "DATABASE_URL": ("cardonfile.db", "sqlite:////", "mysql://host/db"),
    "DATABASE_CONNECTIONS": ("0",),
    "EVIDENCE_BROWSER_DAYS": ("1000", "-1"),
    "PSP_CALLS": ("1000",),
    "WORKER_THREADS": ("ten",),
    "PUBLIC_BASE_URL": ("cards.example", "https://a.example/path", "https://u:s3cret@a.example"),
    "FAKE_PSP_DATABASE": ("./cardonfile.db",),
    "ALLOW_FAKE_PSP": ("yes", "0"),
    "HSTS": ("31536000", "max-age=-1", "max-age=1; preload", "max-age=1\r\nX-A: b"),
    "LOG_FORMAT": ("xml",),
    "LOG_LEVEL": ("debug",),
    "METRICS": ("9464", ":9464", "::1:9464", "127.0.0.1:65536", "http://127.0.0.1:9464"),
    "TRUSTED_PROXY": ("proxy.internal", "10.0.0.5/8", "10.0.0.5,0.0.0.0/0", "::ffff:0:0/96"),
    "WRITE_LIMIT": ("60", "0/minute", "60/minute;1/second"),
    "CARD_TESTING_LIMITS": (
        *("10", "guest=10", "guest=0/10", "guest=off", "guest=1000000/10", "shop=10/10"),
        *("guest=10/10,guest=20/20", "guest=10/10,"),
    ),
    "RATE_LIMIT_STORAGE": (
        "memory://",
        "redis://:s3cret@",
        "redis://:s3cret@host?socket_timeout=60",
    ),
    "STRIPE_API_BASE": ("http://api.stripe.example", "https://api.stripe.example/v1"),
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in UNUSABLE.items() for value in values]
)
def test_the_refusal_of_an_invalid_setting_names_the_setting(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"CARDONFILE_{name}") as refused:
        Settings.read({f"CARDONFILE_{name}": value})
    assert "s3cret" not in str(refused.value)


DEFAULTS: Final = "guest 10 10, guest-everywhere off 30, caller 5000 500, center 1000 200"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", DEFAULTS),
        ("off", ""),
        ("guest=10/10,guest-everywhere=off/30,caller=5000/500,center=1000/200", DEFAULTS),
        ("caller=20000/off", DEFAULTS.replace("caller 5000 500", "caller 20000 off")),
        ("center=off/50, guest=off/off", "guest-everywhere off 30, caller 5000 500, center off 50"),
        ("guest-everywhere=40/60", DEFAULTS.replace("everywhere off 30", "everywhere 40 60")),
    ],
)
def test_each_card_testing_limit_can_be_set(value: str, expected: str) -> None:
    limits = Settings.read({"CARDONFILE_CARD_TESTING_LIMITS": value}).card_testing_limits
    at_most = {(each.per, each.counted): str(each.at_most) for each in limits}
    assert len(at_most) == len(limits)
    described = [
        f"{per} {' '.join(at_most.get((per, counted), 'off') for counted in Counted)}"
        for per in CountedPer
        if any(each.per is per for each in limits)
    ]
    assert ", ".join(described) == expected


pieces = st.sampled_from(
    (
        *("sqlite:///", "postgresql://", "redis://", "https://", "host", "s3cret", "127.0.0.1"),
        *("[::1]", ":6379", ":99999", "/0", "%zz", "60/minute", "json", *"/@:?#[1 \u00b2\n"),
        *("guest=10/10", "center=off/", "off", ","),
    )
)
# No environment variable can hold a NUL.
texts = st.lists(
    pieces | st.text(st.characters(exclude_characters="\0"), max_size=3), max_size=6
).map("".join)
NAMES: Final = (
    *(name for name in Setting if name is not Setting.PSPS),
    *("CARDONFILE_ALLOW_FAKE_PSP", "CARDONFILE_FAKE_PSP_DATABASE", "CARDONFILE_STRIPE_API_BASE"),
    *ACCOUNT_SETTINGS.names(["CARDONFILE_STRIPE_X_SECRET_KEY"]),
    "CARDONFILE_DATABASE_URL_FILE",
)


# Shows S18.
@settings(max_examples=50 * TIMES)
@given(st.dictionaries(st.sampled_from(sorted(NAMES)), texts))
def test_any_invalid_setting_value_is_refused_in_one_line_that_does_not_show_the_value(
    environment: dict[str, str],
) -> None:
    settings = read(environment)
    if isinstance(settings, str):
        assert settings.isprintable()
        assert "s3cret" not in settings
        return
    assert re.fullmatch(r"https?://[^/@\s]+", settings.public_base_url)
    RateLimits(write=settings.write_limit)
    if settings.rate_limit_storage is not None:
        assert isinstance(counts_in_redis(settings.rate_limit_storage), RedisStorage)


class TestFiles:
    def test_any_setting_can_be_read_from_a_file(self, tmp_path: Path) -> None:
        url, key, secret = tmp_path / "url", tmp_path / "key", tmp_path / "secret"
        url.write_text("postgresql://cardonfile:s3cret@db.internal/cardonfile\n")
        key.write_bytes(b"\xef\xbb\xbfsk_test_s3cret\r\n")
        secret.write_text("whsec_s3cret")
        named = {
            "CARDONFILE_DATABASE_URL_FILE": str(url),
            "CARDONFILE_STRIPE_SPA_SECRET_KEY_FILE": str(key),
            "CARDONFILE_STRIPE_SPA_WEBHOOK_SECRETS_FILE": str(secret),
            "CARDONFILE_PUBLIC_BASE_URL_FILE": "",
            # The value of this setting is itself the name of a file.
            "CARDONFILE_ERASURES_FILE": "erased",
            "OTHER_FILE": "/nowhere",
        }

        settings = Settings.read_to_serve(named, host="127.0.0.1")

        assert settings.database == PostgresqlDatabase(url.read_text().strip())
        assert settings.psps[STRIPE].settings.accounts == {
            "spa": StripeKeys(secret_key="sk_test_s3cret", webhook_secrets=("whsec_s3cret",))
        }
        assert settings.erasures_file == Path("erased")

    # Shows S18.
    @pytest.mark.parametrize("text", [b"", b" \n", b"\xff", b"a\0b", b"x" * 70_000])
    def test_the_refusal_of_a_settings_file_does_not_show_its_content(
        self, tmp_path: Path, text: bytes
    ) -> None:
        (tmp_path / "s3cret").write_bytes(text)
        os.mkfifo(tmp_path / "s3cret-pipe")
        for name in ("s3cret", "s3cret-pipe", "s3cret-missing", "."):
            refused = str(read({"CARDONFILE_RATE_LIMIT_STORAGE_FILE": str(tmp_path / name)}))
            assert refused.startswith("CARDONFILE_RATE_LIMIT_STORAGE_FILE must name a file ")
            assert "s3cret" not in refused

    def test_the_settings_of_a_psp_that_is_enabled_in_a_file_are_recognized(
        self, tmp_path: Path
    ) -> None:
        (tmp_path / "psps").write_text("missing\n")

        with pytest.raises(SettingsError, match="missing"):
            unknown_settings({"CARDONFILE_PSPS_FILE": str(tmp_path / "psps")})

    def test_a_setting_that_is_given_both_as_a_value_and_in_a_file_is_refused(
        self, tmp_path: Path
    ) -> None:
        named = {"CARDONFILE_DATABASE_URL_FILE": str(tmp_path / "url")}
        both = "DATABASE_URL and CARDONFILE_DATABASE_URL_FILE are both set: unset one of them$"

        for value, said in (("sqlite:///s3cret.db", both), ("", "must name")):
            with pytest.raises(SettingsError, match=said):
                Settings.read({**named, "CARDONFILE_DATABASE_URL": value})


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("CARDONFILE_ERASURE_FILE", "CARDONFILE_ERASURES_FILE"),
        ("CARDONFILE_DATABSE_URL", "CARDONFILE_DATABASE_URL"),
        ("cardonfile_database_url", "CARDONFILE_DATABASE_URL"),
        ("CARDONFILE_STRIPE_SPA_WEBHOOK_SECRET", "CARDONFILE_STRIPE_SPA_WEBHOOK_SECRETS"),
        ("CARDONFILE_STRIPE_CURENCY", "CARDONFILE_STRIPE_CURRENCY"),
        ("CARDONFILE_PORT", ""),
    ],
)
def test_an_unknown_setting_is_reported_with_the_nearest_name(name: str, nearest: str) -> None:
    environment = {name: "s3cret", "CARDONFILE_STRIPE_SPA_SECRET_KEY": "sk_test_x"}

    (sentence,) = unknown_settings(environment)

    assert sentence.startswith(f"{name} is not a setting")
    assert sentence.partition("; did you mean ")[2] == nearest
    assert "s3cret" not in sentence
    assert unknown_settings({name: ""}) != []
    (replaced,) = unknown_settings({"CARDONFILE_ADD_CARD_LIMIT": "60/minute"})
    assert replaced.startswith("CARDONFILE_ADD_CARD_LIMIT was replaced by CARDONFILE_WRITE_LIMIT")


def test_variables_that_an_orchestrator_sets_do_not_count_as_unknown_settings() -> None:
    # Kubernetes sets these variables for the services cardonfile and cardonfile-db.
    orchestration = {
        "CARDONFILE_SERVICE_HOST": "10.0.0.11",
        "CARDONFILE_SERVICE_PORT_HTTP": "8000",
        "CARDONFILE_PORT": "tcp://10.0.0.11:8000",
        "CARDONFILE_PORT_8000_TCP": "tcp://10.0.0.11:8000",
        "CARDONFILE_DB_PORT_5432_TCP_ADDR": "10.0.0.12",
    }
    own = dict.fromkeys((*NAMES, "CARDONFILE_TEST_POSTGRESQL", "CARDONFILE_STRIPE_TEST_KEY"), "x")

    assert unknown_settings({**own, **orchestration, Setting.PSPS: "stripe"}) == []


class TestLiveKeys:
    LIVE: Final = {
        "CARDONFILE_STRIPE_SECRET_KEY": "sk_test_x",
        "CARDONFILE_STRIPE_WEBHOOK_SECRETS": "whsec_x",
        "CARDONFILE_STRIPE_SPA_SECRET_KEY": "rk_live_x",
        "CARDONFILE_STRIPE_SPA_WEBHOOK_SECRETS": "whsec_spa",
    }
    PUBLIC: Final = {"CARDONFILE_PUBLIC_BASE_URL": "https://cards.example"}

    @pytest.mark.parametrize(
        ("more", "host", "named"),
        [
            ({}, "10.0.0.5", "set CARDONFILE_PUBLIC_BASE_URL"),
            ({"CARDONFILE_PUBLIC_BASE_URL": "http://spa.localhost"}, "::", "set CARDONFILE_PUBLIC"),
            ({"CARDONFILE_PUBLIC_BASE_URL": "http://0.0.0.0:8000"}, "::", "set CARDONFILE_PUBLIC"),
            (
                {**PUBLIC, "CARDONFILE_ALLOW_FAKE_PSP": "1"},
                *("127.0.0.1", "unset CARDONFILE_ALLOW_FAKE_PSP"),
            ),
        ],
    )
    def test_live_keys_are_refused_on_loopback_addresses_or_together_with_the_fake_psp(
        self, more: dict[str, str], host: str, named: str
    ) -> None:
        with pytest.raises(SettingsError) as refused:
            Settings.read_to_serve(self.LIVE | more, host=host, port=8000)
        assert str(refused.value).startswith(
            f"CARDONFILE_STRIPE_SPA_SECRET_KEY is a live key: {named}"
        )

    def test_live_keys_require_a_public_address_but_test_keys_do_not(self) -> None:
        for changed in (self.PUBLIC, {"CARDONFILE_STRIPE_SPA_SECRET_KEY": "rk_test_x"}):
            settings = Settings.read_to_serve(self.LIVE | changed, host="127.0.0.1", port=8000)
            assert (settings.live_key is None) is (fake(settings) is not None)


class TestStripe:
    def test_each_merchant_account_of_stripe_has_its_own_keys(self) -> None:
        environment = {
            "CARDONFILE_STRIPE_SECRET_KEY": "sk_test_default",
            "CARDONFILE_STRIPE_WEBHOOK_SECRETS": "whsec_new, whsec_old",
            "CARDONFILE_STRIPE_CURRENCY": "usd",
            "CARDONFILE_STRIPE_HARBOR_SPA_SECRET_KEY": "rk_live_harbor",
            "CARDONFILE_STRIPE_HARBOR_SPA_WEBHOOK_SECRETS": "whsec_harbor",
            "CARDONFILE_STRIPE_HARBOR_SPA_CURRENCY": "EUR",
            "CARDONFILE_STRIPE_X_SECRET_KEY": "",
            "CARDONFILE_STRIPE_API_BASE": "http://127.0.0.1:9000/",
        }

        of_stripe = stripe(environment)
        assert of_stripe is not None
        secrets = ("whsec_new", "whsec_old")
        assert of_stripe.accounts == {
            "default": StripeKeys(
                secret_key="sk_test_default", webhook_secrets=secrets, currency="usd"
            ),
            "harbor_spa": StripeKeys(
                secret_key="rk_live_harbor", webhook_secrets=("whsec_harbor",), currency="eur"
            ),
        }
        assert of_stripe.api_base == "http://127.0.0.1:9000"
        assert not re.search("sk_test|rk_live|whsec", repr(Settings.read(environment)))

    def test_a_setting_named_for_a_merchant_account_applies_to_that_account(self) -> None:
        for account in map(MerchantAccount, ("default", "2", "secret_key", "_")):
            key, secrets = (ACCOUNT_SETTINGS.name(what, account) for what in (KEY, SECRETS))
            of_stripe = stripe({key: "sk_test_x", secrets: "whsec_x"})
            assert of_stripe is not None
            assert list(of_stripe.accounts) == [account]

    WHOLE: Final = {"SECRET_KEY": "sk_test_x", "WEBHOOK_SECRETS": "whsec_x"}
    X: Final = {f"X_{name}": value for name, value in WHOLE.items()}
    NO_SECRET: Final = "SECRETS must be a webhook secret"

    # Shows S13.
    @pytest.mark.parametrize(
        ("settings", "named"),
        [
            ({"SECRET_KEY": "sk_test_x"}, "CARDONFILE_STRIPE_WEBHOOK_SECRETS is missing"),
            ({"X_WEBHOOK_SECRETS": "whsec_x"}, "CARDONFILE_STRIPE_X_SECRET_KEY is missing"),
            ({"CURRENCY": "eur"}, "missing; CARDONFILE_STRIPE_CURRENCY also needs"),
            ({**X, "X_CURRENCY": "euro"}, "CARDONFILE_STRIPE_X_CURRENCY must be"),
            ({**WHOLE, "SECRET_KEY": "pk_test_x"}, "_SECRET_KEY must be .* not a publishable key"),
            ({**WHOLE, "WEBHOOK_SECRETS": "sk_test_y"}, NO_SECRET),
            ({**WHOLE, "WEBHOOK_SECRETS": "whsec_x,"}, NO_SECRET),
            ({**WHOLE, "WEBHOOK_SECRETS": "whsec_"}, NO_SECRET),
            ({**WHOLE, "WEBHOOK_SECRETS": " "}, "SECRETS is blank"),
            ({"DEFAULT_SECRET_KEY": "sk_test_x"}, "default account, set CARDONFILE_STRIPE_"),
            ({"harbor_SECRET_KEY": "sk_test_x"}, "capital letters"),
            ({"HARBOR-SPA_SECRET_KEY": "sk_test_x"}, "capital letters"),
            ({"A" * 65 + "_SECRET_KEY": "sk_test_x"}, "capital letters"),
            (
                {**WHOLE, **X, "X_WEBHOOK_SECRETS": "whsec_y"},
                "STRIPE_SECRET_KEY and CARDONFILE_STRIPE_X_SECRET_KEY have the same value",
            ),
            (
                {**WHOLE, "WEBHOOK_SECRETS": "whsec_x,whsec_a", **X, "X_SECRET_KEY": "sk_test_y"},
                "have the same value",
            ),
        ],
    )
    def test_incomplete_or_ambiguous_stripe_keys_are_refused_without_showing_the_keys(
        self, settings: dict[str, str], named: str
    ) -> None:
        environment = {f"CARDONFILE_STRIPE_{name}": value for name, value in settings.items()}
        with pytest.raises(SettingsError, match=named) as refused:
            Settings.read(environment)
        assert "sk_test_x" not in str(refused.value)
        assert "whsec_x" not in str(refused.value)


class TestJwt:
    ISSUER: Final = {"CARDONFILE_JWT_ISSUER": "https://id.example"}
    WHOLE: Final = {
        **ISSUER,
        "CARDONFILE_JWT_AUDIENCE": "cardonfile",
        "CARDONFILE_JWT_KEYS": "https://id.example/certs",
    }

    @pytest.mark.parametrize(
        ("settings", "named"),
        [
            (ISSUER, "CARDONFILE_JWT_AUDIENCE is missing"),
            ({"CARDONFILE_JWT_CENTERS_CLAIM": "centers"}, "CARDONFILE_JWT_ISSUER is missing"),
            ({**WHOLE, "CARDONFILE_JWT_KEYS": "http://id.example/certs"}, "must be the https"),
            ({**WHOLE, "CARDONFILE_JWT_KEYS": "https://u:p@id.example/certs"}, "must be the https"),
            ({**WHOLE, "CARDONFILE_JWT_KEYS": "file:///etc/keys"}, "must be the https"),
        ],
    )
    def test_invalid_settings_for_json_web_tokens_are_refused(
        self, settings: dict[str, str], named: str
    ) -> None:
        with pytest.raises(SettingsError, match=named):
            Settings.read(settings)

    def test_the_names_of_the_claims_in_json_web_tokens_have_defaults(self) -> None:
        jwt = Settings.read(self.WHOLE).jwt

        assert jwt is not None
        claims = (jwt.caller_claim, jwt.permissions_claim, jwt.centers_claim, jwt.token_type)
        assert claims == ("sub", "permissions", None, None)
        named = Settings.read({**self.WHOLE, "CARDONFILE_JWT_TYPE": "at+jwt"}).jwt
        assert named is not None
        assert named.token_type == "at+jwt"
