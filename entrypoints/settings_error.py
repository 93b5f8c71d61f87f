"""The error about a setting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class SettingsError(ValueError):
    """A setting or a PSP cannot be used.

    The text is for operators. It contains the name of the setting and the expected value, and never
    a secret.
    """


@contextmanager
def with_extra_jwt(why: str) -> Iterator[None]:
    """Import modules in a `with` block that need the extra `jwt`.

    Raises SettingsError if the extra is not installed. The text of the error begins with `why`.
    """
    try:
        yield
    except ModuleNotFoundError as missing:
        if missing.name not in {"jwt", "cryptography"}:
            raise
        raise SettingsError(f"{why} is not installed: install the extra `jwt`") from None
