"""The error about a setting."""

from __future__ import annotations


class SettingsError(ValueError):
    """A setting or a PSP is unusable.

    Operators read the text: it names the setting and the expected value, and never shows a secret.
    """
