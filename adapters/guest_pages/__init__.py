"""The shared parts of all pages for guests: layout, style, icon, and the color of a center."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import falcon
from jinja2 import ChoiceLoader, Environment, PackageLoader

_STATIC: Final = Path(__file__).parent / "static"
_SHEET: Final = re.compile(r"([0-9a-f]{6})\.css")


def templates(package: str, style: str) -> Environment:
    """Return the templates of a package, which may extend `layout.html`.

    `style` is the path below which `add_style` serves. A page with `color` or `logo_uri` uses them.
    """
    loader = ChoiceLoader([PackageLoader(package), PackageLoader(__name__)])
    environment = Environment(loader=loader, autoescape=True)
    environment.globals["style"] = style
    return environment


def add_style(app: falcon.App[falcon.Request, falcon.Response], style: str) -> None:
    """Serve the style sheet and the icon below a path, and a style sheet for each color."""
    app.add_route(f"{style}/{{name}}", Files(_STATIC))
    app.add_route(f"{style}/colors/{{sheet}}", _Colors())


def is_sent_from(origin: str | None, req: falcon.Request) -> bool:
    """Return whether a form was sent from a page of this origin, as far as its headers show.

    If a proxy adds `Referrer-Policy: no-referrer`, browsers send the origin "null", and some
    programs that guests use send no origin. In both cases `Sec-Fetch-Site` says where the
    form was, if the browser sends that header (Fetch Metadata Request Headers).
    """
    return req.get_header("Origin") in (None, "null", origin) and req.get_header(
        "Sec-Fetch-Site"
    ) in (None, "same-origin")


def form_action(*, has_form: bool) -> str:
    """Return the `form-action` directive of a page's Content-Security-Policy, with its semicolon.

    A page with a form has no such directive. Browsers would apply it to each redirect after the
    form: to the PSP, to the shop, and to any further address of the shop.
    """
    return "" if has_form else "form-action 'none'; "


class MaskedGuest:
    """A guest's name and email address, masked without showing their length.

    The initials and the domain stand apart, because a screen reader would read out every bullet.
    """

    def __init__(self, name: str, email: str | None) -> None:
        """Take a name of one word or more, and an address if it may be shown."""
        words = name.split()
        self.masked = " ".join(f"{word[0]}•••" for word in words)
        self.initials = " ".join(word[0] for word in words)
        local, _, self.domain = (email or "").rpartition("@")
        if self.domain:
            self.masked += f", {local[:1]}•••@{self.domain}"


class Files:
    """The files of a folder. Falcon's static routes would not be logged by their route."""

    def __init__(self, folder: Path) -> None:
        self._contents = {file.name: file.read_bytes() for file in folder.iterdir()}

    def on_get(self, _: falcon.Request, resp: falcon.Response, name: str) -> None:
        """Respond with a file. Raises HTTPNotFound."""
        if name not in self._contents:
            raise falcon.HTTPNotFound
        resp.content_type = resp.options.static_media_types[Path(name).suffix]
        resp.data = self._contents[name]


class _Colors:
    """Style sheets for colors, because a page may not contain styles."""

    def on_get(self, _: falcon.Request, resp: falcon.Response, sheet: str) -> None:
        """Respond with the style sheet of a color, such as `1d4f91.css`. Raises HTTPNotFound."""
        found = _SHEET.fullmatch(sheet)
        if found is None:
            raise falcon.HTTPNotFound
        resp.content_type = "text/css; charset=utf-8"
        # On a dark page, a dark button needs an edge.
        resp.text = (
            f":root {{ --fill: #{found[1]}; --fill-ink: #fff; --fill-edge: #{found[1]}; }}\n"
            "@media (prefers-color-scheme: dark) { :root { --fill-edge: var(--line); } }\n"
        )
