"""Text from outside that may be stored and shown."""

from __future__ import annotations

import unicodedata

# Control characters, lone surrogates, and the two separators that some terminals and log readers
# take for the end of a line. Joiners and direction marks (Cf) are part of people's names. Characters
# that override the direction of the text after them (Unicode Standard Annex 9) are not.
_REFUSED_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})
_DIRECTION_OVERRIDES = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def is_clean(text: str) -> bool:
    """Return whether `text` is free of control characters, line breaks and broken characters."""
    return text.isprintable() or not any(
        unicodedata.category(character) in _REFUSED_CATEGORIES or character in _DIRECTION_OVERRIDES
        for character in text
    )
