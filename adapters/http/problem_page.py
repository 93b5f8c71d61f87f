"""The HTML page for a guest whose browser cannot be redirected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import falcon

from adapters.catalogs import accepted_languages, catalog
from adapters.guest_pages import MaskedGuest, form_action, templates
from domain.centers.center_settings import CenterSettings
from domain.hosted_payments.find_way_back import WayBack

STYLE: Final = "/hosted-payments/style"

_TEMPLATES: Final = templates("adapters.http", STYLE)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A problem, and what the guest can do. `key` names the catalogs' table with the texts.

    `values` fill in the placeholders. If `reloads`, the browser loads the page again after
    `retry_after_seconds`.
    """

    status: int
    key: str
    retry_after_seconds: int | None = None
    reloads: bool = False
    values: Mapping[str, object] = field(default_factory=dict)


class ShowsCenter(Protocol):
    """What a page shows, with the center whose name and style it has."""

    @property
    def center_name(self) -> str | None:
        """The name; None if the center is gone."""
        ...

    @property
    def settings(self) -> CenterSettings:
        """The center's settings."""
        ...

    @property
    def logo_uri(self) -> str | None:
        """The address of the center's logo, or None."""
        ...


UNREACHABLE: Final = Problem(status=503, key="problem.unreachable", retry_after_seconds=30)


def show_problem(
    req: falcon.Request, resp: falcon.Response, problem: Problem, way_back: WayBack | None = None
) -> None:
    """Respond with the page. With `way_back`, it names the center and links back to the shop."""
    show_page(req, resp, "problem.html", way_back, problem=problem)
    resp.status = problem.status
    if problem.retry_after_seconds is not None:
        resp.set_header("Retry-After", str(problem.retry_after_seconds))
        if problem.reloads:
            resp.set_header("Refresh", str(problem.retry_after_seconds))
    protect_page(resp)


def accepted_by(req: falcon.Request) -> Sequence[str]:
    """Return the languages that the browser accepts, the best first."""
    return accepted_languages(req.get_header("Accept-Language"))


def show_page(
    req: falcon.Request,
    resp: falcon.Response,
    name: str,
    way_back: WayBack | None,
    *,
    shows: ShowsCenter | None = None,
    language: str | None = None,
    **values: object,
) -> None:
    """Respond with a page from a template, in the style of the center of `way_back` or `shows`.

    `language` is the language of the page. By default it is the language of the hosted page with
    `way_back`, otherwise a language that the browser accepts. `values` are for the template; they
    replace values of `way_back`.
    """
    if way_back is None or way_back.negotiated:
        resp.append_header("Vary", "Accept-Language")
    known = language or (way_back and way_back.language)
    t = catalog(known) if known else catalog(*accepted_by(req))
    resp.content_type = "text/html; charset=utf-8"
    resp.set_header("Content-Language", t.language)
    of_way_back = way_back and {
        "way_back": way_back,
        "guest": way_back.guest_name and MaskedGuest(way_back.guest_name, way_back.guest_email),
    }
    shown = {"t": t, **_center_of(way_back or shows), **(of_way_back or {}), **values}
    resp.text = _TEMPLATES.get_template(name).render(shown)


def _center_of(shown: ShowsCenter | None) -> Mapping[str, object]:
    if shown is None:
        return {}
    return {
        "center": shown.center_name,
        "color": shown.settings.color,
        "logo_uri": shown.logo_uri,
        "accessibility": shown.settings.accessibility,
    }


def protect_page(
    resp: falcon.Response, *, has_form: bool = False, has_script: bool = False
) -> None:
    """Set the headers that forbid loading from elsewhere, framing and sending a referrer.

    A form is sent with its origin. Browsers send the origin "null" if no referrer is allowed.
    """
    script = "script-src 'self'; connect-src 'self'; " if has_script else ""
    resp.set_header(
        "Content-Security-Policy",
        f"default-src 'none'; style-src 'self'; img-src 'self'; {script}"
        f"{form_action(has_form=has_form)}frame-ancestors 'none'; base-uri 'none'",
    )
    resp.set_header("Referrer-Policy", "same-origin" if has_form else "no-referrer")
