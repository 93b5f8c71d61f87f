"""WSGI middleware that finds the address of a client behind a reverse proxy."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address
from typing import Final
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

_FORWARDED: Final = (
    "HTTP_FORWARDED",
    "HTTP_X_FORWARDED_BY",
    "HTTP_X_FORWARDED_FOR",
    "HTTP_X_FORWARDED_HOST",
    "HTTP_X_FORWARDED_PORT",
    "HTTP_X_FORWARDED_PROTO",
)


class TrustedProxy:
    """Replaces the address of the trusted proxy by the last one in its X-Forwarded-For header.

    The proxy itself appended that last address; earlier ones may be forged. All forwarding headers
    are removed, so that the application cannot depend on one.
    """

    def __init__(self, app: WSGIApplication, address: str | None) -> None:
        """Wrap `app`. `address` is the IP address of the proxy, None if there is no proxy."""
        self._app = app
        self._address = address

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Pass a request on to the application."""
        forwarded_for: str = environ.get("HTTP_X_FORWARDED_FOR", "")
        for name in _FORWARDED:
            environ.pop(name, None)
        if forwarded_for and self._address and _plain(environ["REMOTE_ADDR"]) == self._address:
            environ["REMOTE_ADDR"] = forwarded_for.rpartition(",")[2].strip()
        return self._app(environ, start_response)


def _plain(address: str) -> str:
    """Return an IPv4 address also for `::ffff:10.0.0.5`, as a socket on `::` shows its clients."""
    try:
        read = ip_address(address)
    except ValueError:
        return address
    mapped = read.ipv4_mapped if isinstance(read, IPv6Address) else None
    return str(mapped or read)
