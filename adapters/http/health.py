"""Whether the service is alive and ready: `/healthz` and `/readyz`."""

from __future__ import annotations

from dataclasses import dataclass

import falcon

from adapters.http.answers import Health, json_body
from domain.ports import Storage


class Alive:
    """Liveness: the process answers, whatever else is wrong."""

    def on_get(self, _: falcon.Request, resp: falcon.Response) -> None:
        """Answer 200."""
        json_body(resp, Health(status="ok"))

    on_head = on_get


@dataclass(frozen=True, kw_only=True)
class Ready:
    """Readiness: records can be read and written."""

    storage: Storage

    def on_get(self, _: falcon.Request, resp: falcon.Response) -> None:
        """Answer 200, or 503 while the storage is away."""
        self.storage.check()
        json_body(resp, Health(status="ready"))

    on_head = on_get
