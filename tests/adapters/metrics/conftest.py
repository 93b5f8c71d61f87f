"""A container with metrics over an installation, and the metrics as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dependency_injector.providers import Object
from falcon import testing

from adapters.fake_psp.plugin import NAME as FAKE
from entrypoints.container import build
from entrypoints.metrics import measure
from tests.installation import Installation
from tests.scraping import Samples, samples_of


class Measured:
    """A separate process with the records, the clock and the PSP of an installation."""

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        self.container = build(installation.settings)
        self.container.clock.override(Object(installation.clock))
        self.container.psp_adapters.override(Object({FAKE: installation.provider}))
        self._client = testing.TestClient(measure(self.container))

    def scrape(self) -> Samples:
        """Return the metrics by name, each with its labels and its value."""
        return samples_of(self._client.simulate_get("/metrics").text)


@pytest.fixture
def measured(installation: Installation) -> Iterator[Measured]:
    measured = Measured(installation)
    yield measured
    measured.container.token_uses().shutdown()
    measured.container.storage().close()
