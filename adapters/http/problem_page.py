"""The HTML page for a guest whose browser cannot be redirected."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Final

import falcon
from jinja2 import Environment, PackageLoader

from adapters.catalogs import Catalog
from domain.hosted_payments.find_way_back import WayBack

TEMPLATES: Final = Environment(loader=PackageLoader("adapters.http"), autoescape=True)

_PAGE: Final = TEMPLATES.get_template("problem.html")


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What is wrong, and what the guest can do; `key` names the catalogs' table that says so.

    If it `reloads`, the browser loads it again by itself after `retry_after_seconds`.
    """

    status: int
    key: str
    retry_after_seconds: int | None = None
    reloads: bool = False


UNREACHABLE: Final = Problem(
    status=503,
    key="problem.unreachable",
    retry_after_seconds=30,
)


def show_problem(
    resp: falcon.Response, problem: Problem, t: Catalog, way_back: WayBack | None = None
) -> None:
    """Respond with the page in the language of a catalog.

    With `way_back`, it names the center and links back to the shop.
    """
    nonce = secrets.token_urlsafe(16)
    resp.status = problem.status
    resp.content_type = "text/html; charset=utf-8"
    resp.text = _PAGE.render(nonce=nonce, problem=problem, way_back=way_back, t=t)
    resp.set_header("Content-Language", t.language)
    if problem.retry_after_seconds is not None:
        resp.set_header("Retry-After", str(problem.retry_after_seconds))
        if problem.reloads:
            resp.set_header("Refresh", str(problem.retry_after_seconds))
    protect_page(resp, style=f"'nonce-{nonce}'")


def protect_page(
    resp: falcon.Response, *, style: str = "'none'", form_action: str = "'none'"
) -> None:
    """Set the headers that forbid loading anything, framing the page and sending a referrer.

    A form is sent with its origin, which browsers replace by "null" where no referrer is sent.
    """
    resp.set_header(
        "Content-Security-Policy",
        f"default-src 'none'; style-src {style}; form-action {form_action}; "
        "frame-ancestors 'none'; base-uri 'none'",
    )
    has_form = form_action != "'none'"
    resp.set_header("Referrer-Policy", "same-origin" if has_form else "no-referrer")
