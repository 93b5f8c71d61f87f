from __future__ import annotations

from pathlib import Path

import pytest

from entrypoints.settings import LogFormat, PostgresqlDatabase, Settings, SettingsError


def test_without_an_environment_everything_is_in_this_folder_on_this_machine() -> None:
    settings = Settings.read({})

    assert settings.database == Path("cardonfile.db")
    assert settings.fake_psp_database == Path("cardonfile-fake-psp.db")
    assert settings.public_base_url == "http://127.0.0.1:8000"
    assert settings.fake_psp_is_allowed
    assert settings.log_format is LogFormat.TEXT
    assert settings.trusted_proxy is None
    assert settings.add_card_limit is None


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_the_address_of_a_server_is_kept_as_it_is_and_shown_nowhere(scheme: str) -> None:
    url = f"{scheme}://cardonfile:s3cret@db.internal/cardonfile"
    settings = Settings.read({"CARDONFILE_DATABASE_URL": url})

    assert settings.database == PostgresqlDatabase(url)
    assert "s3cret" not in f"{settings!r} {settings} {settings.database}"
    assert settings.fake_psp_database == Path("cardonfile-fake-psp.db")
    assert settings.database_connections == 10


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
    assert Settings.read(environment).fake_psp_is_allowed is is_allowed
    environment["CARDONFILE_ALLOW_FAKE_PSP"] = "1"
    assert Settings.read(environment).fake_psp_is_allowed
    environment["CARDONFILE_ALLOW_FAKE_PSP"] = "yes"
    assert Settings.read(environment).fake_psp_is_allowed is is_allowed


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DATABASE_URL", "cardonfile.db"),
        ("DATABASE_URL", "sqlite:///"),
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
        ("LOG_FORMAT", "xml"),
        ("TRUSTED_PROXY", "proxy.internal"),
        ("TRUSTED_PROXY", "*"),
        ("ADD_CARD_LIMIT", "sixty"),
        ("ADD_CARD_LIMIT", "60"),
        ("ADD_CARD_LIMIT", "0/minute"),
        ("ADD_CARD_LIMIT", "60/minute;1/second"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"CARDONFILE_{name}"):
        Settings.read({f"CARDONFILE_{name}": value})
