"""Fixtures for tests of several capabilities."""

from __future__ import annotations

import pytest

from tests.domain.agreements.bookings import takes_agreements
from tests.installation import Installation


@pytest.fixture
def center_takes_agreements(installation: Installation) -> None:
    takes_agreements(installation)
