"""The page at `/docs`, on which people read about the API and try it out.

The page is Swagger UI, which shows the document at `/openapi.json`. Its files come from the package
`offapi`. The page does not load anything from other hosts, and its scripts cannot call other hosts.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.metadata import distribution, version
from pathlib import Path
from typing import Final

import falcon

_HERE: Final = Path(__file__).parent
_CSS: Final = "text/css; charset=utf-8"
_JAVA_SCRIPT: Final = "text/javascript; charset=utf-8"

_CONTENT_TYPES: Final = {
    "docs.css": _CSS,
    "show.js": _JAVA_SCRIPT,
    "swagger_bundle.js": _JAVA_SCRIPT,
    "swagger_style.css": _CSS,
}
"""The scripts and style sheets of the page at `/docs`, with their content types."""

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; "
    "form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
)


class ApiDocs:
    """The page about the API, at `/docs`."""

    def on_get(self, _: falcon.Request, resp: falcon.Response) -> None:
        """Respond with the page, which shows the version of the release."""
        resp.content_type = "text/html; charset=utf-8"
        page = (_HERE / "templates/docs.html").read_text()
        resp.text = page.replace("{release}", version("cardonfile"))
        resp.set_header("Content-Security-Policy", _POLICY)
        resp.set_header("Referrer-Policy", "no-referrer")


class ApiDocsFiles:
    """The scripts and style sheets of the page, at `/docs/{name}`."""

    def on_get(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """Respond with a file, or with 304 if the browser has the same file. Raises HTTPNotFound.

        Browsers ask for the file each time that they load the page, so an upgrade takes effect at
        once.
        """
        if name not in _CONTENT_TYPES:
            raise falcon.HTTPNotFound
        content, fingerprint = _file(name)
        resp.etag = fingerprint
        resp.set_header("Cache-Control", "no-cache")
        if fingerprint in (req.if_none_match or ()):
            resp.status = falcon.HTTP_304
            return
        resp.content_type = _CONTENT_TYPES[name]
        resp.data = content


@cache
def _file(name: str) -> tuple[bytes, str]:
    """Return the content of a file and its fingerprint. Each process reads a file once."""
    path = _HERE / "static" / name
    if not path.exists():
        # The package is not imported, because it would read 9 MB for its own templates.
        path = Path(str(distribution("offapi").locate_file(f"offapi/{name}")))
    content = path.read_bytes()
    return content, sha256(content).hexdigest()
