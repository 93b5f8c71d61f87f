"""The error about a setting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class SettingsError(ValueError):
    """A setting or a PSP is unusable.

    Operators read the text: it names the setting and the expected value, and never shows a secret.
    """


@contextmanager
def with_extra_jwt(why: str) -> Iterator[None]:
    """Import modules that need the extra `jwt`. Raises SettingsError if it is not installed.

    `why` begins the sentence.
    """
    try:
        yield
    except ModuleNotFoundError as missing:
        if missing.name not in {"jwt", "cryptography"}:
            raise
        raise SettingsError(f"{why} is not installed: install the extra `jwt`") from None
