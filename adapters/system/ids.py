"""Identifiers from the random source of the operating system."""

from __future__ import annotations

import secrets
import uuid

from typing_extensions import override

from domain.outside import Ids


class RandomIds(Ids):
    """Identifiers that cannot be guessed."""

    @override
    def uuid(self) -> str:
        return str(uuid.uuid4())

    @override
    def secret(self) -> str:
        return secrets.token_urlsafe(32)
