from __future__ import annotations

import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from dependency_injector import providers

from adapters.fake_psp.plugin import NAME as FAKE
from adapters.stripe.plugin import NAME as STRIPE
from domain.identifiers import ProviderName
from entrypoints.container import build
from entrypoints.settings import Settings
from entrypoints.settings_error import SettingsError
from tests.databases import make_database
from tests.installation import EVIDENCE_KEYS

LOOPBACK: dict[str, str] = {}
PUBLIC = {"CARDONFILE_PUBLIC_BASE_URL": "https://cards.example"}
ALLOWED = {**PUBLIC, "CARDONFILE_ALLOW_FAKE_PSP": "1"}
WITH_STRIPE = {
    **PUBLIC,
    "CARDONFILE_STRIPE_SECRET_KEY": "sk_test_x",
    "CARDONFILE_STRIPE_WEBHOOK_SECRETS": "whsec_x",
}
# Not fetched before a token comes.
WITH_JWT = {
    **PUBLIC,
    "CARDONFILE_JWT_ISSUER": "https://id.example",
    "CARDONFILE_JWT_AUDIENCE": "cardonfile",
    "CARDONFILE_JWT_KEYS": "https://id.example/certs",
}
EVERYTHING = {
    **ALLOWED,
    **WITH_STRIPE,
    **WITH_JWT,
    "CARDONFILE_LOG_FORMAT": "json",
    "CARDONFILE_TRUSTED_PROXY": "10.0.0.5,10.20.0.0/16",
    "CARDONFILE_WRITE_LIMIT": "60/minute",
    # Not connected before something is counted.
    "CARDONFILE_RATE_LIMIT_STORAGE": "redis://127.0.0.1:1",
}


def settings_in(folder: Path, environment: dict[str, str]) -> Settings:
    folder.mkdir(exist_ok=True)
    database = folder / "cards.db"
    make_database(database)
    return Settings.read({**environment, "CARDONFILE_DATABASE_URL": f"sqlite:///{database}"})


@pytest.mark.parametrize(
    ("environment", "psps", "left_out"),
    [
        (LOOPBACK, {FAKE}, ["public_origin"]),
        (PUBLIC, set(), []),
        (ALLOWED, {FAKE}, []),
        (WITH_STRIPE, {STRIPE}, []),
        (EVERYTHING, {FAKE, STRIPE}, []),
    ],
)
def test_every_part_of_the_container_can_be_built_with_each_example_of_settings(
    tmp_path: Path, environment: dict[str, str], psps: set[ProviderName], left_out: list[str]
) -> None:
    container = build(settings_in(tmp_path, environment))
    with closing(container.storage()):
        parts = {name: provider() for name, provider in container.providers.items()}
        assert [name for name, part in parts.items() if part is None] == left_out
        for name, provider in container.providers.items():
            if isinstance(provider, providers.ThreadSafeSingleton):
                assert provider() is parts[name], name
        assert parts["psps"].keys() == psps
    assert (tmp_path / "cards-fake-psp.db").exists() is (FAKE in psps)


@pytest.mark.parametrize(
    ("package", "modules", "environment", "part"),
    [
        ("stripe", ["stripe.provider", "stripe.calls", "stripe.transport"], WITH_STRIPE, "psps"),
        ("jwt", ["json_web_tokens"], WITH_JWT, "identity"),
    ],
)
def test_a_part_of_the_container_names_the_optional_package_that_it_lacks(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    package: str,
    modules: list[str],
    environment: dict[str, str],
    part: str,
) -> None:
    for name in modules:
        monkeypatch.delitem(sys.modules, f"adapters.{name}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)

    assert FAKE in build(settings_in(tmp_path, LOOPBACK)).psps()
    container = build(settings_in(tmp_path / "other", environment))
    with pytest.raises(SettingsError, match=f"install the extra `{package}`"):
        container.providers[part]()


@pytest.mark.parametrize(
    "keys", ["not JSON", EVIDENCE_KEYS.replace('"d"', '"other"')], ids=["text", "public key"]
)
def test_evidence_keys_that_cannot_sign_are_refused_when_the_service_starts(
    tmp_path: Path, keys: str
) -> None:
    settings = settings_in(tmp_path, {**LOOPBACK, "CARDONFILE_EVIDENCE_KEYS": keys})

    with pytest.raises(SettingsError, match="CARDONFILE_EVIDENCE_KEYS must be keys") as refused:
        build(settings).behind_proxy()
    assert "nWGxne" not in str(refused.value)


def test_arguments_cannot_be_added_to_a_part_of_the_container_that_is_already_built(
    tmp_path: Path,
) -> None:
    container = build(settings_in(tmp_path, LOOPBACK))
    container.erase_guest()

    with pytest.raises(RuntimeError, match="SystemClock is built already, without steady_after"):
        container.clock.add_kwargs(steady_after=timedelta(0))
