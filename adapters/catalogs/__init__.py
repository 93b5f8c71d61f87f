"""The texts for guests. Each language has a catalog: the file `<language>.toml` in this folder.

In a template, `t` is the catalog of the page's language: `{{ t("problem.way_back_to", center=name)
}}`. The consent texts are legally binding. Their files `consent/<version>.<language>.txt` and
`reservation/<version>.<language>.toml` are never changed. A new text is another file with a new
version.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from operator import attrgetter, itemgetter
from typing import Any, Final

from markupsafe import Markup, escape

from domain.agreements.reservation_text import ReservationText
from domain.consents.consent_text import ConsentText
from domain.languages import canonical, first_of

LANGUAGES: Final = frozenset({"ar", "de", "en", "es", "fr", "it", "nl", "pt"})
"""The languages with a catalog."""

MAX_ACCEPTED: Final = 20
"""The maximum number of languages that are read from an Accept-Language header."""

_FILES: Final = files(__name__)
_WEIGHT: Final = re.compile(r"[qQ]=([01](?:\.[0-9]{0,3})?)")


class Catalog:
    """The texts of one language.

    A key such as `form.title` names a table of the language's file and a text in that table.

    `direction` is `ltr` or `rtl`, like HTML's attribute `dir`.
    """

    def __init__(self, language: str, words: Mapping[str, Any]) -> None:
        """Set the texts: `words` is the parsed TOML file, with a table for each group of texts."""
        self.language = language
        self.direction: str = words["direction"]
        self._words = words

    def __call__(self, key: str, **values: object) -> Markup:
        """Return a text for HTML, with its placeholders filled in.

        Raises KeyError for an unknown key.

        Each value that is filled in, such as a name, is isolated by `<bdi>`, because its direction
        may differ.
        """
        isolated = {name: _isolated(value) for name, value in values.items()}
        return escape(self.text(key)).format(**isolated)

    def text(self, key: str, **values: object) -> str:
        """Return the text without markup, for places such as an attribute or a title."""
        text: str = self._found(key)
        return text.format(**values) if values else text

    def group(self, key: str) -> Mapping[str, str]:
        """Return the texts of one table, each under the last part of its key.

        A page passes these texts to its script.
        """
        return {name: each for name, each in self._found(key).items() if isinstance(each, str)}

    def _found(self, key: str) -> Any:  # a text, or a table of texts
        found: Any = self._words
        for name in key.split("."):
            found = found[name]
        return found


def _isolated(value: object) -> object:
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    # A text without letters, such as a phone number, would take the page's direction.
    if any(map(str.isalpha, value)):
        return Markup("<bdi>{}</bdi>").format(value)
    return Markup('<bdi dir="ltr">{}</bdi>').format(value)


def catalog(*wishes: str) -> Catalog:
    """Return the catalog for the first language in `wishes` that has a catalog.

    If a language such as `de-AT` does not have a catalog, the catalog of `de` is used. If no
    language in `wishes` has a catalog, return the English catalog.
    """
    return _read(first_of(wishes, LANGUAGES))


@cache
def _read(language: str) -> Catalog:
    text = _FILES.joinpath(f"{language}.toml").read_text(encoding="utf-8")
    return Catalog(language, tomllib.loads(text))


def accepted_languages(header: str | None) -> Sequence[str]:
    """Return the languages of an Accept-Language header, most preferred first (RFC 9110, 12.5.4).

    Malformed parts are left out, and so is `*`, because it does not name a language.
    """
    accepted: list[tuple[float, str]] = []
    for each in (header or "").split(",")[:MAX_ACCEPTED]:
        name, _, parameter = each.partition(";")
        tag, weight = canonical(name.strip()), _WEIGHT.fullmatch(parameter.strip() or "q=1")
        if tag is not None and weight is not None and float(weight[1]) > 0:
            accepted.append((float(weight[1]), tag))
    return [tag for _, tag in sorted(accepted, key=itemgetter(0), reverse=True)]


@cache
def shipped_consents() -> Mapping[str, ConsentText]:
    """Return the newest consent text in each language."""
    return {
        language: ConsentText(language=language, version=version, text=text.strip())
        for language, (version, text) in _newest("consent").items()
    }


@cache
def shipped_reservation_texts() -> Mapping[str, ReservationText]:
    """Return the newest text about bookings in each language."""
    return {
        language: ReservationText.shipped(language, f"booking-{version}", text)
        for language, (version, text) in _newest("reservation").items()
    }


def _newest(folder: str) -> Mapping[str, tuple[str, str]]:
    """Return the newest version of each language's file, and its content."""
    newest: dict[str, tuple[str, str]] = {}
    for file in sorted(_FILES.joinpath(folder).iterdir(), key=attrgetter("name")):
        version, language, _ = file.name.split(".")
        newest[language] = version, file.read_text(encoding="utf-8")
    return newest
