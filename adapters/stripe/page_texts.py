"""The languages of Stripe's page, and the texts of cardonfile on it."""

from __future__ import annotations

import re
from typing import Final

from adapters.catalogs import catalog
from domain.psps.hosted_page import HostedPageRequest

_LOCALES = (
    "bg cs da de el en en-GB es es-419 et fi fil fr fr-CA hi-IN hr hu id it ja ko lt lv ms mt nb "
    "nl pl pt pt-BR ro ru sk sl sv th tr vi zh zh-HK zh-TW"
)
LOCALES: Final = frozenset(_LOCALES.split())
"""The languages of Checkout ("Create a Session", `locale`)."""

MAX_CONSENT_LENGTH: Final = 1200
"""Stripe's limit for the escaped consent ("Create a Session", `custom_text[submit]`)."""

_MARKDOWN: Final = re.compile(
    # Emphasis, code, links, HTML; URLs that become links; the beginning of an entity.
    r"[\\`*_~\[\]<@]|(?<=\])\(|:(?=//)|(?<=www)\.|&(?=#?[0-9a-z]+;)",
    re.IGNORECASE,
)


def consent_as_sent(text: str) -> str:
    """Escape the characters of a consent text that Stripe would render as Markdown.

    The names in the text, such as the center's, may contain any characters. See "Customize text and
    policies" in Stripe's documentation.
    """
    return _MARKDOWN.sub(r"\\\g<0>", text)


def refused_funding(request: HostedPageRequest) -> str:
    """Return the sentence that names the cards that the center does not accept."""
    t = catalog(request.language)
    cards = (t.text(f"refused_funding.{funding}") for funding in sorted(request.refuse_funding))
    return t.text("refused_funding.notice", cards=", ".join(cards))


def consent_length(text: str) -> int:
    """Return the length of a consent text as it is sent, in characters."""
    return len(consent_as_sent(text))
