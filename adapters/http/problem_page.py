"""The page that a guest sees when the browser cannot be sent on."""

from __future__ import annotations

import secrets
from typing import Final

import falcon
from jinja2 import Environment, PackageLoader

from domain.find_way_back import WayBack

_TEMPLATES: Final = Environment(loader=PackageLoader("adapters.http"), autoescape=True)


def show_problem(
    resp: falcon.Response, *, status: int, title: str, advice: str, way_back: WayBack | None = None
) -> None:
    """Answer with a page that says what is wrong and what to do.

    With `way_back`, it names the center and leads back to where the guest came from.
    """
    nonce = secrets.token_urlsafe(16)
    page = _TEMPLATES.get_template("problem.html")
    resp.status = status
    resp.content_type = "text/html; charset=utf-8"
    resp.text = page.render(nonce=nonce, title=title, advice=advice, way_back=way_back)
    protect_page(resp, style=f"'nonce-{nonce}'")


def protect_page(resp: falcon.Response, *, style: str = "'none'") -> None:
    """Say to the browser that this answer loads nothing, is framed by nobody and is not kept."""
    resp.set_header(
        "Content-Security-Policy",
        f"default-src 'none'; style-src {style}; form-action 'none'; frame-ancestors 'none'; "
        "base-uri 'none'",
    )
    resp.set_header("Referrer-Policy", "no-referrer")
