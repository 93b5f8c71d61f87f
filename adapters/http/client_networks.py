"""The networks of clients, as they are counted and as they are logged."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

NOT_AN_ADDRESS: Final = "unknown"
"""A proxy may forward text that is not an address. Such text is neither counted separately nor
logged.
"""


def counted_network(address: str) -> str:
    """Return the /32 network of an IPv4 address, or the /64 network of an IPv6 address.

    A single host or household has a whole /64 network.
    """
    return _network_of(address, of_ipv4=32)


def logged_network(address: str) -> str:
    """Return the /24 network of an IPv4 address, or the /64 network of an IPv6 address.

    The log shows the origin of a request without a single IPv4 address.
    """
    return _network_of(address, of_ipv4=24)


def _network_of(address: str, *, of_ipv4: int) -> str:
    """Return the network; a socket on `::` shows 198.51.100.7 as `::ffff:198.51.100.7` (RFC 4291)."""
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
