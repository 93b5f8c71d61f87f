from __future__ import annotations

from contextlib import suppress
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.errors import RedirectUriInvalid, Refusal
from domain.redirects import parse_allowed_origin, parse_redirect_uri, redirect_origin
from tests.strategies import anything, uris


@pytest.mark.parametrize(
    "uri",
    [
        *("https://shop.example", "http://shop.example/", "HTTPS://Shop.Example/x"),
        *("https://shop.example:8443/cards?x=1&y=%20#done", "https://shop.example./x"),
        *("https://127.0.0.1/x", "http://[::1]:3000/x", "https://xn--mnchen-3ya.example/x"),
        "https://shop.example/" + "x" * 2027,
    ],
)
def test_a_valid_redirect_uri_is_stored_byte_for_byte(uri: str) -> None:
    assert parse_redirect_uri(uri) == uri


# Shows S6.
@pytest.mark.parametrize(
    "uri",
    [
        *("shop.example/cards", "//shop.example/cards", "/cards", "https:shop.example"),
        *("https:/shop.example", "https://", "https:\\\\shop.example", " https://shop.example/"),
        *("javascript:alert(1)", "JavaScript://shop.example/%0aalert(1)", "data:text/html,x"),
        *("file:///etc/passwd", "ftp://shop.example/", "myspa://cards"),
        *(
            f"https://{host}/"
            for host in (
                *("", "?x", "user@shop.example", "user:secret@shop.example", "a..b", "[::1"),
                *("m\u00fcnchen.example", "-shop.example", "shop.example\\@evil.example"),
                *("shop.example:port", "shop.example:99999", "shop.example:0"),
                *("a" * 64 + ".example", "a." * 127 + "example"),
                *("0x7f.1", "2130706433", "127.1", "127.0.0.01", "256.1.1.1", "99999999999"),
                *("[127.0.0.1]", "[::1%25eth0]", "::1"),
            )
        ),
        *(
            f"https://shop.example/{path}"
            for path in ("a b", "\r\nSet-Cookie: a=b", "\x00", "\u2028", "\ud800", "x" * 2028)
        ),
    ],
)
def test_an_invalid_redirect_uri_is_refused(uri: str) -> None:
    with pytest.raises(RedirectUriInvalid):
        parse_redirect_uri(uri)


# Shows S6.
@given(anything | uris)
def test_any_redirect_uri_is_either_stored_byte_for_byte_or_refused(value: object) -> None:
    with suppress(Refusal):
        kept = parse_redirect_uri(value)
        assert kept == value
        assert kept.isascii()
        assert kept.isprintable()
        assert not set(kept) & set(' \\"<>')
        assert len(kept) <= 2048
        assert kept.lower().startswith(("http://", "https://"))
        parts = urlsplit(kept)
        assert parts.hostname
        assert "@" not in parts.netloc


@given(uris, uris)
def test_a_redirect_uri_is_accepted_only_if_its_own_origin_is_allowed(uri: str, other: str) -> None:
    origin, other_origin = redirect_origin(uri), redirect_origin(other)
    if origin is None:
        return

    assert parse_redirect_uri(uri, allowed=[origin]) == uri
    assert parse_allowed_origin(origin) == origin
    if other_origin not in (None, origin):
        with pytest.raises(RedirectUriInvalid):
            parse_redirect_uri(uri, allowed=[str(other_origin)])


@given(st.text() | uris)
def test_a_uri_below_an_allowed_origin_has_that_origin(text: str) -> None:
    with suppress(ValueError):
        origin = parse_allowed_origin(text)
        assert redirect_origin(origin + ("x" if origin.endswith("://") else "/x")) == origin
        assert origin.partition(":")[0]


@pytest.mark.parametrize(
    ("uri", "origin"),
    [
        ("https://Shop.Example:443/x", "https://shop.example"),
        ("http://shop.example:80", "http://shop.example"),
        ("https://shop.example:80/", "https://shop.example:80"),
        ("https://shop.example:/x", "https://shop.example"),
        ("http://[::1]:3000/", "http://[::1]:3000"),
        ("http://[1:2:3:4:5:6:7:F]/", "http://[1:2:3:4:5:6:7:f]"),
        ("myspa://cards/done", "myspa://"),
        ("javascript://x", None),
        ("com.example.spa://cards", "com.example.spa://"),
        ("ms://cards", "ms://"),
        ("com.example.app:/back", "com.example.app://"),
        ("ms.example.app:/back?x=1", "ms.example.app://"),
        ("com.example.app:back", None),
        ("com.example.app:", None),
        ("://", None),
        ("1app://x", None),
        *((f"{scheme}://x", None) for scheme in ("intent", "ws", "wss", "jar", "vbscript", "file")),
        *((f"{scheme}://x", None) for scheme in ("ms-msdt", "MS-Settings", "search-ms", "search")),
        *((f"{scheme}://x", None) for scheme in ("smb", "shell", "itms-services", "x-apple.x")),
        *((f"{scheme}:/x", None) for scheme in ("shortcuts", "content", "powershell", "vscode")),
        *(
            (f"{scheme}:/x", None)
            for scheme in ("tel", "sms", "htmlfile", "microsoft.windows.camera")
        ),
    ],
)
def test_the_origin_of_a_redirect_uri_is_normalized(uri: str, origin: str | None) -> None:
    assert redirect_origin(uri) == origin


@pytest.mark.parametrize(
    ("given_origin", "kept"),
    [
        ("https://shop.example/", "https://shop.example"),
        ("HTTPS://SHOP.example:443", "https://shop.example"),
        ("MySpa://", "myspa://"),
        ("com.example.app:/", "com.example.app://"),
    ],
)
def test_an_allowed_origin_is_stored_in_its_normalized_spelling(
    given_origin: str, kept: str
) -> None:
    assert parse_allowed_origin(given_origin) == kept


@pytest.mark.parametrize(
    "value",
    [
        *("", "shop.example", "https://shop.example/cards", "https://*.example", "javascript://"),
        *("x:", "://"),
    ],
)
def test_a_malformed_origin_is_not_accepted_as_an_allowed_origin(value: str) -> None:
    with pytest.raises(
        ValueError, match=r"^an origin looks like .+, an app's scheme like myspa://$"
    ):
        parse_allowed_origin(value)
