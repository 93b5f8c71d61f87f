from __future__ import annotations

from typing import Final

import pytest

from domain.centers.center_settings import MAX_LOGO_BYTES, CenterSettings
from domain.errors import InvalidField
from tests.pictures import A_WEBP, a_png


def read(**named: object) -> CenterSettings:
    return CenterSettings().changed(named)


ACCEPTED: Final = {
    "contact": [
        *("tel:+49301234567", "tel:030-123.45(67)9", "mailto:front.desk+cards@spa.example"),
        *("https://spa.example", "https://spa.example/contact?from=card"),
    ],
    # The contrasts are those of the formula in WCAG 2.2 and of public checkers.
    "color": ["#000000", "#0a0a0a", "#767676", "#1d4f91", "#0000ff", "#008000"],
    "accessibility": ["https://spa.example/accessibility?lang=de#top"],
    "time_zone": ["Europe/Berlin", "America/New_York", "UTC"],
}
CONTRAST: Final = "its contrast with white is {}, and WCAG 2.2"
REFUSED: Final = {
    ("contact", "contact must be tel:"): [
        *("", "desk", "+49301234567", "tel:", "tel:call me", "tel:123;ext=1", "TEL:+4930123456"),
        *("mailto:desk", "mailto:a@b.example?body=x", "mailto:a@b.example,c@d.example"),
        *("http://spa.example", "javascript:alert(1)", "https://user@spa.example", "https://a b"),
        f"https://spa.example/{'x' * 200}",
    ],
    ("color", CONTRAST.format("1.00")): ["#ffffff"],
    ("color", CONTRAST.format("4.47")): ["#777777"],
    ("color", CONTRAST.format("3.99")): ["#ff0000"],
    ("color", "six hexadecimal digits"): [
        *("", "1d4f91", "#123", "#1d4f9", "red", "#1d4f91;", "#\u0661d4f91")
    ],
    ("accessibility", "accessibility must be an https address of at most"): [
        *("", "spa.example", "http://spa.example", "javascript:alert(1)", "tel:+49301234567"),
        *(
            "https://user@spa.example",
            "https://spa.example/ x",
            f"https://spa.example/{'x' * 2048}",
        ),
    ],
    ("time_zone", "time_zone must be a name of the IANA time zone"): [
        *("Berlin", "+01:00", "", "../Berlin", "Europe", "a\x00b")
    ],
}


@pytest.mark.parametrize(
    ("field", "value"), [(field, each) for field, values in ACCEPTED.items() for each in values]
)
def test_a_valid_setting_of_a_center_is_stored_unchanged(field: str, value: str) -> None:
    assert getattr(read(**{field: value}), field) == value


def test_the_color_of_a_center_is_stored_in_lower_case() -> None:
    assert read(color="#1D4F91").color == "#1d4f91"


@pytest.mark.parametrize(
    ("field", "complaint", "value"),
    [(*named, each) for named, values in REFUSED.items() for each in values],
)
def test_the_refusal_of_an_invalid_setting_of_a_center_says_why(
    field: str, complaint: str, value: str
) -> None:
    with pytest.raises(InvalidField, match=complaint):
        read(**{field: value})


@pytest.mark.parametrize(("picture", "kind"), [(a_png(), "png"), (A_WEBP, "webp")])
def test_the_type_of_a_logo_is_detected_from_its_content(picture: bytes, kind: str) -> None:
    logo = read(logo=picture).logo

    assert logo is not None
    assert (logo.media_type, logo.content) == (f"image/{kind}", picture)
    assert logo.file_name.endswith(f".{kind}")
    assert str(logo) == f"{logo.file_name}, {len(picture)} bytes"
    assert str(picture) not in repr(logo)


PADDED = a_png()[:-12] + b"x" * (MAX_LOGO_BYTES - len(a_png())) + a_png()[-12:]


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"GIF89a", b"\xff\xd8\xff\xe0 JFIF"),
        *(a_png()[:-1], a_png() + b"<script>", A_WEBP[:-1], A_WEBP + b"<script>"),
        PADDED + PADDED[-12:],
    ],
)
def test_a_logo_in_an_unsupported_format_or_over_100_kb_is_refused(content: bytes) -> None:
    assert len(PADDED) == MAX_LOGO_BYTES
    assert read(logo=PADDED).logo is not None
    with pytest.raises(InvalidField, match="logo must be a PNG or WebP picture of at most 100 KB"):
        read(logo=content)


def test_changing_one_setting_of_a_center_keeps_the_other_settings() -> None:
    both = read(contact="tel:+49301234567", color="#1d4f91")

    assert both.changed({"color": None}) == read(contact="tel:+49301234567")
    assert both.changed({}) == both
