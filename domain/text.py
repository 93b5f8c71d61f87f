"""Text from outside that may be stored and shown."""

from __future__ import annotations

import unicodedata

# Control characters, lone surrogates, and the two separators that some terminals and log readers
# take for the end of a line. Joiners and direction marks (Cf) belong to people's names.
_REFUSED_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})


def is_clean(text: str) -> bool:
    """Tell whether `text` is free of control characters, line breaks and broken characters."""
    return text.isprintable() or not any(
        unicodedata.category(character) in _REFUSED_CATEGORIES for character in text
    )
