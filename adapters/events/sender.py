"""Send events to endpoints over HTTP, but only to addresses that are allowed."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import datetime
from http.client import HTTPException
from importlib.metadata import version
from typing import Final, TypeVar
from urllib.parse import urlsplit

from typing_extensions import override

from adapters.events.addresses import Address, Network, is_public, parse_address
from adapters.events.payload import encode
from adapters.events.signatures import signed_headers
from adapters.outbound_http import AddressInfo, Connection, LookUp, begin, look_up, reason_of
from adapters.traces import headers_of
from domain.errors import InvalidField
from domain.events.event import Event, EventEndpoint, parse_endpoint_url
from domain.events.event_sender import EventNotSent, EventSender

TOTAL_SECONDS: Final = 15
CONNECT_SECONDS: Final = 5
"""The time limit for connecting to one address of a host.

It is shorter than TOTAL_SECONDS, so that there is time to try another address.
"""
MAX_BODY_BYTES: Final = 64 * 1024

Returned = TypeVar("Returned")


class HttpEventSender(EventSender):
    """Sends events over HTTP. Any thread may use it.

    The URL of an endpoint must begin with https, or with http if `may_be_http` is set. The IP
    address of an endpoint must be public, or in one of the `allowed_networks`. An IPv4 address in
    IPv6 form is treated as an IPv4 address. Without `tls`, the certificates that the system trusts
    are used. `look_up` returns the IP addresses of a host.
    """

    def __init__(
        self,
        *,
        may_be_http: bool,
        allowed_networks: Collection[Network] = (),
        tls: ssl.SSLContext | None = None,
        look_up: LookUp = look_up,
        total_seconds: float = TOTAL_SECONDS,
    ) -> None:
        self._may_be_http = may_be_http
        self._allowed_networks = allowed_networks
        self._tls = tls
        self._look_up = look_up
        self._total_seconds = total_seconds
        self._user_agent = f"cardonfile/{version('cardonfile')}"

    @override
    def send(self, event: Event, endpoint: EventEndpoint, *, now: datetime) -> int:
        url, body = endpoint.url, encode(event)
        headers = {
            "content-type": "application/json",
            "user-agent": self._user_agent,
            **headers_of(event.trace),
            **signed_headers(event.event_id, body, endpoint.secrets.at(now), now),
        }

        def post(connection: Connection) -> int:
            response = connection.request("POST", _target(url), headers, body)
            # Only the status matters. But a part of the body is read, because a receiver that
            # cannot send its body may assume that the event was not received.
            with suppress(OSError, HTTPException):
                response.read(MAX_BODY_BYTES)
            return response.status

        return self._with_connection(url, post)

    def connect(self, url: str) -> None:
        """Connect to an endpoint without sending an event.

        Raises EventNotSent if the endpoint cannot be reached, or if its address is not allowed.
        """
        self._with_connection(url, Connection.open)

    def unreachable_reason(self, url: str) -> str | None:
        """Return the reason why events cannot be sent to a URL, without looking up its host.

        Return None if events may be sent to the URL. Also return None if the host is a name other
        than `localhost`, because the IP addresses of that host are not known yet.
        """
        host = urlsplit(url).hostname or ""
        try:
            address = parse_address("127.0.0.1" if host == "localhost" else host)
        except ValueError:
            return None
        return None if self._is_allowed(address) else _not_public(host)

    def _with_connection(self, url: str, use: Callable[[Connection], Returned]) -> Returned:
        try:
            parse_endpoint_url(url, may_be_http=self._may_be_http)
            with Connection(
                url,
                total_seconds=self._total_seconds,
                connect_seconds=CONNECT_SECONDS,
                max_body_bytes=MAX_BODY_BYTES,
                tls=self._tls,
                look_up=self._addresses,
            ) as connection:
                return use(connection)
        except InvalidField as error:
            reason = f"the URL is not {error.expected}"
        except (OSError, HTTPException) as error:
            reason = reason_of(error)
        # The error is raised outside the handlers, because their exceptions may quote the response.
        raise EventNotSent(reason)

    def _addresses(self, host: str, port: int) -> Sequence[AddressInfo]:
        """Look up a host, and return only the IP addresses to which events may be sent.

        Raises EventNotSent if events may be sent to none of the host's addresses.
        """
        found = begin(lambda: tuple(self._look_up(host, port))).result(self._total_seconds)
        allowed = [each for each in found if self._may_connect_to(each)]
        if found and not allowed:
            raise EventNotSent(_not_public(found[0][4][0]))
        return allowed

    def _may_connect_to(self, info: AddressInfo) -> bool:
        try:
            address = parse_address(info[4][0])
        except ValueError:
            return False
        return self._is_allowed(address)

    def _is_allowed(self, address: Address) -> bool:
        return is_public(address) or any(address in network for network in self._allowed_networks)


def _not_public(host: str) -> str:
    return f"not a public address: {host} (see CARDONFILE_EVENT_NETWORKS)"


def _target(url: str) -> str:
    parts = urlsplit(url)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
