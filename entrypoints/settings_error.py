"""The error about a setting."""

from __future__ import annotations


class SettingsError(ValueError):
    """A setting or a PSP that cannot be used.

    Operators read the text: it names the setting and what is expected, and never shows a secret.
    """
