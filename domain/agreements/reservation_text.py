"""The texts to which guests agree when a card guarantees a booking, by center and language."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Final, Protocol

from domain.agreements.locale_formats import LocaleFormats
from domain.agreements.terms import AgreementTerms, Money
from domain.centers.center import Center
from domain.centers.center_settings import CenterSettings
from domain.errors import InvalidField
from domain.fields import is_clean, is_visible, without_card_number
from domain.identifiers import CenterId

MAX_FILE_LENGTH: Final = 10_000
"""The maximum length of the file with a text, in characters."""

_MAX_BUTTON_LENGTH: Final = 80
_MAX_LINE_LENGTH: Final = 300
_AMOUNTS: Final = frozenset({"no_show", "late_cancellation"})
_OPTIONAL: Final = _AMOUNTS | {"cancel_by", "contact", "policy_uri"}
"""The placeholders that may have no value."""
_PLACEHOLDERS: Final = _OPTIONAL | {
    *("center", "description", "ends_at", "kept_until", "reference", "starts_at")
}
_WITHOUT_ISOLATES: Final = str.maketrans(
    "", "", "\N{FIRST STRONG ISOLATE}\N{POP DIRECTIONAL ISOLATE}"
)
_PLACEHOLDER: Final = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownText:
    """A text about one booking, as a guest reads it.

    Each line of `text` is a paragraph. `button` is the label of the button with which the guest
    agrees. `keep` is the label of the box that the guest ticks to allow later use of the card too.
    `on_psp_page` is the line that the PSP's page shows.
    """

    version: str
    language: str
    text: str
    button: str
    keep: str
    on_psp_page: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationText:
    """A text with placeholders such as `{starts_at}` for the values of a booking.

    If a placeholder has no value, its paragraph is left out. `text_when_late` replaces `text` for
    bookings that can no longer be cancelled free of charge. The other parts are as in `ShownText`.
    """

    language: str
    version: str
    text: str
    text_when_late: str
    button: str
    keep: str
    on_psp_page: str

    @classmethod
    def own(cls, language: str, content: str) -> ReservationText:
        """Parse a text that an operator wrote. Its version is computed from its content.

        Raises InvalidField.
        """
        parts = _parts_of(content)
        digest = sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        return cls(language=language, version=f"own-{digest[:12]}", **parts)

    @classmethod
    def shipped(cls, language: str, version: str, content: str) -> ReservationText:
        """Parse a text that is part of the release. Raises InvalidField."""
        return cls(language=language, version=version, **_parts_of(content))

    def shown(self, values: Mapping[str, str | None]) -> ShownText:
        """Return the text with its placeholders filled in. `values_of` returns the `values`."""
        text = self.text if values["cancel_by"] else self.text_when_late
        return ShownText(
            version=self.version,
            language=self.language,
            text=_filled(text, values),
            button=_filled(self.button, values),
            keep=_filled(self.keep, values),
            # A PSP's page might render the invisible isolate characters as boxes.
            on_psp_page=_filled(self.on_psp_page, values).translate(_WITHOUT_ISOLATES),
        )


def values_of(
    terms: AgreementTerms,
    center: Center,
    settings: CenterSettings,
    formats: LocaleFormats,
    *,
    language: str,
    kept_until: datetime,
    now: datetime,
) -> dict[str, str | None]:
    """Return the values for the placeholders of a text, formatted in `language`.

    A placeholder maps to None if the booking or the center does not have the value. `cancel_by` is
    also None if that time has passed. `kept_until` is the time after which the card is removed.
    Times are in UTC if the center has no time zone. A center with texts about bookings has one.
    """
    zone = settings.time_zone or "UTC"

    def money(value: Money | None) -> str | None:
        return None if value is None else formats.money(value, language)

    def time(value: datetime) -> str:
        return formats.time(value, language, zone)

    cancel_by = terms.cancel_by
    return {
        "reference": _isolated(terms.reference),
        "description": _isolated(terms.description),
        "starts_at": time(terms.starts_at),
        "ends_at": time(terms.ends_at),
        "no_show": money(terms.no_show),
        "late_cancellation": money(terms.late_cancellation),
        "cancel_by": time(cancel_by) if cancel_by and now < cancel_by else None,
        "policy_uri": _left_to_right(terms.policy_uri),
        "kept_until": time(kept_until),
        "center": center.name,
        "contact": _left_to_right(settings.contact_shown),
    }


class ReservationTexts(Protocol):
    """Each center's texts about bookings, by language."""

    def of(self, center_id: CenterId) -> Sequence[ReservationText]:
        """Return the texts of a center, sorted by language."""
        ...

    def put(self, center_id: CenterId, text: ReservationText) -> None:
        """Store a text. It replaces the center's text in the same language."""
        ...

    def remove(self, center_id: CenterId, language: str) -> None:
        """Remove the center's text in a language, if there is one."""
        ...


def _left_to_right(value: str | None) -> str | None:
    """Enclose an address or a phone number in control characters that keep it left to right.

    Without them, Arabic text would show the plus sign of a phone number at its end, and the last
    slash of an address at its beginning.
    """
    return value and f"\N{LEFT-TO-RIGHT ISOLATE}{value}\N{POP DIRECTIONAL ISOLATE}"


def _isolated(value: str) -> str:
    """Isolate a client's text, so that its direction does not affect the text around it.

    The client's text may be in another language than the page.
    """
    return f"\N{FIRST STRONG ISOLATE}{value}\N{POP DIRECTIONAL ISOLATE}"


def _filled(part: str, values: Mapping[str, str | None]) -> str:
    paragraphs = [
        _PLACEHOLDER.sub(lambda found: f"{values[found[1]]}", paragraph)
        for paragraph in part.splitlines()
        if all(values[name] for name in _PLACEHOLDER.findall(paragraph))
    ]
    return "\n".join(paragraphs)


def _parts_of(content: str) -> dict[str, str]:
    """Parse `content`, the TOML file of a text, and return its parts. Raises InvalidField."""
    if len(content) > MAX_FILE_LENGTH:
        raise _refused(f"a file of at most {MAX_FILE_LENGTH} characters")
    try:
        parts = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise _refused(f"a TOML file: {error}") from error
    names = ("text", "text_when_late", "button", "keep", "on_psp_page")
    if parts.keys() != set(names) or not all(isinstance(each, str) for each in parts.values()):
        raise _refused(f"a TOML file with the texts {', '.join(names)}, and nothing else")
    checked = {name: _checked(name, parts[name]) for name in names}
    _require(checked, "text", needed=_AMOUNTS | {"cancel_by", "kept_until"})
    _require(checked, "text_when_late", needed=_AMOUNTS | {"kept_until"}, without={"cancel_by"})
    _require(checked, "on_psp_page", without=_OPTIONAL)
    for name in ("button", "keep"):
        _require(checked, name, without=_PLACEHOLDERS - {"center"})
    if len(checked["on_psp_page"]) > _MAX_LINE_LENGTH:
        # With the center's name and the time filled in, the line must fit on every PSP's page.
        raise _refused(f"a TOML file with an on_psp_page of at most {_MAX_LINE_LENGTH} characters")
    if len(checked["button"]) > _MAX_BUTTON_LENGTH:
        raise _refused(f"a TOML file with a button of at most {_MAX_BUTTON_LENGTH} characters")
    return checked


def _checked(name: str, part: str) -> str:
    """Return the text of a part without blank lines and superfluous spaces. Raises InvalidField."""
    paragraphs = [" ".join(each.split()) for each in part.splitlines() if each.strip()]
    is_one = len(paragraphs) == 1 or name.startswith("text")
    if not is_one or not all(is_clean(each) and is_visible(each) for each in paragraphs):
        raise _refused(f"a TOML file whose {name} is text without control characters")
    return without_card_number("text", "\n".join(paragraphs))


def _require(
    parts: Mapping[str, str],
    name: str,
    *,
    needed: Set[str] = frozenset(),
    without: Set[str] = frozenset(),
) -> None:
    """Check the placeholders of the part `name`. Raises InvalidField.

    The part must contain all `needed` placeholders, and none of those in `without`.

    If a placeholder has no value, its paragraph is left out. A paragraph may therefore contain at
    most one of the _OPTIONAL placeholders. A paragraph with such a placeholder must not contain
    `kept_until`, because the guest must always read that time.
    """
    part = parts[name]
    found = set(_PLACEHOLDER.findall(part))
    allowed = _PLACEHOLDERS - without
    if found - allowed or any(brace in _PLACEHOLDER.sub("", part) for brace in "{}"):
        listed = ", ".join(f"{{{each}}}" for each in sorted(allowed))
        raise _refused(f"a TOML file whose {name} has no braces except {listed}")
    if missing := needed - found:
        listed = " and ".join(f"{{{each}}}" for each in sorted(missing))
        raise _refused(f"a TOML file whose {name} has {listed}")
    for paragraph in part.splitlines():
        names = set(_PLACEHOLDER.findall(paragraph))
        optional = names & _OPTIONAL
        if len(optional) > 1 or (optional and "kept_until" in names):
            listed = " and ".join(
                f"{{{each}}}" for each in sorted(optional | names & {"kept_until"})
            )
            raise _refused(f"a TOML file whose {name} has {listed} in paragraphs of their own")


def _refused(expected: str) -> InvalidField:
    return InvalidField("text", expected)
