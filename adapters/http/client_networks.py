"""The network that contains a client's address. Rate limits and the log use different sizes."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

NOT_AN_ADDRESS: Final = "unknown"
"""The result for a text that is not an IP address. A proxy may forward any text.

All clients with such a text are counted together. The text itself is not logged.
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
    """Return the network that contains an address, or NOT_AN_ADDRESS for any other text.

    `of_ipv4` is the prefix length for IPv4. For IPv6 it is 64. A socket that listens on `::`
    reports the IPv4 address 198.51.100.7 as `::ffff:198.51.100.7` (RFC 4291). Such an address is
    treated as an IPv4 address.
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
