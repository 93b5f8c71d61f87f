"""Every text that guests read exists in every language and is used."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from hashlib import sha256
from importlib.resources import files
from string import Formatter

import pytest

from adapters import catalogs
from adapters.catalogs import (
    LANGUAGES,
    MAX_ACCEPTED,
    Catalog,
    accepted_languages,
    catalog,
    shipped_consents,
    shipped_reservation_texts,
)
from adapters.stripe.plugin import PLUGIN as STRIPE
from domain.centers.center import MAX_NAME_LENGTH
from domain.desk_links.queries import DeskState
from domain.languages import look_up
from domain.portal.change_card import CardChange
from domain.portal.queries import Replacing
from domain.psps.card import Funding
from domain.sessions.end import NotAccepted
from tests.builders import a_shipped_consent
from tests.programs import ROOT

CONSENTS = {
    "2026-11.ar.txt": "bffbb379e9aaf978f57bd5d9b2701e8a53561dac7d4cd144a4c4c840146b96fc",
    "2026-11.de.txt": "c767322910f46203bc76f29de39c9a674f49363f047240524cc3ee73005fc26a",
    "2026-11.en.txt": "68dc5c3ad65b987a785e3d17a72f6f75a68420f806f9dd8d366cfcc323c7c61e",
    "2026-11.es.txt": "ff30d0c4699c3732542b60b4720523646b36c24d635d2fdf8c5cf874f098bae9",
    "2026-11.fr.txt": "998c809652b181cf071d71007542bd054b0e2bdf58923efb0fbab2938c4f809c",
    "2026-11.it.txt": "88e7937c325cc60bc5ed14e526c3ac993bd077a227896f3d7668d5baffb56991",
    "2026-11.nl.txt": "37756211f97e7cb117e000b878a05b5a20d9eb875ed9c2a0be4970754f4ea701",
    "2026-11b.nl.txt": "2bbecb14a78d0455d19107b32d87bd16afeb5e53943b0fa978b8f24d8e76e858",
    "2026-11.pt.txt": "ff164166d93e0f6317a1c49711a6c929a6823b8bddc640dd09b8ea78cd60f3c2",
}
"""The SHA-256 of every text that guests agree to. Add lines, and change none."""
RESERVATION_TEXTS = {
    "2026-11.ar.toml": "b5c06f33b0f82b5b8ec22d6e2d9660f92fa9c783903847b6144030709fda6ba9",
    "2026-11.de.toml": "a9ceae50313955e42262be71015f8f0156d9532345ffccb99a467ece85c51ed7",
    "2026-11.en.toml": "064fec5d7ac6d69301c4e75985b9274ed59f4ef15f5f79a99763163101b0d26d",
    "2026-11.es.toml": "60183f575e7d07e922577c30fde4ff0d1c61b6bdbacba0b1e3e243af134177d1",
    "2026-11.fr.toml": "25786b47ee7120f38c3292d0578608c01e8069b61ff915323bffb6bbae47f55e",
    "2026-11.it.toml": "b41624d4ece09d0f4fabe3c2543e43545a952c7322a9c7596633427ec931a831",
    "2026-11.nl.toml": "ee0b6521275f87e98c228141ac9408ebb6f6b76db47fe7bf598ec0c583bfa4d7",
    "2026-11.pt.toml": "e8d6382ae63af50b9da27328c01641ed0d5b3768dc51641d7996cc1fc63bbc1f",
}


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


def test_each_language_has_a_catalog_file() -> None:
    names = (each.name for each in files(catalogs).iterdir())
    assert {name.removesuffix(".toml") for name in names if name.endswith(".toml")} == LANGUAGES


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_a_catalog_translates_every_text_and_keeps_its_placeholders(language: str) -> None:
    english, words = words_of("en"), words_of(language)
    assert list(words) == list(english)
    for key, text in words.items():
        assert text.strip() == text != ""
        assert placeholders(text) == placeholders(english[key]), key
        is_same = key in ("direction", "form.cvc_short", "form.expiry_form")
        assert language == "en" or is_same or text != english[key], key
        assert not re.search("3-D|D Secure", text), "a line may break there"


def test_every_text_of_a_catalog_is_used() -> None:
    # Some keys are put together: `form.fault.` and a field, `.title` after a problem.
    sources = "".join(
        path.read_text()
        for folder in ("http", "fake_psp", "guest_pages")
        for path in (ROOT / "adapters" / folder).rglob("*")
        if path.suffix in (".py", ".html")
    )
    parts = set(re.findall(r"[a-z_]+", sources))
    # Other parts are values of the domain.
    parts |= {*Funding, *NotAccepted, *DeskState, *Replacing, *CardChange}
    unused = [key for key in words_of("en") if not set(key.split(".")) <= {*parts, "direction"}]
    assert unused == []


@pytest.mark.parametrize(
    ("folder", "known"), [("consent", CONSENTS), ("reservation", RESERVATION_TEXTS)]
)
def test_the_shipped_consent_texts_never_change(folder: str, known: Mapping[str, str]) -> None:
    shipped = files(catalogs).joinpath(folder).iterdir()
    assert {each.name: sha256(each.read_bytes()).hexdigest() for each in shipped} == known


def test_a_reservation_text_is_shipped_in_every_language() -> None:
    shipped = shipped_reservation_texts()
    assert shipped.keys() == LANGUAGES
    assert len({text.button for text in shipped.values()}) == len(LANGUAGES)


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_the_newest_consent_text_fits_on_the_page_of_every_psp(language: str) -> None:
    newest = max(name for name in CONSENTS if name.split(".")[1] == language)
    text = shipped_consents()[language]
    assert newest == f"{text.version}.{language}.txt"
    assert "{center}" in text.text
    consent = a_shipped_consent("*" * MAX_NAME_LENGTH, language)
    is_page_of_stripe = look_up(language, STRIPE.capabilities.locales) is not None
    assert STRIPE.capabilities.shows(consent) == is_page_of_stripe


def test_every_data_file_is_included_in_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["*"]
    for package in ("domain", "adapters", "entrypoints"):
        for path in (ROOT / package).rglob("*"):
            is_code = path.suffix in (".py", ".pyc") or path.is_dir()
            is_example = "example" in path.parts
            assert is_code or is_example or any(fnmatch(path.name, each) for each in patterns), path


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        (None, []),
        ("", []),
        ("de", ["de"]),
        ("de-AT,de;q=0.8,en-us;q=0.5", ["de-AT", "de", "en-US"]),
        ("en;q=0.2, fr ; q=0.9 ,de;q=1.000", ["de", "fr", "en"]),
        ("fr;q=0.5,de;q=0.5", ["fr", "de"]),
        ("de;q=0, en", ["en"]),
        ("*, de;q=0.1", ["de"]),
        ("de_DE, <script>, de;q=2, de;q=x, de;q=0.1234, fr;level=1, it", ["it"]),
        (",".join(["x"] * MAX_ACCEPTED + ["de"]), []),
    ],
)
def test_the_languages_that_a_browser_accepts_are_ordered_by_weight(
    header: str | None, accepted: list[str]
) -> None:
    assert accepted_languages(header) == accepted


def test_a_name_inserted_into_a_text_is_escaped_and_keeps_its_own_text_direction() -> None:
    t = Catalog("en", {"direction": "ltr", "back": {"to": "Back to <{center}>"}})
    assert t("back.to", center="<b>") == "Back to &lt;<bdi>&lt;b&gt;</bdi>&gt;"
    assert t.text("back.to", center="<b>") == "Back to <<b>>"
    assert t("back.to", center="+49 (30) 1") == 'Back to &lt;<bdi dir="ltr">+49 (30) 1</bdi>&gt;'


@pytest.mark.parametrize(
    ("tag", "language"),
    [("de-AT", "de"), ("pt-BR", "pt"), ("ar-EG", "ar"), ("deu", "en"), ("tlh", "en")],
)
def test_a_catalog_is_found_by_the_primary_language_of_a_language_tag(
    tag: str, language: str
) -> None:
    assert catalog(tag).language == language
