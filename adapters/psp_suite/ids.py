"""Identifiers that are the same in every run."""

from __future__ import annotations

import random
from base64 import urlsafe_b64encode
from uuid import UUID

from typing_extensions import override

from domain.outside import Ids


class SeededIds(Ids):
    """Returns the same sequence of identifiers and secrets for the same seed."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)  # noqa: S311 - repeatable on purpose

    @override
    def uuid(self) -> str:
        return str(UUID(int=self._random.getrandbits(128), version=4))

    @override
    def secret(self) -> str:
        return urlsafe_b64encode(self._random.randbytes(24)).decode()
