"""Hypothesis strategies that several tests use."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

anything: Final = st.text() | st.sampled_from((None, True, 7, 1.5, ["text"], {"text": "text"}))
"""Text, and JSON values of every other type."""

_SCHEMES: Final = ("https", "http", "HTTPS", "myspa", "javascript", "data", "file", "", "x-")
_HOSTS: Final = (
    *("shop.example", "Shop.Example.", "localhost", "xn--mnchen-3ya.example", "a_b.example"),
    *("127.0.0.1", "127.1", "0x7f.1", "1.2.3.4.5", "2130706433", "[::1]", "[::1", "::1", "[v1.x]"),
    *("user@shop.example", "shop.example%2f", "", ".", "a..b", "-a.example"),
    "m\u00fcnchen.example",
)
_PORTS: Final = ("", "", ":", ":80", ":443", ":8443", ":0", ":65536", ":x", ":80@evil.example")
_REST: Final = (
    *("", "/", "/a/../b", "/%2e", "/?x=1&y=%20#z", "?q", "#f", "/;a=b", "/@evil.example", "/a:b"),
    *("\\evil.example", "/ ", "/\r\nX: y", "/\x00", "/\t", "/\u2028"),
    *("/%", "/|", "/^", '/"', "/'("),
)

uris: Final = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(_SCHEMES),
        st.sampled_from(("://", "://", "://", "://", ":", ":/", ":///", "//", ":\\\\")),
        st.sampled_from(_HOSTS) | st.from_regex(r"[a-z0-9.\-_]{1,12}", fullmatch=True),
        st.sampled_from(_PORTS),
        st.sampled_from(_REST) | st.text(max_size=6),
    ),
)
"""Addresses, most of which programs parse differently."""


@st.composite
def altered(draw: st.DrawFn, original: bytes) -> bytes:
    """Change some bytes. Sometimes the result equals the original."""
    changed = original
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(changed)))
        piece = draw(st.sampled_from((b"", b"0", b",", b"=", b" ", b"v1=", b"\xff")) | st.binary())
        changed = changed[:at] + piece + changed[at + draw(st.integers(0, 3)) :]
    return changed
