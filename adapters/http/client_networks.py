"""The networks that clients come from, as they are counted and as they are logged."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

NOT_AN_ADDRESS: Final = "unknown"
"""A proxy may forward text that is not an address. It is neither counted apart nor logged."""


def counted_network(address: str) -> str:
    """Return the /32 network of an IPv4 address, and the /64 network of an IPv6 address.

    One host or household has a whole /64 network.
    """
    return _network_of(address, of_ipv4=32)


def logged_network(address: str) -> str:
    """Return the /24 network of an IPv4 address, and the /64 network of an IPv6 address.

    The log says where a request came from, and names no single IPv4 address.
    """
    return _network_of(address, of_ipv4=24)


def _network_of(address: str, *, of_ipv4: int) -> str:
    """A socket on `::` shows the client 198.51.100.7 as `::ffff:198.51.100.7` (RFC 4291)."""
    try:
        client = ip_address(address)
    except ValueError:
        return NOT_AN_ADDRESS
    length = of_ipv4
    if isinstance(client, IPv6Address):
        if client.ipv4_mapped:
            client = client.ipv4_mapped
        else:
            length = 64
    # The packed address has no zone, such as `%eth0`.
    return str(ip_network((client.packed, length), strict=False))
