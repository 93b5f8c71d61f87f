"""A workaround for msgspec 0.22, which crashes if several threads use a type for the first time.

Creating a decoder prepares its type. Decoders are therefore created at import, when there is only
one thread. Types that are read without a decoder are passed to `prepare`.
"""

from __future__ import annotations

import msgspec


def prepare(*types: type) -> None:
    """Prepare these types for use by several threads. Call this when the module is imported."""
    for each in types:
        msgspec.json.Decoder(each)
