"""The words that guests read: a catalog for each language, in the file `<language>.toml` here.

In a template, `t` is the catalog of the page's language: `{{ t("problem.way_back_to", center=name) }}`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

from markupsafe import Markup, escape

from domain.languages import DEFAULT_LANGUAGE, look_up

LANGUAGES: Final = frozenset({"en"})
"""The languages that there is a catalog for."""


class Catalog:
    """The words of one language. A key such as `form.title` names a table of its file and a word there.

    `direction` is `ltr` or `rtl`, as the attribute `dir` of HTML has it.
    """

    def __init__(self, language: str, words: Mapping[str, Any]) -> None:
        """Take the content of a TOML file: tables of tables of texts."""
        self.language = language
        self.direction: str = words["direction"]
        self._words = words

    def __call__(self, key: str, **values: object) -> Markup:
        """Return a text for HTML, with its placeholders filled in. Raises KeyError for no such key.

        Each text that is filled in, such as a name, is isolated by `<bdi>`: it may run in the other
        direction.
        """
        isolated = {name: _isolated(value) for name, value in values.items()}
        return escape(self.text(key)).format(**isolated)

    def text(self, key: str, **values: object) -> str:
        """Return the same without markup, for what holds none: an attribute, or a title."""
        text: str = self._found(key)
        return text.format(**values) if values else text

    def group(self, key: str) -> Mapping[str, str]:
        """Return the texts of a table by their last names, for a script."""
        return {name: each for name, each in self._found(key).items() if isinstance(each, str)}

    def _found(self, key: str) -> Any:  # a text, or a table of such
        found: Any = self._words
        for name in key.split("."):
            found = found[name]
        return found


def _isolated(value: object) -> object:
    is_text = isinstance(value, str) and not isinstance(value, Markup)
    return Markup("<bdi>{}</bdi>").format(value) if is_text else value


def catalog(language: str) -> Catalog:
    """Return the catalog for a language (RFC 5646): `de` for `de-AT`, and English if there is none."""
    return _read(look_up(language, LANGUAGES) or DEFAULT_LANGUAGE)


@cache
def _read(language: str) -> Catalog:
    text = files(__name__).joinpath(f"{language}.toml").read_text(encoding="utf-8")
    return Catalog(language, tomllib.loads(text))
