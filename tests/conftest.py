"""Fixtures that every test may ask for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from tests.installation import Installation

# Threads write their lines while pytest is not capturing; tests that look at lines capture them.
structlog.configure(logger_factory=structlog.ReturnLoggerFactory())


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    """Give an installation of its own, with one center, one guest and the fake PSP."""
    installed = Installation(tmp_path)
    yield installed
    installed.close()
