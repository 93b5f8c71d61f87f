"""WSGI middleware that determines the address of a client behind a reverse proxy."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
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
    """Sets the client's address for requests that arrive through a trusted proxy.

    The address of the proxy is replaced with the last address in the header X-Forwarded-For. The
    proxy itself has added this last address. Earlier addresses in the header may be forged. All
    forwarding headers are removed, so that the application cannot depend on them.
    """

    def __init__(
        self, app: WSGIApplication, networks: Collection[IPv4Network | IPv6Network]
    ) -> None:
        """Wrap `app`. `networks` are the networks of the trusted proxies.

        If there is no proxy, `networks` is empty.
        """
        self._app = app
        self._networks = networks

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Pass a request on to the application, with the address of the client."""
        forwarded_for: str = environ.get("HTTP_X_FORWARDED_FOR", "")
        for name in _FORWARDED:
            environ.pop(name, None)
        if forwarded_for and self._is_trusted(environ["REMOTE_ADDR"]):
            environ["REMOTE_ADDR"] = forwarded_for.rpartition(",")[2].strip()
        return self._app(environ, start_response)

    def _is_trusted(self, address: str) -> bool:
        try:
            read = ip_address(address)
        except ValueError:
            return False
        # A socket on `::` shows its IPv4 clients as `::ffff:10.0.0.5`.
        plain = read.ipv4_mapped or read if isinstance(read, IPv6Address) else read
        return any(plain in network for network in self._networks)
