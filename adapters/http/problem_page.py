"""The HTML page for a guest whose browser cannot be redirected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import falcon

from adapters.catalogs import Catalog
from adapters.guest_pages import templates
from domain.hosted_payments.find_way_back import WayBack

STYLE: Final = "/hosted-payments/style"

_TEMPLATES: Final = templates("adapters.http", STYLE)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What is wrong, and what the guest can do; `key` names the catalogs' table that says so.

    `values` fill in its placeholders. If it `reloads`, the browser loads it again by itself after
    `retry_after_seconds`.
    """

    status: int
    key: str
    retry_after_seconds: int | None = None
    reloads: bool = False
    values: Mapping[str, object] = field(default_factory=dict)


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
    show_page(resp, "problem.html", t, way_back, problem=problem)
    resp.status = problem.status
    if problem.retry_after_seconds is not None:
        resp.set_header("Retry-After", str(problem.retry_after_seconds))
        if problem.reloads:
            resp.set_header("Refresh", str(problem.retry_after_seconds))
    protect_page(resp)


def show_page(
    resp: falcon.Response, name: str, t: Catalog, way_back: WayBack | None, **values: object
) -> None:
    """Respond with a page of a template, in the style of the center."""
    resp.content_type = "text/html; charset=utf-8"
    resp.set_header("Content-Language", t.language)
    resp.text = _TEMPLATES.get_template(name).render(
        t=t,
        way_back=way_back,
        center=way_back and way_back.center_name,
        color=way_back and way_back.settings.color,
        logo_uri=way_back and way_back.logo_uri,
        **values,
    )


def protect_page(resp: falcon.Response, *, form_action: str = "'none'") -> None:
    """Set the headers that forbid loading anything from elsewhere, framing and sending a referrer.

    A form is sent with its origin, which browsers replace by "null" where no referrer is sent.
    """
    resp.set_header(
        "Content-Security-Policy",
        f"default-src 'none'; style-src 'self'; img-src 'self'; form-action {form_action}; "
        "frame-ancestors 'none'; base-uri 'none'",
    )
    has_form = form_action != "'none'"
    resp.set_header("Referrer-Policy", "same-origin" if has_form else "no-referrer")
