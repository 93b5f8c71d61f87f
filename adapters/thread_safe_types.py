"""A workaround for msgspec 0.22, which crashes if several threads are the first to use a type.

Creating a decoder of the type prepares the type. So decoders are created at import, when there is
one thread; types that are read without a decoder are passed to `prepare`.
"""

from __future__ import annotations

import msgspec


def prepare(*types: type) -> None:
    """Prepare these types for use by threads. Call this at import; it may be called again."""
    for each in types:
        msgspec.json.Decoder(each)
