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
    """Raise SettingsError if an import in a `with` block fails because the extra `jwt` is missing.

    The text of the error is `why`, continued by "is not installed" and advice.
    """
    try:
        yield
    except ModuleNotFoundError as missing:
        if missing.name not in {"jwt", "cryptography"}:
            raise
        raise SettingsError(f"{why} is not installed: install the extra `jwt`") from None
