from __future__ import annotations

from pathlib import Path

import pytest
from dependency_injector import providers

from entrypoints.container import FAKE, build
from entrypoints.settings import Settings
from tests.databases import make_database

LOOPBACK: dict[str, str] = {}
PUBLIC = {"CARDONFILE_PUBLIC_BASE_URL": "https://cards.example"}
ALLOWED = {**PUBLIC, "CARDONFILE_ALLOW_FAKE_PSP": "1"}
EVERYTHING = {
    **ALLOWED,
    "CARDONFILE_LOG_FORMAT": "json",
    "CARDONFILE_TRUSTED_PROXY": "10.0.0.5",
    "CARDONFILE_ADD_CARD_LIMIT": "60/minute",
}


def settings_in(folder: Path, environment: dict[str, str]) -> Settings:
    database = folder / "cards.db"
    make_database(database)
    return Settings.read({**environment, "CARDONFILE_DATABASE_URL": f"sqlite:///{database}"})


@pytest.mark.parametrize("environment", [LOOPBACK, PUBLIC, ALLOWED, EVERYTHING])
def test_every_part_can_be_built_under_every_setting(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    container = build(settings_in(tmp_path, environment))
    for name, provider in container.providers.items():
        assert provider() is not None, name
        if isinstance(provider, providers.ThreadSafeSingleton):
            assert provider() is provider(), name
    container.storage().close()


@pytest.mark.parametrize(
    ("environment", "is_there"), [(LOOPBACK, True), (PUBLIC, False), (ALLOWED, True)]
)
def test_the_fake_psp_is_there_only_where_it_may_be(
    tmp_path: Path, environment: dict[str, str], is_there: bool
) -> None:
    settings = settings_in(tmp_path, environment)
    container = build(settings)
    container.app()

    assert (FAKE in container.psps()) is is_there
    assert settings.fake_psp_database.exists() is is_there
