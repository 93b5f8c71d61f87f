"""The address of a client behind a proxy, as WSGI middleware that works with every server."""

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
    """Puts what one proxy says of its client in place of the proxy's own address.

    Of the addresses in X-Forwarded-For the last one counts: the proxy has added it itself. Whatever
    else is said about forwarding, by anybody, does not reach the application.
    """

    def __init__(self, app: WSGIApplication, address: str | None) -> None:
        """Take the application, and the IP address of the proxy, if there is one."""
        self._app = app
        self._address = address

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request."""
        forwarded_for: str = environ.get("HTTP_X_FORWARDED_FOR", "")
        for name in _FORWARDED:
            environ.pop(name, None)
        if forwarded_for and self._address and _plain(environ["REMOTE_ADDR"]) == self._address:
            environ["REMOTE_ADDR"] = forwarded_for.rpartition(",")[2].strip()
        return self._app(environ, start_response)


def _plain(address: str) -> str:
    """Give an address as it is set: a socket on `::` shows IPv4 clients as `::ffff:10.0.0.5`."""
    try:
        read = ip_address(address)
    except ValueError:
        return address
    mapped = read.ipv4_mapped if isinstance(read, IPv6Address) else None
    return str(mapped or read)
