from __future__ import annotations

import pytest

from domain.centers.center_settings import MAX_LOGO_BYTES, CenterSettings
from domain.errors import InvalidField
from tests.pictures import A_WEBP, a_png


def read(**named: object) -> CenterSettings:
    return CenterSettings().changed(named)


@pytest.mark.parametrize(
    "contact",
    [
        *("tel:+49301234567", "tel:030-123.45(67)9", "mailto:front.desk+cards@spa.example"),
        *("https://spa.example", "https://spa.example/contact?from=card"),
    ],
)
def test_a_valid_contact_address_of_a_center_is_stored_unchanged(contact: str) -> None:
    assert read(contact=contact).contact == contact


@pytest.mark.parametrize(
    "contact",
    [
        *("", "desk", "+49301234567", "tel:", "tel:call me", "tel:123;ext=1", "TEL:+4930123456"),
        *("mailto:desk", "mailto:a@b.example?body=x", "mailto:a@b.example,c@d.example"),
        *("http://spa.example", "javascript:alert(1)", "https://user@spa.example", "https://a b"),
        f"https://spa.example/{'x' * 200}",
    ],
)
def test_a_contact_address_of_an_unsupported_kind_is_refused(contact: str) -> None:
    with pytest.raises(InvalidField, match=r"^contact must be tel:"):
        read(contact=contact)


# The contrasts are those of the formula in WCAG 2.2 and of public checkers.
@pytest.mark.parametrize(
    "color", ["#000000", "#0a0a0a", "#767676", "#1D4F91", "#0000ff", "#008000"]
)
def test_a_color_with_enough_contrast_with_white_text_is_accepted(color: str) -> None:
    assert read(color=color).color == color.lower()


@pytest.mark.parametrize(
    ("color", "contrast"),
    [("#ffffff", "1.00"), ("#777777", "4.47"), ("#ff0000", "3.99"), ("#ffd700", "1.40")],
)
def test_a_color_with_too_little_contrast_with_white_text_is_refused(
    color: str, contrast: str
) -> None:
    with pytest.raises(InvalidField, match=f"its contrast with white is {contrast}, and WCAG 2.2"):
        read(color=color)


@pytest.mark.parametrize(
    "color", ["", "1d4f91", "#123", "#1d4f9", "red", "#1d4f91;", "#\u0661d4f91"]
)
def test_a_malformed_color_for_a_center_is_refused(color: str) -> None:
    with pytest.raises(InvalidField, match="six hexadecimal digits"):
        read(color=color)


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


def test_the_address_of_an_accessibility_statement_must_start_with_https() -> None:
    statement = "https://spa.example/accessibility?lang=de#top"
    assert read(accessibility=statement).accessibility == statement


@pytest.mark.parametrize(
    "address",
    [
        *("", "spa.example", "http://spa.example", "javascript:alert(1)", "tel:+49301234567"),
        *(
            "https://user@spa.example",
            "https://spa.example/ x",
            "https://spa.example/" + "x" * 2048,
        ),
    ],
)
def test_an_accessibility_statement_at_an_invalid_address_is_refused(address: str) -> None:
    with pytest.raises(InvalidField, match="accessibility must be an https address of at most"):
        read(accessibility=address)


def test_changing_one_setting_of_a_center_keeps_the_other_settings() -> None:
    both = read(contact="tel:+49301234567", color="#1d4f91")

    assert both.changed({"color": None}) == read(contact="tel:+49301234567")
    assert both.changed({}) == both


@pytest.mark.parametrize("name", ["Europe/Berlin", "America/New_York", "UTC"])
def test_a_time_zone_from_the_iana_database_is_accepted(name: str) -> None:
    assert read(time_zone=name).time_zone == name


@pytest.mark.parametrize("name", ["Berlin", "+01:00", "", "../Berlin", "Europe", "a\x00b"])
def test_an_unknown_time_zone_is_refused(name: str) -> None:
    with pytest.raises(InvalidField, match="time_zone must be a name of the IANA time zone"):
        read(time_zone=name)
