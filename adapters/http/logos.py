"""The logos of centers, for cardonfile's own pages and the pages of PSPs.

The address of a logo is `/hosted-payments/logos/{center_id}/{name}`.
"""

from __future__ import annotations

from dataclasses import dataclass

import falcon

from domain.identifiers import CenterId, plain_uuid
from domain.storage import Storage


@dataclass(frozen=True, kw_only=True)
class Logos:
    """Serves the logos of centers."""

    storage: Storage

    def on_get(self, _: falcon.Request, resp: falcon.Response, center_id: str, name: str) -> None:  # noqa: ARG002 - it is there for browsers
        """Respond with the logo of a center. Raises HTTPNotFound.

        Every logo has a different `name`, so browsers may cache the response. The name is otherwise
        ignored. A page that still uses the address of an earlier logo gets the current logo.
        """
        known_id = plain_uuid(center_id)
        with self.storage.read() as unit:
            logo = unit.center_settings.get(CenterId(known_id)).logo if known_id else None
        if logo is None:
            raise falcon.HTTPNotFound
        resp.content_type = logo.media_type
        resp.data = logo.content
        resp.set_header("Cache-Control", "public, max-age=86400")
        # The policy prevents browsers from running anything else that the bytes may contain.
        resp.set_header("Content-Security-Policy", "default-src 'none'; sandbox")
