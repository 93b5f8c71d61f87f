"""The languages of guests, as BCP 47 tags (RFC 5646) such as `de` and `pt-BR`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

from domain.errors import InvalidField

DEFAULT_LANGUAGE: Final = "en"

AUTO: Final = "auto"
"""The value that stands for the language that the guest's browser requests."""

MAX_TAG_LENGTH: Final = 35
"""The maximum length of a tag. Every implementation must accept this length (RFC 5646, 4.4.1)."""

_EXPECTED: Final = "a language tag such as de or pt-BR (BCP 47)"
EXPECTED_LOCALE: Final = f"{_EXPECTED}, or {AUTO}"

# RFC 5646, section 2.1: language, script, region, variants, extensions, private use.
_TAG: Final = re.compile(
    r"(?:[a-z]{2,3}(?:-[a-z]{3}){0,3}|[a-z]{4,8})(?:-[a-z]{4})?(?:-(?:[a-z]{2}|[0-9]{3}))?"
    r"(?:-(?:[a-z0-9]{5,8}|[0-9][a-z0-9]{3}))*(?:-[0-9a-wyz](?:-[a-z0-9]{2,8})+)*"
    r"(?:-x(?:-[a-z0-9]{1,8})+)?"
)


def parse_language(field: str, value: object) -> str | None:
    """Parse a language tag from outside, and return it in its usual case (`pt-BR`).

    Return None for None and "". Subtags do not have to be registered. Raises InvalidField, also for
    `auto`.
    """
    if value is None or value == "":
        return None
    tag = canonical(value) if isinstance(value, str) else None
    if tag in (None, AUTO):
        raise InvalidField(field, _EXPECTED)
    return tag


def parse_locale(value: object) -> str | None:
    """Parse the locale of a request: a language tag, `auto`, or nothing. Raises InvalidField."""
    if value == AUTO:
        return AUTO
    try:
        return parse_language("locale", value)
    except InvalidField:
        raise InvalidField("locale", EXPECTED_LOCALE) from None


def canonical(tag: str) -> str | None:
    """Return a tag with the letter case of RFC 5646, section 2.1.1, or None if it is malformed."""
    if len(tag) > MAX_TAG_LENGTH or not tag.isascii() or not _TAG.fullmatch(tag.lower()):
        return None
    subtags = tag.lower().split("-")
    for index, subtag in enumerate(subtags[1:], start=1):
        if len(subtag) == 1:
            break
        if len(subtag) == 2:
            subtags[index] = subtag.upper()
        elif len(subtag) == 4:
            subtags[index] = subtag.title()
    return "-".join(subtags)


def look_up(tag: str, available: Collection[str]) -> str | None:
    """Return the available language that is nearest to a tag, for example `de` for `de-AT`.

    Subtags are removed from the end of the tag until the language is available (RFC 4647, section
    3.4). Return None if no such language is available.
    """
    subtags = tag.split("-")
    while subtags:
        if (nearest := "-".join(subtags)) in available:
            return nearest
        subtags.pop()
        if len(subtags) > 1 and len(subtags[-1]) == 1:
            subtags.pop()
    return None


def first_of(wishes: Iterable[str | None], available: Collection[str]) -> str:
    """Return the language that `look_up` finds for the first of the `wishes`.

    A wish without an available language is skipped. If all are skipped, return English.
    """
    for wish in wishes:
        if wish is not None and (found := look_up(wish, available)) is not None:
            return found
    return DEFAULT_LANGUAGE
