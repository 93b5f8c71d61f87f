"""The words that guests read are there in every language, and used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.resources import files
from string import Formatter

import pytest

from adapters import catalogs
from adapters.catalogs import LANGUAGES, Catalog, catalog

PLACES = ("adapters/http", "adapters/fake_psp")


def texts(words: object, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield every text of a catalog's file with its key."""
    if isinstance(words, Mapping):
        for each, found in words.items():
            yield from texts(found, f"{name}.{each}" if name else each)
    else:
        yield name, str(words)


def words_of(language: str) -> dict[str, str]:
    return dict(texts(catalog(language)._words))


def placeholders(text: str) -> set[str | None]:
    return {name for _, name, _, _ in Formatter().parse(text) if name is not None}


def test_there_is_a_file_for_each_language() -> None:
    names = (each.name for each in files(catalogs).iterdir())
    assert {name.removesuffix(".toml") for name in names if name.endswith(".toml")} == LANGUAGES


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_a_catalog_has_every_text_with_its_placeholders(language: str) -> None:
    english, words = words_of("en"), words_of(language)
    assert list(words) == list(english)
    for key, text in words.items():
        assert text.strip() == text != ""
        assert placeholders(text) == placeholders(english[key]), key


def test_a_name_in_a_text_is_escaped_within_its_own_direction() -> None:
    t = Catalog("en", {"direction": "ltr", "back": {"to": "Back to <{center}>"}})
    assert t("back.to", center="<b>") == "Back to &lt;<bdi>&lt;b&gt;</bdi>&gt;"
    assert t.text("back.to", center="<b>") == "Back to <<b>>"


@pytest.mark.parametrize(
    ("tag", "language"), [("en-GB", "en"), ("en-Latn-GB", "en"), ("eng", "en"), ("tlh", "en")]
)
def test_a_catalog_is_found_by_the_beginning_of_a_tag(tag: str, language: str) -> None:
    assert catalog(tag).language == language
