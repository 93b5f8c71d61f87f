from __future__ import annotations

import pytest

from tests.adapters.http.api import Api
from tests.installation import Installation


@pytest.fixture
def api(installation: Installation) -> Api:
    """Give a client whose caller may do everything."""
    return Api(installation)
