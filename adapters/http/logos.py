"""The logos of centers, which our pages and those of PSPs show: `/hosted-payments/logos/{center_id}`."""

from __future__ import annotations

from dataclasses import dataclass

import falcon

from domain.identifiers import CenterId, plain_uuid
from domain.storage import Storage


@dataclass(frozen=True, kw_only=True)
class Logos:
    """The logo of each center that has one."""

    storage: Storage

    def on_get(self, _: falcon.Request, resp: falcon.Response, center_id: str) -> None:
        """Respond with the picture. Raises HTTPNotFound. Its address changes with the picture."""
        known_id = plain_uuid(center_id)
        with self.storage.read() as unit:
            logo = unit.center_settings.get(CenterId(known_id)).logo if known_id else None
        if logo is None:
            raise falcon.HTTPNotFound
        resp.content_type = logo.media_type
        resp.data = logo.content
        resp.set_header("Cache-Control", "public, max-age=86400")
        # Whatever the bytes hold besides a picture, no browser runs it.
        resp.set_header("Content-Security-Policy", "default-src 'none'; sandbox")
