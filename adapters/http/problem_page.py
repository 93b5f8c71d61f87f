"""The HTML page for a guest whose browser cannot be redirected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import falcon

from adapters.catalogs import accepted_languages, catalog
from adapters.guest_pages import MaskedGuest, form_action, templates
from domain.centers.center_settings import CenterSettings
from domain.hosted_payments.find_page_content import PageContent

STYLE: Final = "/hosted-payments/style"

_TEMPLATES: Final = templates("adapters.http", STYLE)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A problem that a page explains to the guest.

    `key` names a table in the catalogs. This table contains the texts of the page, and `values` are
    the values for the placeholders in these texts. If `reloads` is set, the browser reloads the
    page after `retry_after_seconds`.
    """

    status: int
    key: str
    retry_after_seconds: int | None = None
    reloads: bool = False
    values: Mapping[str, object] = field(default_factory=dict)


class ShowsCenter(Protocol):
    """The content of a page that shows the name and the style of a center."""

    @property
    def center_name(self) -> str | None:
        """The name of the center, or None if the center is no longer stored."""
        ...

    @property
    def settings(self) -> CenterSettings:
        """The settings of the center."""
        ...

    @property
    def logo_uri(self) -> str | None:
        """The address of the center's logo, or None."""
        ...


UNREACHABLE: Final = Problem(status=503, key="problem.unreachable", retry_after_seconds=30)


def show_problem(
    req: falcon.Request,
    resp: falcon.Response,
    problem: Problem,
    page_content: PageContent | None = None,
) -> None:
    """Respond with a page about a problem.

    If `page_content` is given, the page shows the center's name and a link back to the shop.
    """
    show_page(req, resp, "problem.html", page_content, problem=problem)
    resp.status = problem.status
    if problem.retry_after_seconds is not None:
        resp.set_header("Retry-After", str(problem.retry_after_seconds))
        if problem.reloads:
            resp.set_header("Refresh", str(problem.retry_after_seconds))
    protect_page(resp)


def accepted_by(req: falcon.Request) -> Sequence[str]:
    """Return the languages that the browser accepts, most preferred first."""
    return accepted_languages(req.get_header("Accept-Language"))


def show_page(
    req: falcon.Request,
    resp: falcon.Response,
    name: str,
    page_content: PageContent | None,
    *,
    shows: ShowsCenter | None = None,
    language: str | None = None,
    **values: object,
) -> None:
    """Respond with a page from the template `name`.

    The page has the style of the center in `page_content`, or in `shows` if `page_content` is None.
    The page is in `language`. If that is None, the page is in the language of `page_content`, or in
    a language that the browser accepts. The template gets `page_content`, the masked guest and
    `values`. If a name occurs twice, the value in `values` is used.
    """
    if page_content is None or page_content.negotiated:
        resp.append_header("Vary", "Accept-Language")
    known = language or (page_content and page_content.language)
    t = catalog(known) if known else catalog(*accepted_by(req))
    resp.content_type = "text/html; charset=utf-8"
    resp.set_header("Content-Language", t.language)
    of_content = page_content and {
        "page_content": page_content,
        "guest": page_content.guest_name
        and MaskedGuest(page_content.guest_name, page_content.guest_email),
    }
    shown = {"t": t, **_center_of(page_content or shows), **(of_content or {}), **values}
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
    """Set headers that forbid framing, sending a referrer, and loading resources of other hosts.

    A page with a form may send a referrer within its own origin. Without a referrer, browsers would
    send the form with the origin "null".
    """
    script = "script-src 'self'; connect-src 'self'; " if has_script else ""
    resp.set_header(
        "Content-Security-Policy",
        f"default-src 'none'; style-src 'self'; img-src 'self'; {script}"
        f"{form_action(has_form=has_form)}frame-ancestors 'none'; base-uri 'none'",
    )
    resp.set_header("Referrer-Policy", "same-origin" if has_form else "no-referrer")
