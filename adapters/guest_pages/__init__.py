"""The parts that all pages for guests share: the layout, the style, the icon, and centers' colors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import falcon
from jinja2 import ChoiceLoader, Environment, PackageLoader

_STATIC: Final = Path(__file__).parent / "static"
_SHEET: Final = re.compile(r"([0-9a-f]{6})\.css")


def templates(package: str, style: str) -> Environment:
    """Return a Jinja environment with a package's templates. They may extend `layout.html`.

    `style` is the path that was passed to `add_style`. The layout uses the variables `color` and
    `logo_uri` if a page passes them.
    """
    loader = ChoiceLoader([PackageLoader(package), PackageLoader(__name__)])
    environment = Environment(loader=loader, autoescape=True)
    environment.globals["style"] = style
    return environment


def add_style(app: falcon.App[falcon.Request, falcon.Response], style: str) -> None:
    """Add routes below the path `style` for the style sheet, the icon, and the colors of centers."""
    app.add_route(f"{style}/{{name}}", Files(_STATIC))
    app.add_route(f"{style}/colors/{{sheet}}", _Colors())


def is_sent_from(origin: str | None, req: falcon.Request) -> bool:
    """Return whether a form may come from a page of `origin`, according to the request's headers.

    Return False if the header `Origin` or `Sec-Fetch-Site` (Fetch Metadata Request Headers) states
    something else. A missing header is accepted, because some programs that guests use do not send
    it. The origin "null" is accepted too, because browsers send it if a proxy adds
    `Referrer-Policy: no-referrer`.
    """
    return req.get_header("Origin") in (None, "null", origin) and req.get_header(
        "Sec-Fetch-Site"
    ) in (None, "same-origin")


def form_action(*, has_form: bool) -> str:
    """Return the `form-action` directive for a page's Content-Security-Policy, with a semicolon.

    For a page without a form, the directive forbids forms. For a page with a form, return "".
    If the directive were set, browsers would also apply it to the redirects that follow the form.
    These lead to the PSP, to the shop, and to any address to which the shop redirects.
    """
    return "" if has_form else "form-action 'none'; "


class MaskedGuest:
    """A guest's name and email address, masked so that even their length is hidden.

    A screen reader would read out each bullet of the mask. For screen readers, a page therefore
    uses the attributes `initials` and `domain` instead of `masked`.
    """

    def __init__(self, name: str, email: str | None) -> None:
        """Mask `name`, which must have at least one word, and `email` if it is not None."""
        words = name.split()
        self.masked = " ".join(f"{word[0]}•••" for word in words)
        self.initials = " ".join(word[0] for word in words)
        local, _, self.domain = (email or "").rpartition("@")
        if self.domain:
            self.masked += f", {local[:1]}•••@{self.domain}"


class Files:
    """Serves the files of a folder.

    Falcon's static routes are not used, because requests to them do not have a route that the
    access log could show.
    """

    def __init__(self, folder: Path) -> None:
        self._contents = {file.name: file.read_bytes() for file in folder.iterdir()}

    def on_get(self, _: falcon.Request, resp: falcon.Response, name: str) -> None:
        """Respond with a file. Raises HTTPNotFound."""
        if name not in self._contents:
            raise falcon.HTTPNotFound
        resp.content_type = resp.options.static_media_types[Path(name).suffix]
        resp.data = self._contents[name]


class _Colors:
    """Serves style sheets for colors, because pages may not contain inline styles."""

    def on_get(self, _: falcon.Request, resp: falcon.Response, sheet: str) -> None:
        """Respond with the style sheet of a color, such as `1d4f91.css`. Raises HTTPNotFound."""
        found = _SHEET.fullmatch(sheet)
        if found is None:
            raise falcon.HTTPNotFound
        resp.content_type = "text/css; charset=utf-8"
        # On a dark page, a dark button needs a border.
        resp.text = (
            f":root {{ --fill: #{found[1]}; --fill-ink: #fff; --fill-edge: #{found[1]}; }}\n"
            "@media (prefers-color-scheme: dark) { :root { --fill-edge: var(--line); } }\n"
        )
