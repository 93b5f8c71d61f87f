"""What goes back to a caller or a browser."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Answer:
    """An answer of HTTP; its length is not among the headers."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
