"""The addresses (redirect_uri) to which a guest's browser may be redirected.

An address is checked once, before it is stored, and then used unchanged. The service never fetches
it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from ipaddress import ip_address
from typing import Final
from urllib.parse import SplitResult, urlsplit

from domain.errors import RedirectUriInvalid, RedirectUriRequired
from domain.uri_schemes import belongs_to_others

MAX_REDIRECT_URI_LENGTH: Final = 2_048

# The characters that RFC 3986 allows. A backslash is not allowed, because browsers read it as a
# slash.
_URI_CHARACTERS = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+")
# @ is not allowed, so user information (user:password@) is refused.
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9\-_]{0,61}[A-Za-z0-9_])?"
_HOST_NAME = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*\.?")
# Browsers read a host that ends in a number, in any base, as an IPv4 address.
_NUMBER_AT_END = re.compile(r"(?:.*\.)?(?:[0-9]+|0[xX][0-9A-Fa-f]*)\.?")
_WEB_SCHEMES = frozenset({"http", "https"})


def parse_redirect_uri(value: object, *, allowed: Collection[str] = ()) -> str:
    """Check the redirect_uri that a client sent, and return it unchanged.

    `allowed` contains the center's origins and custom schemes. If it is empty, every absolute http
    or https address with a host is allowed (docs/http-api.md, `addCard`). Raises
    RedirectUriRequired if the value is missing, null or blank, and RedirectUriInvalid if the
    address is not allowed.
    """
    if value is None or (isinstance(value, str) and not value.strip()):
        raise RedirectUriRequired
    if not isinstance(value, str):
        raise RedirectUriInvalid
    origin = redirect_origin(value)
    if origin is None or (allowed and origin not in allowed):
        raise RedirectUriInvalid
    if not allowed and urlsplit(value).scheme.lower() not in _WEB_SCHEMES:
        raise RedirectUriInvalid
    return value


def redirect_origin(uri: str) -> str | None:
    """Return the origin of an address (RFC 6454), or `scheme://` for the custom scheme of an app.

    The address of an app may begin with `myspa://` or `com.example.app:/` (RFC 8252, section 7.1).
    Return None if no center can allow the address.
    """
    if len(uri) > MAX_REDIRECT_URI_LENGTH or not _URI_CHARACTERS.fullmatch(uri):
        return None
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError:
        return None
    scheme = parts.scheme.lower()
    if scheme in _WEB_SCHEMES:
        return _web_origin(scheme, parts, port)
    # Browsers and operating systems pass addresses with other schemes to other programs, whatever
    # the addresses contain.
    if not scheme or belongs_to_others(scheme) or not uri[len(scheme) :].startswith(":/"):
        return None
    return f"{scheme}://"


def _web_origin(scheme: str, parts: SplitResult, port: int | None) -> str | None:
    host = parts.netloc.rpartition(":")[0] if port is not None else parts.netloc
    if port == 0 or not _is_host(host.removesuffix(":")):
        return None
    default_port = {"http": 80, "https": 443}[scheme]
    suffix = "" if port in (None, default_port) else f":{port}"
    return f"{scheme}://{host.removesuffix(':').lower()}{suffix}"


def _is_host(host: str) -> bool:
    """Return whether `host` is a valid host that all browsers interpret in the same way."""
    if _HOST_NAME.fullmatch(host) and not _NUMBER_AT_END.fullmatch(host):
        return True
    address = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        # A zone id (after a percent sign) names an interface of one machine.
        is_address = str(ip_address(address)) == address.lower() and "%" not in address
    except ValueError:
        return False
    return is_address and (":" in address) == (address != host)


def parse_allowed_origin(value: str) -> str:
    """Parse an origin (`https://shop.example`) or a custom scheme (`myspa://`) of a center.

    Return it in the form that `redirect_origin` returns. Raises ValueError for any other text.
    """
    origin = redirect_origin(value)
    if origin is None or value.lower().rstrip("/") not in _spellings(origin):
        raise ValueError("an origin looks like https://shop.example, an app's scheme like myspa://")
    return origin


def _spellings(origin: str) -> set[str]:
    default_port = {"http": ":80", "https": ":443"}.get(origin.partition(":")[0], "")
    return {origin.rstrip("/"), origin + default_port}
