"""The networks of clients: one size for rate limits, another for the log."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

NOT_AN_ADDRESS: Final = "unknown"
"""A proxy may forward text that is not an address. Such text is neither counted separately nor
logged.
"""


def counted_network(address: str) -> str:
    """Return the network of an address for rate limits: /32 for IPv4, /64 for IPv6.

    In IPv6, a single host or household has a whole /64 network.
    """
    return _network_of(address, of_ipv4=32)


def logged_network(address: str) -> str:
    """Return the network of an address for the log: /24 for IPv4, /64 for IPv6.

    The log therefore does not contain the full address of a client.
    """
    return _network_of(address, of_ipv4=24)


def _network_of(address: str, *, of_ipv4: int) -> str:
    """Return the network of an address, with the prefix length `of_ipv4` for IPv4.

    A socket that listens on `::` reports 198.51.100.7 as `::ffff:198.51.100.7` (RFC 4291). Such an
    address is treated as IPv4.
    """
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
