"""The name of a guest as pages for guests show it."""

from __future__ import annotations


class MaskedGuest:
    """A guest's name and email address, masked without telling how long they are.

    A screen reader would read out every bullet, so the initials and the domain stand apart.
    """

    def __init__(self, name: str, email: str | None) -> None:
        """Take a name of one word or more, and an address if it may be shown."""
        words = name.split()
        self.masked = " ".join(f"{word[0]}•••" for word in words)
        self.initials = " ".join(word[0] for word in words)
        local, _, self.domain = (email or "").rpartition("@")
        if self.domain:
            self.masked += f", {local[:1]}•••@{self.domain}"
