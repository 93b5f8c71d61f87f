"""The network of a client in the log."""

from __future__ import annotations

import pytest

from adapters.http.client_networks import logged_network


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("198.51.100.7", "198.51.100.0/24"),
        ("::ffff:198.51.100.7", "198.51.100.0/24"),
        ("2001:db8:0:1:2:3:4:5%eth0", "2001:db8:0:1::/64"),
        ("::1", "::/64"),
        ("4242424242424242", "unknown"),
        ("ada@example.com", "unknown"),
        ("", "unknown"),
    ],
)
def test_the_log_shows_only_the_network_of_a_clients_address(address: str, network: str) -> None:
    assert logged_network(address) == network
