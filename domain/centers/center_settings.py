"""The settings that decide how pages present a center: logo, color, contact and language."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from typing import Any, Final, Protocol
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from domain.errors import InvalidField
from domain.identifiers import CenterId
from domain.languages import parse_language
from domain.redirects import MAX_REDIRECT_URI_LENGTH, redirect_origin

MAX_LOGO_BYTES: Final = 100_000
MIN_CONTRAST: Final = 4.5
"""The minimum contrast for text of usual size (WCAG 2.2, success criterion 1.4.3)."""

_MAX_CONTACT_LENGTH: Final = 200
_PHONE: Final = re.compile(r"tel:\+?[0-9](?:[0-9().-]{1,28}[0-9])")
_EMAIL: Final = re.compile(r"mailto:[A-Za-z0-9._+-]{1,64}@[A-Za-z0-9.-]{1,120}")
_COLOR: Final = re.compile(r"#[0-9a-f]{6}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Logo:
    """A picture of at most 100 KB, and its media type (`image/png` or `image/webp`)."""

    media_type: str
    content: bytes = field(repr=False)

    @property
    def file_name(self) -> str:
        """A file name ending in `.png` or `.webp`. It differs for each picture."""
        _, _, kind = self.media_type.partition("/")
        return f"{sha256(self.content).hexdigest()[:16]}.{kind}"

    def __str__(self) -> str:
        return f"{self.file_name}, {len(self.content)} bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class CenterSettings:
    """An operator's settings for a center. A setting that is None has its default.

    `contact` is where guests can ask questions: a `tel:`, `mailto:` or https address. `color` is
    the color of buttons, such as `#1d4f91`; white text must be readable on it. `language` (RFC
    5646) is used for guests whose language is unknown, and defaults to English. `time_zone` is the
    IANA name of the time zone in which pages show times, such as `Europe/Berlin`. `accessibility`
    is the https address of the center's accessibility statement.
    """

    contact: str | None = None
    color: str | None = None
    logo: Logo | None = None
    language: str | None = None
    time_zone: str | None = None
    accessibility: str | None = None

    @property
    def contact_shown(self) -> str:
        """The contact as pages show it: the phone number, the e-mail address, or the host."""
        parts = urlsplit(self.contact or "")
        return parts.netloc or parts.path

    def changed(self, named: Mapping[str, Any]) -> CenterSettings:  # values of any type
        """Return the settings with the changes in `named`, which maps names to unparsed values.

        The value of a logo is the content of its file. Raises InvalidField.
        """
        read = {
            name: None if value is None else _PARSERS[name](value) for name, value in named.items()
        }
        return replace(self, **read)


def _parse_contact(value: str) -> str:
    """Return the address unchanged.

    Raises InvalidField unless it is a `tel:`, `mailto:` or https address. Also raises InvalidField
    for an address that would prefill a message.
    """
    is_contact = _is_https(value) or _PHONE.fullmatch(value) or _EMAIL.fullmatch(value)
    if not is_contact or len(value) > _MAX_CONTACT_LENGTH:
        raise InvalidField(
            "contact",
            "tel:+49301234567 without spaces, mailto:desk@spa.example, or an https address, of at most "
            f"{_MAX_CONTACT_LENGTH} characters",
        )
    return value


def _parse_accessibility(value: str) -> str:
    if not _is_https(value) or len(value) > MAX_REDIRECT_URI_LENGTH:
        raise InvalidField(
            "accessibility", f"an https address of at most {MAX_REDIRECT_URI_LENGTH} characters"
        )
    return value


def _is_https(value: str) -> bool:
    return (redirect_origin(value) or "").startswith("https://")


def _parse_color(value: str) -> str:
    color = value.lower()
    if not _COLOR.fullmatch(color):
        raise InvalidField("color", "six hexadecimal digits, such as #1d4f91")
    contrast = _contrast_to_white(color)
    if contrast < MIN_CONTRAST:
        raise InvalidField(
            "color",
            f"dark enough for white text: its contrast with white is {contrast:.2f}, and WCAG 2.2 "
            f"requires {MIN_CONTRAST}",
        )
    return color


def _contrast_to_white(color: str) -> float:
    """Return the contrast with white, from 1 to 21, rounded down (WCAG 2.2, "contrast ratio")."""
    shares = (int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (
        share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares
    )
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return int(100 * 1.05 / (luminance + 0.05)) / 100


def _parse_time_zone(value: str) -> str:
    with suppress(ZoneInfoNotFoundError, ValueError, OSError):
        return ZoneInfo(value).key
    raise InvalidField("time_zone", "a name of the IANA time zone database, such as Europe/Berlin")


def _parse_logo(content: bytes) -> Logo:
    """Return the picture. Its media type is recognized from `content`. Raises InvalidField."""
    if len(content) <= MAX_LOGO_BYTES:
        # PNG, section 5.2, with the header chunk first and the end chunk last.
        if content[:16] == b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" and content.endswith(b"IEND\xaeB`\x82"):
            return Logo(media_type="image/png", content=content)
        # RFC 9649, section 2.4.
        length = int.from_bytes(content[4:8], "little")
        if (content[:4], content[8:15]) == (b"RIFF", b"WEBPVP8") and length == len(content) - 8:
            return Logo(media_type="image/webp", content=content)
    raise InvalidField("logo", f"a PNG or WebP picture of at most {MAX_LOGO_BYTES // 1000} KB")


_PARSERS: Final[Mapping[str, Callable[[Any], Any]]] = {  # for fields of different types
    "contact": _parse_contact,
    "color": _parse_color,
    "logo": _parse_logo,
    "language": partial(parse_language, "language"),
    "time_zone": _parse_time_zone,
    "accessibility": _parse_accessibility,
}


class SettingsOfCenters(Protocol):
    """Repository of the settings of centers."""

    def get(self, center_id: CenterId) -> CenterSettings:
        """Return the center's settings, or the defaults if none are stored."""
        ...

    def get_to_change(self, center_id: CenterId) -> CenterSettings:
        """Return what `get` returns, and lock it.

        Other write units that call this for the center wait until this unit ends.
        """
        ...

    def put(self, center_id: CenterId, settings: CenterSettings) -> None:
        """Store the center's settings, in place of any stored settings."""
        ...
