from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.adapters.http.api import Api
from tests.installation import Installation


@pytest.fixture
def api(installation: Installation) -> Api:
    """Return a client whose caller has every permission."""
    return Api(installation)


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Return a client for requests that must be refused. Fail if one of them stored a session."""
    installation = Installation(tmp_path_factory.mktemp("refusing"))
    yield Api(installation)
    installation.clock.advance(timedelta(days=2))
    # If a session had been stored, it would be due by now.
    assert installation.reconcile().jobs["sessions"] == 0
    installation.close()
