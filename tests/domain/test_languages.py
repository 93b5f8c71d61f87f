from __future__ import annotations

import pytest

from domain.errors import InvalidField
from domain.languages import first_of, look_up, parse_language, parse_locale


@pytest.mark.parametrize(
    ("given", "read"),
    [
        *(("de", "de"), ("DE", "de"), ("de-at", "de-AT"), ("PT-br", "pt-BR"), ("es-419", "es-419")),
        *(("zh-hant-tw", "zh-Hant-TW"), ("sl-rozaj-biske", "sl-rozaj-biske"), ("gsw", "gsw")),
        *(("de-ch-1996", "de-CH-1996"), ("zh-cmn-hans-cn", "zh-cmn-Hans-CN")),
        *(("ar-U-NU-Latn", "ar-u-nu-latn"), ("en-x-twain-us", "en-x-twain-us")),
        *((None, None), ("", None)),
    ],
)
def test_a_language_tag_is_stored_in_its_conventional_case(given: object, read: str | None) -> None:
    assert parse_language("language", given) == read


@pytest.mark.parametrize(
    "given",
    [
        *("d", "de_DE", "de-", "-de", "german1", "deutschland", "de AT", "de\n", "dé", "١٢"),
        *("x-klingon", "i-klingon", "de-DE-", "en-a", "*", 7, True, ["de"], {}),
        *("de-AT-" + "-".join(["abcde"] * 6), "a" * 4096, "AUTO"),
    ],
    ids=lambda given: ascii(given)[:30],
)
def test_a_malformed_language_tag_is_refused(given: object) -> None:
    with pytest.raises(InvalidField, match=r"^language must be a language tag such as de"):
        parse_language("language", given)
    with pytest.raises(InvalidField, match=r"^locale must be a language tag .* or auto$"):
        parse_locale(given)


def test_the_locale_auto_leaves_the_language_to_the_browser() -> None:
    assert parse_locale("auto") == "auto"
    assert parse_locale("de-at") == "de-AT"
    assert parse_locale(None) is parse_locale("") is None
    with pytest.raises(InvalidField):
        parse_language("language", "auto")


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        # The example of RFC 4647, section 3.4.
        ("zh-Hant-CN-x-private1-private2", "zh-Hant"),
        *(("de-AT", "de"), ("de", "de"), ("pt-BR", "pt-BR"), ("pt", None), ("ja", None)),
        *(("en-u-nu-latn", "en"), ("ens", None)),
    ],
)
def test_the_available_language_closest_to_the_requested_language_is_chosen(
    wanted: str, found: str | None
) -> None:
    available = {"de", "en", "pt-BR", "zh-Hant", "zh-Hant-CN-x"}
    assert look_up(wanted, available) == found


def test_the_first_available_language_of_a_list_of_preferences_is_chosen() -> None:
    available = {"en", "de", "fr"}
    assert first_of([None, "ja", "de-AT", "fr"], available) == "de"
    assert first_of(["ja", None], available) == first_of([], available) == "en"
