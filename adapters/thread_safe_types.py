"""The way around a fault of msgspec 0.22: it crashes if several threads are the first to use a type.

Making a decoder of the type prepares it. So decoders are made at import, when there is one thread;
types that are read without one are named to `prepare`.
"""

from __future__ import annotations

import msgspec


def prepare(*types: type) -> None:
    """Let threads use these types from now on. Call it at import; it may be called again."""
    for each in types:
        msgspec.json.Decoder(each)
