"""Find out whether an IP address is public on the internet."""

from __future__ import annotations

from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final, TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

# RFC 6052: the last 32 bits are the IPv4 address to which a translator sends the packets.
_TRANSLATED: Final = IPv6Network("64:ff9b::/96")
# RFC 4291 and IANA's registry: all other unicast IPv6 addresses are unassigned.
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
# IANA's registries of special-purpose addresses state that these are not public. `is_global`
# follows the registries only in newer versions of Python. The networks are for protocol
# assignments, tunnels to IPv4 addresses (6to4), and documentation.
_SPECIAL: Final = tuple(map(ip_network, ("192.0.0.0/24", "2002::/16", "3fff::/20")))


def parse_address(text: str) -> Address:
    """Parse an IP address. If an IPv6 address represents an IPv4 address, return the IPv4 address.

    Raises ValueError if the text is not an address, or has a zone (`fe80::1%eth0`).
    """
    address = ip_address(text)
    if isinstance(address, IPv4Address):
        return address
    if address.scope_id is not None:
        raise ValueError("an address with a zone")
    if address in _TRANSLATED:
        return IPv4Address(address.packed[-4:])
    return address.ipv4_mapped or address


def is_public(address: Address) -> bool:
    """Return whether an address is public on the internet."""
    return (
        address.is_global
        and not address.is_multicast
        and (address.version == 4 or address in _GLOBAL_UNICAST)
        and not any(address in network for network in _SPECIAL)
    )
